
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * The core decides about the head of the upstream request, but upstream
 * modules create it from the client's head, r->headers_in.  The headers are
 * therefore replaced only while the upstream module reads them, and restored
 * before any other code can read them: a "window".
 *
 * An upstream module creates its request in u->create_request(), called by
 * its content handler or, if the client's body is still to be read, later.
 * Both calls are wrapped.  A window opens and closes within a call, so open
 * windows form a stack.
 */

typedef struct ngx_http_sszip_window_s  ngx_http_sszip_window_t;

/* ":method", the only pseudo-header in edits */

#define ngx_http_sszip_is_pseudo_header(edit)                                 \
    ((edit)->name.len > 0 && (edit)->name.data[0] == ':')


struct ngx_http_sszip_window_s {
    ngx_http_request_t          *request;
    ngx_http_sszip_window_t     *outer;

    ngx_list_t                   headers;          /* the client's */
    unsigned                     edited:1;

    /* the client's body, while it is replaced */
    ngx_chain_t                 *bufs;
    off_t                        length;
    ngx_str_t                    length_value;
    ngx_http_variable_value_t    length_variables[NGX_HTTP_SSZIP_LENGTHS];
    unsigned                     chunked:1;
    unsigned                     body:1;

    /* the client's target, while it is replaced */
    ngx_str_t                    uri;
    ngx_str_t                    unparsed_uri;
    unsigned                     valid_unparsed_uri:1;
    unsigned                     target:1;

    /* the client's method, while it is replaced */
    ngx_uint_t                   method;
    ngx_str_t                    method_name;
    unsigned                     posts:1;
};


static ngx_uint_t ngx_http_sszip_subrequest_allowed(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static void ngx_http_sszip_upstream_start(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static void ngx_http_sszip_client_read_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_create_request(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_open_window(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_http_sszip_window_t *window);
static ngx_int_t ngx_http_sszip_replace_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_http_sszip_window_t *window);
static void ngx_http_sszip_replace_target(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_http_sszip_window_t *window);
static ngx_uint_t ngx_http_sszip_is_within(ngx_http_request_t *r,
    ngx_str_t *path);
static void ngx_http_sszip_replace_method(ngx_http_request_t *r,
    const sszip_head_edit *edits, size_t n, ngx_http_sszip_window_t *window);
static ngx_table_elt_t *ngx_http_sszip_edit_head_in(ngx_http_request_t *r,
    const sszip_head_edit *edits, size_t n, ngx_uint_t *nelts);
static void ngx_http_sszip_restore_request(ngx_http_sszip_window_t *window);


static ngx_http_sszip_window_t  *ngx_http_sszip_windows;

/* with a space, as the names in r->request_line have one */

static ngx_str_t  ngx_http_sszip_post_method = { 4, (u_char *) "POST " };


/*
 * Calls the wrapped content handler of a location within a window, in which
 * it sees the upstream request.
 */

ngx_int_t
ngx_http_sszip_call_handler(ngx_http_request_t *r, ngx_http_handler_pt handler)
{
    bool                        serves_stale;
    ngx_int_t                   rc;
    ngx_uint_t                  error_page;
    ngx_http_upstream_t        *u;
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_window_t     window;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    /* an error page within a window must see the client's headers */
    ngx_http_sszip_close_window(r);

    ctx = slcf->enable ? ngx_http_sszip_get_ctx(r) : NULL;

    if (slcf->has_policy && !ngx_http_sszip_subrequest_allowed(r, ctx)) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sszip: request denied: its calls were not evaluated by "
                      "the policy of the location");
        return NGX_HTTP_FORBIDDEN;
    }

    if (ctx == NULL) {
        return handler(r);
    }

    /*
     * An upstream that cannot be reached may fail before the handler returns,
     * and a stale response must be sent before error pages apply.
     */

    error_page = r->error_page;

    if (slcf->caches
        && sszip_exchange_would_serve_stale(ctx->exchange, SSZIP_FAILURE_ERROR,
                                            0, ngx_http_sszip_now(),
                                            &serves_stale)
           == SSZIP_STATUS_OK
        && serves_stale)
    {
        r->error_page = 1;
    }

    rc = ngx_http_sszip_open_window(r, ctx, &window);

    if (rc == NGX_OK) {
        rc = handler(r);

    } else {
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_sszip_close_window(r);
    ngx_http_sszip_windows = window.outer;

    /* the request is alive: the caller still has to finalize it with rc */

    r->error_page = error_page;

    u = r->upstream;

    if (u == NULL
        || ngx_http_get_module_ctx(r, ngx_http_sszip_module) != ctx)
    {
        return rc;
    }

    if (u->create_request != NULL
        && u->create_request != ngx_http_sszip_create_request)
    {
        ctx->create_request = u->create_request;
        u->create_request = ngx_http_sszip_create_request;
    }

    if (slcf->caches && u->cleanup != NULL) {
        ngx_http_sszip_upstream_start(r, ctx);
    }

    return rc;
}


/*
 * Whether a request that was not looked up may be sent to an upstream under a
 * policy.  Subrequests of other modules have the client's body, and are not
 * looked up: under a policy they must not have a body.
 */

static ngx_uint_t
ngx_http_sszip_subrequest_allowed(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx)
{
    if (ctx != NULL && ctx->lookup_over) {
        return 1;
    }

    if (r->request_body != NULL) {
        return r->request_body->bufs == NULL;
    }

    return r != r->main
           || (r->headers_in.content_length_n <= 0 && !r->headers_in.chunked);
}


/*
 * Prepares an upstream request whose response is cached.  A response for
 * coalesced or later requests is fetched even if the client is gone, as with
 * proxy_cache: the upstream module does not check the client.
 */

static void
ngx_http_sszip_upstream_start(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx)
{
    ngx_http_sszip_hook_finalize(r, ctx);

    if (r != r->main
        || r->upstream->request_bufs == NULL
        || !sszip_exchange_is_filling(ctx->exchange))
    {
        return;
    }

    r->read_event_handler = ngx_http_sszip_client_read_handler;

    if (!r->upstream->header_sent) {
        r->write_event_handler = ngx_http_request_empty_handler;
    }
}


/*
 * Detects a client that disconnects during an upstream request.  An HTTP/2
 * client has reset the stream, which waited for the client's window and now
 * never becomes writable: the sender must detect that.
 */

static void
ngx_http_sszip_client_read_handler(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    ngx_http_block_reading(r);

    if (c->error && !c->write->ready) {
        c->write->ready = 1;
        r->write_event_handler(r);
    }
}


/* lets the upstream module create the request within a window */

static ngx_int_t
ngx_http_sszip_create_request(ngx_http_request_t *r)
{
    ngx_int_t                   rc;
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_window_t     window;
    ngx_http_sszip_loc_conf_t  *slcf;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    rc = ngx_http_sszip_open_window(r, ctx, &window);

    if (window.body) {
        r->upstream->request_bufs = r->request_body->bufs;
    }

    if (rc == NGX_OK) {
        rc = ctx->create_request(r);
    }

    if (rc == NGX_OK && slcf->caches) {
        ngx_http_sszip_upstream_start(r, ctx);
    }

    ngx_http_sszip_close_window(r);
    ngx_http_sszip_windows = window.outer;

    return rc;
}


/*
 * Replaces the client's body, target and headers by the upstream request's,
 * for the upstream module.  A body of the core, and the target and headers
 * that belong to it, are all set or none is: NGX_ERROR.  Other headers may
 * stay unchanged.
 */

static ngx_int_t
ngx_http_sszip_open_window(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_http_sszip_window_t *window)
{
    ngx_int_t                    rc;
    size_t                       n;
    ngx_list_t                  *headers;
    ngx_uint_t                   nelts;
    ngx_table_elt_t             *fields;
    const sszip_head_edit       *edits;
    ngx_http_sszip_main_conf_t  *smcf;

    window->request = r;
    window->edited = 0;
    window->body = 0;
    window->target = 0;
    window->posts = 0;
    window->outer = ngx_http_sszip_windows;

    ngx_http_sszip_windows = window;

    if (ngx_http_sszip_replace_body(r, ctx, window) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_sszip_replace_target(r, ctx, window);

    rc = (ctx->request_bufs != NULL) ? NGX_ERROR : NGX_OK;

    if (sszip_exchange_upstream_edits(ctx->exchange, &edits, &n)
        != SSZIP_STATUS_OK)
    {
        return rc;
    }

    if (n == 0) {
        return NGX_OK;
    }

    ngx_http_sszip_replace_method(r, edits, n, window);

    /* evaluated and cached first, so that no script sees the edited header */

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sszip_module);
    (void) ngx_http_get_indexed_variable(r, smcf->accept_encoding);

    fields = ngx_http_sszip_edit_head_in(r, edits, n, &nelts);
    if (fields == NULL) {
        return rc;
    }

    headers = &r->headers_in.headers;

    window->headers = *headers;
    window->edited = 1;

    headers->part.elts = fields;
    headers->part.nelts = nelts;
    headers->part.next = NULL;
    headers->last = &headers->part;
    headers->nalloc = nelts;

    return NGX_OK;
}


/*
 * Replaces the body of the request within a window.  The upstream module
 * reads the buffers and the length when it creates its request, and keeps a
 * copy of the chain for the next upstream.  All other code, error pages and
 * logs among it, sees the client's body.
 */

static ngx_int_t
ngx_http_sszip_replace_body(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_http_sszip_window_t *window)
{
    u_char                      *p;
    ngx_str_t                    length;
    ngx_uint_t                   i;
    ngx_http_variable_value_t   *v;
    ngx_http_sszip_main_conf_t  *smcf;

    if (ctx->request_bufs == NULL) {
        return NGX_OK;
    }

    if (r->request_body == NULL) {
        return NGX_ERROR;
    }

    p = ngx_pnalloc(r->pool, NGX_OFF_T_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    length.data = p;
    length.len = ngx_sprintf(p, "%O", ctx->request_length) - p;

    if (r->headers_in.content_length != NULL) {
        window->length_value = r->headers_in.content_length->value;
        r->headers_in.content_length->value = length;
    }

    /*
     * variables that set the upstream's length, whether evaluated before or
     * not
     */

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sszip_module);

    for (i = 0; i < NGX_HTTP_SSZIP_LENGTHS; i++) {

        v = &r->variables[smcf->lengths[i]];

        window->length_variables[i] = *v;

        v->valid = 1;
        v->no_cacheable = 0;
        v->not_found = 0;
        v->len = length.len;
        v->data = length.data;
    }

    window->bufs = r->request_body->bufs;
    window->length = r->headers_in.content_length_n;
    window->chunked = r->headers_in.chunked;
    window->body = 1;

    r->request_body->bufs = ctx->request_bufs;
    r->headers_in.content_length_n = ctx->request_length;
    r->headers_in.chunked = 0;

    return NGX_OK;
}


/*
 * Replaces the target of the request within a window.  Without a URI in
 * proxy_pass, the upstream receives the unparsed URI.  With one, the
 * location's prefix is removed from the parsed URI, which must begin with it;
 * for another target, the URI in proxy_pass is where the upstream has it.
 */

static void
ngx_http_sszip_replace_target(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_http_sszip_window_t *window)
{
    ngx_http_sszip_main_conf_t  *smcf;

    if (ctx->request_target.len == 0) {
        return;
    }

    /* evaluated and cached first, so that no script sees the edited target */

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sszip_module);
    (void) ngx_http_get_indexed_variable(r, smcf->request_uri);

    window->uri = r->uri;
    window->unparsed_uri = r->unparsed_uri;
    window->valid_unparsed_uri = r->valid_unparsed_uri;
    window->target = 1;

    r->unparsed_uri = ctx->request_target;
    r->valid_unparsed_uri = 1;

    if (ngx_http_sszip_is_within(r, &ctx->request_path)) {
        r->uri = ctx->request_path;
    }
}


/*
 * Whether a path lies within the location, so that its prefix can be
 * replaced.
 */

static ngx_uint_t
ngx_http_sszip_is_within(ngx_http_request_t *r, ngx_str_t *path)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    /* no prefix is removed from a rewritten URI */

    return !r->valid_location
           || (path->len >= clcf->name.len
               && ngx_strncmp(path->data, clcf->name.data, clcf->name.len)
                  == 0);
}


/*
 * Replaces the method of the request within a window.  The core only replaces
 * it by POST; variables and logs outside of the window have the client's.
 */

static void
ngx_http_sszip_replace_method(ngx_http_request_t *r,
    const sszip_head_edit *edits, size_t n, ngx_http_sszip_window_t *window)
{
    size_t  i;

    for (i = 0; i < n; i++) {

        if (!ngx_http_sszip_is_pseudo_header(&edits[i])) {
            continue;
        }

        window->method = r->method;
        window->method_name = r->method_name;
        window->posts = 1;

        r->method = NGX_HTTP_POST;
        r->method_name = ngx_http_sszip_post_method;

        return;
    }
}


/*
 * Builds the client's headers without the edited ones, followed by the edits.
 */

static ngx_table_elt_t *
ngx_http_sszip_edit_head_in(ngx_http_request_t *r, const sszip_head_edit *edits,
    size_t n, ngx_uint_t *nelts)
{
    u_char           *lowcase;
    ngx_uint_t        i, j;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *fields, *field, *header;

    i = n;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        i += part->nelts;
    }

    fields = ngx_palloc(r->pool, i * sizeof(ngx_table_elt_t));
    if (fields == NULL) {
        return NULL;
    }

    field = fields;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {

            for (j = 0; j < n; j++) {
                if (ngx_http_sszip_is_field(&header[i], &edits[j])) {
                    break;
                }
            }

            if (j == n) {
                *field++ = header[i];
            }
        }
    }

    for (j = 0; j < n; j++) {

        if (edits[j].value.data == NULL
            || ngx_http_sszip_is_pseudo_header(&edits[j]))
        {
            continue;
        }

        lowcase = ngx_pnalloc(r->pool, edits[j].name.len);
        if (lowcase == NULL) {
            return NULL;
        }

        ngx_memzero(field, sizeof(ngx_table_elt_t));

        field->key = ngx_http_sszip_ngx_str(edits[j].name);
        field->value = ngx_http_sszip_ngx_str(edits[j].value);
        field->hash = ngx_hash_strlow(lowcase, field->key.data,
                                      field->key.len);
        field->lowcase_key = lowcase;
        field++;
    }

    *nelts = field - fields;

    return fields;
}


/* closes the windows of a request and of the requests that share its head */

void
ngx_http_sszip_close_window(ngx_http_request_t *r)
{
    ngx_http_sszip_window_t  *window;

    for (window = ngx_http_sszip_windows; window; window = window->outer) {

        if (window->request->main == r->main) {
            ngx_http_sszip_restore_request(window);
        }
    }
}


/* restores the client's body, target and headers at the end of a window */

static void
ngx_http_sszip_restore_request(ngx_http_sszip_window_t *window)
{
    ngx_uint_t                   i;
    ngx_http_request_t          *r;
    ngx_http_sszip_main_conf_t  *smcf;

    r = window->request;

    if (window->body) {
        r->request_body->bufs = window->bufs;
        r->headers_in.content_length_n = window->length;
        r->headers_in.chunked = window->chunked;

        if (r->headers_in.content_length != NULL) {
            r->headers_in.content_length->value = window->length_value;
        }

        smcf = ngx_http_get_module_main_conf(r, ngx_http_sszip_module);

        for (i = 0; i < NGX_HTTP_SSZIP_LENGTHS; i++) {
            r->variables[smcf->lengths[i]] = window->length_variables[i];
        }

        window->body = 0;
    }

    if (window->target) {
        r->uri = window->uri;
        r->unparsed_uri = window->unparsed_uri;
        r->valid_unparsed_uri = window->valid_unparsed_uri;
        window->target = 0;
    }

    if (window->posts) {
        r->method = window->method;
        r->method_name = window->method_name;
        window->posts = 0;
    }

    if (window->edited) {
        r->headers_in.headers = window->headers;
        window->edited = 0;
    }
}


/*
 * Edits the upstream's Vary for proxy_cache. proxy_cache distinguishes
 * responses by the client's values of the headers in the upstream's Vary.
 * Headers that sszip sets to the same value for all clients distinguish
 * nothing; with them, the lookup, which may happen within a window, would not
 * match the entry that is saved later.
 */

void
ngx_http_sszip_edit_cache_vary(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx)
{
#if (NGX_HTTP_CACHE)

    ngx_str_t  *vary;
    sszip_str   upstream_vary;

    if (r->cache == NULL || r->cache->vary.len == 0) {
        return;
    }

    vary = &r->cache->vary;

    if (sszip_exchange_upstream_vary(ctx->exchange, ngx_http_sszip_str(vary),
                                     &upstream_vary)
        == SSZIP_STATUS_OK)
    {
        /* lives as long as the request's pool */
        *vary = ngx_http_sszip_ngx_str(upstream_vary);
    }

#endif
}
