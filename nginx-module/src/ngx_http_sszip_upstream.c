
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * The head that the node gets is the core's decision, but upstream modules
 * make it from the client's head, r->headers_in.  So there are other fields
 * for just as long as the upstream module reads them, and the client's are put
 * back before anything else can look: a "window".
 *
 * An upstream module makes its request in u->create_request(), called by its
 * content handler or, if the client's body is still to be read, later.  Both
 * calls are wrapped.  All is done within a call, so open windows form a stack.
 */

typedef struct ngx_http_sszip_window_s  ngx_http_sszip_window_t;

struct ngx_http_sszip_window_s {
    ngx_http_request_t          *request;
    ngx_http_sszip_window_t     *outer;

    ngx_list_t                   headers;          /* the client's */
    unsigned                     edited:1;

    /* of the client's body, while it stands back */
    ngx_chain_t                 *bufs;
    off_t                        length;
    ngx_str_t                    length_value;
    ngx_http_variable_value_t    length_variables[2];
    unsigned                     chunked:1;
    unsigned                     body:1;
};


static void ngx_http_sszip_open_window(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_http_sszip_window_t *window);
static void ngx_http_sszip_replace_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_http_sszip_window_t *window);
static ngx_int_t ngx_http_sszip_edit(ngx_http_request_t *r,
    ngx_list_part_t *fields, const sszip_edit *edit);
static void ngx_http_sszip_put_back(ngx_http_sszip_window_t *window);
static ngx_int_t ngx_http_sszip_create_request(ngx_http_request_t *r);
static void ngx_http_sszip_outlive_client(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static void ngx_http_sszip_client_says(ngx_http_request_t *r);
static void ngx_http_sszip_set_length(ngx_http_request_t *r, ngx_int_t index,
    ngx_str_t *length, ngx_http_variable_value_t *before);
static void ngx_http_sszip_node_failed(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_uint_t status);
static ngx_int_t ngx_http_sszip_rewrite_redirect(ngx_http_request_t *r,
    ngx_table_elt_t *h, size_t prefix);
static void ngx_http_sszip_finalize_upstream(ngx_http_request_t *r,
    ngx_int_t rc);


static ngx_http_sszip_window_t  *ngx_http_sszip_windows;


ngx_int_t
ngx_http_sszip_pass_on(ngx_http_request_t *r, ngx_http_handler_pt handler)
{
    bool                        stands_in;
    ngx_int_t                   rc;
    ngx_uint_t                  error_page;
    ngx_http_upstream_t        *u;
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_window_t     window;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    /* an error page within a window must see the client's fields */
    ngx_http_sszip_close_window(r);

    if (!slcf->enable) {
        return handler(r);
    }

    ctx = ngx_http_sszip_get_ctx(r);
    if (ctx == NULL) {
        return handler(r);
    }

    /*
     * A node that can't be reached may fail before the handler returns, and
     * the stored answer that stands in for it comes before error pages.
     */

    error_page = r->error_page;

    if (slcf->caches
        && sszip_exchange_would_stand_in(ctx->exchange, SSZIP_FAILURE_ERROR, 0,
                                         ngx_http_sszip_now(), &stands_in)
           == SSZIP_STATUS_OK
        && stands_in)
    {
        r->error_page = 1;
    }

    ngx_http_sszip_open_window(r, ctx, &window);

    rc = handler(r);

    ngx_http_sszip_close_window(r);
    ngx_http_sszip_windows = window.outer;

    /* the request is alive: the caller is still to finalize it with rc */

    r->error_page = error_page;

    u = r->upstream;

    if (slcf->caches
        && u != NULL
        && u->cleanup != NULL
        && ngx_http_get_module_ctx(r, ngx_http_sszip_module) == ctx)
    {
        ngx_http_sszip_watch_upstream(r, ctx);
    }

    if (u != NULL
        && u->create_request != NULL
        && u->create_request != ngx_http_sszip_create_request
        && ngx_http_get_module_ctx(r, ngx_http_sszip_module) == ctx)
    {
        ctx->create_request = u->create_request;
        u->create_request = ngx_http_sszip_create_request;
    }

    if (u != NULL
        && u->cleanup != NULL
        && u->request_bufs != NULL
        && ngx_http_get_module_ctx(r, ngx_http_sszip_module) == ctx)
    {
        ngx_http_sszip_outlive_client(r, ctx);
    }

    return rc;
}


/*
 * What others wait for, or will ask for, is fetched even when the client has
 * gone, as with proxy_cache: the upstream module does not look.
 */

static void
ngx_http_sszip_outlive_client(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx)
{
    if (r != r->main || !sszip_exchange_is_filling(ctx->exchange)) {
        return;
    }

    r->read_event_handler = ngx_http_sszip_client_says;

    if (!r->upstream->header_sent) {
        r->write_event_handler = ngx_http_request_empty_handler;
    }
}


/*
 * A client of HTTP/2 has reset the stream, which can't be written to until the
 * client has made room, and now never will: who writes is to find that out.
 */

static void
ngx_http_sszip_client_says(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    ngx_http_block_reading(r);

    if (c->error && !c->write->ready) {
        c->write->ready = 1;
        r->write_event_handler(r);
    }
}


static ngx_int_t
ngx_http_sszip_create_request(ngx_http_request_t *r)
{
    ngx_int_t                   rc;
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_window_t     window;
    ngx_http_sszip_loc_conf_t  *slcf;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    ngx_http_sszip_open_window(r, ctx, &window);

    if (window.body) {
        r->upstream->request_bufs = r->request_body->bufs;
    }

    rc = ctx->create_request(r);

    if (slcf->caches) {
        ngx_http_sszip_watch_upstream(r, ctx);
        ngx_http_sszip_outlive_client(r, ctx);
    }

    ngx_http_sszip_close_window(r);
    ngx_http_sszip_windows = window.outer;

    return rc;
}


static void
ngx_http_sszip_open_window(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_http_sszip_window_t *window)
{
    size_t                       i, n;
    ngx_list_t                  *headers;
    ngx_list_part_t              fields, *part;
    const sszip_edit            *edits;
    ngx_http_sszip_main_conf_t  *smcf;

    window->request = r;
    window->edited = 0;
    window->body = 0;
    window->outer = ngx_http_sszip_windows;

    ngx_http_sszip_windows = window;

    ngx_http_sszip_replace_body(r, ctx, window);

    if (sszip_exchange_upstream_edits(ctx->exchange, &edits, &n)
        != SSZIP_STATUS_OK
        || n == 0)
    {
        return;
    }

    /* remembered by the variable, so that no script sees ours */

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sszip_module);
    (void) ngx_http_get_indexed_variable(r, smcf->accept_encoding);

    headers = &r->headers_in.headers;

    for (part = &headers->part; part; part = part->next) {
        n += part->nelts;
    }

    fields.elts = ngx_palloc(r->pool, n * sizeof(ngx_table_elt_t));
    if (fields.elts == NULL) {
        return;
    }

    fields.nelts = 0;
    fields.next = NULL;

    for (part = &headers->part; part; part = part->next) {
        ngx_memcpy((ngx_table_elt_t *) fields.elts + fields.nelts, part->elts,
                   part->nelts * sizeof(ngx_table_elt_t));

        fields.nelts += part->nelts;
        n -= part->nelts;
    }

    for (i = 0; i < n; i++) {
        if (ngx_http_sszip_edit(r, &fields, &edits[i]) != NGX_OK) {
            return;
        }
    }

    window->headers = *headers;
    window->edited = 1;

    headers->part = fields;
    headers->last = &headers->part;
    headers->nalloc = fields.nelts;
}


/*
 * The upstream module reads the buffers and the length when it makes its
 * request, and keeps a copy of the chain for the next upstream.  All others,
 * error pages and logs among them, see the client's body.
 */

static void
ngx_http_sszip_replace_body(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_http_sszip_window_t *window)
{
    u_char                      *p;
    ngx_str_t                    length;
    ngx_table_elt_t             *h;
    ngx_http_sszip_main_conf_t  *smcf;

    if (ctx->request_bufs == NULL || r->request_body == NULL) {
        return;
    }

    p = ngx_pnalloc(r->pool, NGX_OFF_T_LEN);
    if (p == NULL) {
        return;
    }

    length.data = p;
    length.len = ngx_sprintf(p, "%O", ctx->request_length) - p;

    h = r->headers_in.content_length;

    if (h != NULL) {
        window->length_value = h->value;
        h->value = length;
    }

    /* as the node is told by a variable, evaluated before or not */

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sszip_module);

    ngx_http_sszip_set_length(r, smcf->content_length, &length,
                              &window->length_variables[0]);
    ngx_http_sszip_set_length(r, smcf->http_content_length, &length,
                              &window->length_variables[1]);

    window->bufs = r->request_body->bufs;
    window->length = r->headers_in.content_length_n;
    window->chunked = r->headers_in.chunked;
    window->body = 1;

    r->request_body->bufs = ctx->request_bufs;
    r->headers_in.content_length_n = ctx->request_length;
    r->headers_in.chunked = 0;
}


static void
ngx_http_sszip_set_length(ngx_http_request_t *r, ngx_int_t index,
    ngx_str_t *length, ngx_http_variable_value_t *before)
{
    ngx_http_variable_value_t  *v;

    v = &r->variables[index];

    *before = *v;

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->len = length->len;
    v->data = length->data;
}


/* the field has one value, where its first was, or goes */

static ngx_int_t
ngx_http_sszip_edit(ngx_http_request_t *r, ngx_list_part_t *fields,
    const sszip_edit *edit)
{
    u_char           *lowcase;
    ngx_str_t         name, value;
    ngx_uint_t        i, n, set;
    ngx_table_elt_t  *header;

    name.data = (u_char *) edit->name.data;
    name.len = edit->name.len;

    value.data = (u_char *) edit->value.data;
    value.len = edit->value.len;

    header = fields->elts;
    set = (value.data == NULL);
    n = 0;

    for (i = 0; i < fields->nelts; i++) {

        if (header[i].key.len == name.len
            && ngx_strncasecmp(header[i].key.data, name.data, name.len) == 0)
        {
            if (set) {
                continue;
            }

            header[i].value = value;
            set = 1;
        }

        header[n++] = header[i];
    }

    fields->nelts = n;

    if (set) {
        return NGX_OK;
    }

    lowcase = ngx_pnalloc(r->pool, name.len);
    if (lowcase == NULL) {
        return NGX_ERROR;
    }

    header = &header[fields->nelts++];

    header->hash = ngx_hash_strlow(lowcase, name.data, name.len);
    header->lowcase_key = lowcase;
    header->key = name;
    header->value = value;
#if (nginx_version >= 1023000)
    header->next = NULL;
#endif

    return NGX_OK;
}


/* closes the windows of a request and of those that share its head */

void
ngx_http_sszip_close_window(ngx_http_request_t *r)
{
    ngx_http_sszip_window_t  *window;

    for (window = ngx_http_sszip_windows; window; window = window->outer) {

        if (window->request->main == r->main) {
            ngx_http_sszip_put_back(window);
        }
    }
}


static void
ngx_http_sszip_put_back(ngx_http_sszip_window_t *window)
{
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

        r->variables[smcf->content_length] = window->length_variables[0];
        r->variables[smcf->http_content_length] = window->length_variables[1];

        window->body = 0;
    }

    if (window->edited) {
        r->headers_in.headers = window->headers;
        window->edited = 0;
    }
}


/*
 * proxy_cache keeps answers apart by the client's value of each field in the
 * node's Vary.  Fields that we make the same for all clients tell nothing
 * apart; keeping them would also make the lookup, which may happen within a
 * window, disagree with what is saved later.
 */

void
ngx_http_sszip_edit_cache_vary(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx)
{
#if (NGX_HTTP_CACHE)

    u_char     *p;
    sszip_str   vary;

    if (r->cache == NULL
        || r->cache->vary.len == 0
        || sszip_exchange_upstream_vary(ctx->exchange,
                                        ngx_http_sszip_str(&r->cache->vary),
                                        &vary)
           != SSZIP_STATUS_OK)
    {
        return;
    }

    p = ngx_pnalloc(r->pool, vary.len);
    if (p == NULL) {
        return;
    }

    ngx_memcpy(p, vary.data, vary.len);

    r->cache->vary.data = p;
    r->cache->vary.len = vary.len;

#endif
}


/*
 * An upstream that fails after it has passed on the head sends an empty flush
 * and says nothing else about it.  So its module is asked for what it was
 * finalized with, just before that flush.
 */

void
ngx_http_sszip_watch_upstream(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL
        || u->finalize_request == NULL
        || u->finalize_request == ngx_http_sszip_finalize_upstream)
    {
        return;
    }

    ctx->finalize_request = u->finalize_request;
    u->finalize_request = ngx_http_sszip_finalize_upstream;

    if (u->rewrite_redirect != NULL) {
        ctx->rewrite_redirect = u->rewrite_redirect;
        u->rewrite_redirect = ngx_http_sszip_rewrite_redirect;
    }
}


/*
 * proxy_redirect: it writes over what the node sent, which is what is stored,
 * and may do so in another way for the next client.
 */

static ngx_int_t
ngx_http_sszip_rewrite_redirect(ngx_http_request_t *r, ngx_table_elt_t *h,
    size_t prefix)
{
    u_char                *p;
    ngx_int_t              rc;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL || ctx->rewrite_redirect == NULL) {
        return NGX_DECLINED;
    }

    p = ngx_pnalloc(r->pool, h->value.len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    *ngx_cpymem(p, h->value.data, h->value.len) = '\0';
    h->value.data = p;

    rc = ctx->rewrite_redirect(r, h, prefix);

    if (rc == NGX_OK) {
        (void) sszip_exchange_redirected(ctx->exchange);
    }

    return rc;
}


static void
ngx_http_sszip_finalize_upstream(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL || ctx->finalize_request == NULL) {
        /* an internal redirect has taken the context away */
        return;
    }

    if (ctx->step.act != SSZIP_DO_AWAIT) {
        ctx->upstream_failed = (rc >= NGX_HTTP_SPECIAL_RESPONSE);

    } else if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        ngx_http_sszip_node_failed(r, ctx, rc);
    }

    ctx->finalize_request(r, rc);
}


/*
 * Before the head that says so.  A stored answer that stands in for the
 * node's comes before error pages, which are what "r->error_page" rules out.
 */

static void
ngx_http_sszip_node_failed(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_uint_t status)
{
    bool  stands_in;

    if (sszip_exchange_fails(ctx->exchange, ngx_http_sszip_failure(r, status),
                             (uint16_t) status, ngx_http_sszip_now(),
                             &stands_in)
        == SSZIP_STATUS_OK
        && stands_in)
    {
        r->error_page = 1;
    }
}


/*
 * The upstream module makes statuses of its own for what keeps it from an
 * answer, and says no more about it.  A status is the node's if the module has
 * read it from the node, for this request, and has not failed since.  Of its
 * own ones a 502 is for a head that it could not read if there is one, and the
 * connection neither ended nor failed.
 */

sszip_failure
ngx_http_sszip_failure(ngx_http_request_t *r, ngx_uint_t status)
{
    ngx_connection_t     *c;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL) {
        return SSZIP_FAILURE_STATUS;
    }

    if (u->cleanup != NULL && r->headers_out.status == status) {
        /* it passes the node's head on */
        return SSZIP_FAILURE_STATUS;
    }

    c = u->peer.connection;

    if (c != NULL && u->request_sent && u->headers_in.status_n == status) {
        /* it leaves the node's answer to an error page */
        return SSZIP_FAILURE_STATUS;
    }

    switch (status) {

    case NGX_HTTP_GATEWAY_TIME_OUT:
        return SSZIP_FAILURE_TIMEOUT;

    case NGX_HTTP_BAD_GATEWAY:

        if (c != NULL
            && u->buffer.last != u->buffer.start
            && !c->read->eof
            && !c->read->error)
        {
            return SSZIP_FAILURE_INVALID_HEADER;
        }

        return SSZIP_FAILURE_ERROR;

    default:
        return SSZIP_FAILURE_STATUS;
    }
}
