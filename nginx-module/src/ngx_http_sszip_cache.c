
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * Stored responses are looked up before the content phase, so that all access
 * control comes first.  The request body is read as the mirror module does.
 */


static ngx_int_t ngx_http_sszip_not_evaluated(ngx_http_request_t *r);
static ngx_uint_t ngx_http_sszip_forbids_upstream(ngx_http_request_t *r);
static void ngx_http_sszip_body_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_lookup(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_request_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, sszip_str *body, u_char **copy);
static ngx_int_t ngx_http_sszip_body_prefix(ngx_http_request_t *r,
    sszip_str *body);
static ngx_int_t ngx_http_sszip_respond(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static void ngx_http_sszip_decode_done(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_rewrite_target(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_wait(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static void ngx_http_sszip_wake_handler(ngx_event_t *ev);


/*
 * Reads and looks up a request in the precontent phase, before its location's
 * handler runs.
 */

ngx_int_t
ngx_http_sszip_cache_handler(ngx_http_request_t *r)
{
    off_t                       length;
    ngx_int_t                   rc;
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (!slcf->reads_requests || r != r->main || r->content_handler == NULL) {
        /*
         * a request that is redirected from here is looked up where it
         * arrives
         */
        return NGX_DECLINED;
    }

    ngx_http_sszip_close_window(r);

    ctx = ngx_http_sszip_get_ctx(r);

    if (ctx == NULL) {
        return ngx_http_sszip_not_evaluated(r);
    }

    if (slcf->sends_probes) {
        ngx_http_sszip_start_probe(r, ctx);
    }

    length = r->headers_in.chunked ? -1
                                   : ngx_max(r->headers_in.content_length_n, 0);

    switch (sszip_exchange_required_body(ctx->exchange, length)) {

    case SSZIP_NEED_LOOK_UP:
        return ngx_http_sszip_lookup(r, ctx);

    case SSZIP_NEED_WHOLE_BODY:
        ctx->whole_body = 1;
        break;

    case SSZIP_NEED_BODY:
        break;

    default: /* SSZIP_NEED_NOTHING */
        return NGX_DECLINED;
    }

    rc = ngx_http_read_client_request_body(r, ngx_http_sszip_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


/*
 * Handles a request that the core could not evaluate: it is forwarded, unless
 * a policy or the client itself forbids that.
 */

static ngx_int_t
ngx_http_sszip_not_evaluated(ngx_http_request_t *r)
{
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (slcf->has_policy
        || (slcf->caches && ngx_http_sszip_forbids_upstream(r)))
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return NGX_DECLINED;
}


/* whether the client forbids a request to the upstream */

static ngx_uint_t
ngx_http_sszip_forbids_upstream(ngx_http_request_t *r)
{
    ngx_uint_t        i;
    sszip_header      field;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (header[i].hash == 0) {
                continue;
            }

            field.name = ngx_http_sszip_str(&header[i].key);
            field.value = ngx_http_sszip_str(&header[i].value);

            if (sszip_header_forbids_upstream(&field)) {
                return 1;
            }
        }
    }

    return 0;
}


/* continues the phases of a request whose body has been read */

static void
ngx_http_sszip_body_handler(ngx_http_request_t *r)
{
    r->preserve_body = 1;

    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


/* passes a request with its body to the core's lookup */

static ngx_int_t
ngx_http_sszip_lookup(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    u_char                     *copy;
    ngx_int_t                   rc;
    sszip_lookup_request        lookup;
    sszip_status                status;
    ngx_http_core_loc_conf_t   *clcf;
    ngx_http_sszip_loc_conf_t  *slcf;

    /* unless the lookup returns the same action again */

    ctx->step.action = SSZIP_ACTION_AWAIT;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    ngx_memzero(&lookup, sizeof(sszip_lookup_request));

    lookup.size = sizeof(sszip_lookup_request);

    lookup.body_state = (ngx_http_sszip_request_body(r, ctx, &lookup.body,
                                                     &copy)
                         == NGX_OK)
                        ? SSZIP_BODY_WHOLE : SSZIP_BODY_UNAVAILABLE;

    rc = ngx_http_test_predicates(r, slcf->cache_bypass);

    if (rc == NGX_ERROR
        || ngx_http_sszip_value(r, slcf->cache_namespace, &lookup.name_space)
           != NGX_OK
        || ngx_http_sszip_set_lookup_route(r, &lookup) != NGX_OK)
    {
        return NGX_ERROR;
    }

    lookup.bypass = (rc == NGX_DECLINED
                     || (ngx_http_sszip_bypass(r)
                         & NGX_HTTP_SSZIP_BYPASS_LOOK_UP));

    lookup.now = ngx_http_sszip_now();
    lookup.coding_allowed = ngx_http_sszip_encoding_allowed(r);
    lookup.no_split = slcf->sets_length;
    lookup.has_other_filters = 1;
#if (NGX_HTTP_GZIP)
    lookup.host_writes_vary = clcf->gzip_vary;
#endif
    lookup.forwards_codings = slcf->sets_codings;
    lookup.route_unnamed = !slcf->caches;
    lookup.waiter = (uintptr_t) ctx;

    status = sszip_exchange_lookup(ctx->exchange, &lookup, &ctx->step);

    if (copy != NULL) {
        (void) ngx_pfree(r->pool, copy);
    }

    if (status != SSZIP_STATUS_OK) {
        return ngx_http_sszip_not_evaluated(r);
    }

    ngx_http_sszip_update(r, ctx);

    return ngx_http_sszip_lookup_done(r, ctx);
}


/*
 * Evaluates a complex value; an empty value has data, an absent one has none.
 */

ngx_int_t
ngx_http_sszip_value(ngx_http_request_t *r, ngx_http_complex_value_t *cv,
    sszip_str *str)
{
    ngx_str_t  value;

    ngx_memzero(str, sizeof(sszip_str));

    if (cv == NULL) {
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, cv, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    str->data = value.len ? value.data : (u_char *) "";
    str->len = value.len;

    return NGX_OK;
}


/*
 * Performs the core's action after a lookup: forward, respond, rewrite or
 * wait.
 */

ngx_int_t
ngx_http_sszip_lookup_done(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_int_t  rc;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip look up step:%d", (int) ctx->step.action);

    rc = ngx_http_sszip_run(r, ctx);

    if (rc == NGX_AGAIN) {
        r->read_event_handler = ngx_http_test_reading;
        r->write_event_handler = ngx_http_sszip_decode_done;

        return NGX_DONE;
    }

    if (rc != NGX_OK) {
        return rc;
    }

    switch (ctx->step.action) {

    case SSZIP_ACTION_FORWARD:
        ctx->step.action = SSZIP_ACTION_AWAIT;
        ctx->lookup_over = 1;
        return NGX_DECLINED;

    case SSZIP_ACTION_FORWARD_REWRITTEN:
        ctx->step.action = SSZIP_ACTION_AWAIT;
        ctx->lookup_over = 1;
        return ngx_http_sszip_rewrite_body(r, ctx);

    case SSZIP_ACTION_RESPOND:
        return ngx_http_sszip_respond(r, ctx);

    case SSZIP_ACTION_WAIT:
        return ngx_http_sszip_wait(r, ctx);

    default:
        return NGX_ERROR;
    }
}


/*
 * Returns the body of a request as one piece, with a copy if it is in several
 * buffers or in a file.  Returns NGX_DECLINED if the body is not in memory,
 * or cannot be read from its file; its prefix may be in memory.  The caller
 * frees the copy.
 */

static ngx_int_t
ngx_http_sszip_request_body(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    sszip_str *body, u_char **copy)
{
    size_t        len;
    u_char       *p;
    ngx_chain_t  *cl;

    *copy = NULL;

    if (r->request_body == NULL || r->request_body->bufs == NULL) {
        /* no body was read, or it is empty */
        return NGX_OK;
    }

    if (r->request_body->temp_file && !ctx->whole_body) {
        return NGX_DECLINED;
    }

    cl = r->request_body->bufs;

    if (cl->next == NULL && ngx_buf_in_memory(cl->buf)) {
        *body = ngx_http_sszip_piece(cl->buf);
        return NGX_OK;
    }

    len = ngx_http_sszip_chain_size(cl);

    if (!sszip_exchange_reserve_body_copy(ctx->exchange, len)) {
        return ngx_http_sszip_body_prefix(r, body);
    }

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return ngx_http_sszip_body_prefix(r, body);
    }

    *copy = p;

    if (ngx_http_sszip_copy_chain(cl, p) != NGX_OK) {
        return NGX_DECLINED;
    }

    body->data = *copy;
    body->len = len;

    return NGX_OK;
}


/* returns the number of bytes in a chain */

size_t
ngx_http_sszip_chain_size(ngx_chain_t *cl)
{
    size_t  size;

    size = 0;

    for ( /* void */ ; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);
    }

    return size;
}


/* copies a request body from memory and files */

ngx_int_t
ngx_http_sszip_copy_chain(ngx_chain_t *cl, u_char *p)
{
    size_t      size;
    ngx_buf_t  *b;

    for ( /* void */ ; cl; cl = cl->next) {
        b = cl->buf;
        size = ngx_buf_size(b);

        if (ngx_buf_in_memory(b)) {
            ngx_memcpy(p, b->pos, size);

        } else if (b->in_file
                   && ngx_read_file(b->file, p, size, b->file_pos)
                      != (ssize_t) size)
        {
            return NGX_ERROR;
        }

        p += size;
    }

    return NGX_OK;
}


/*
 * Returns the first bytes of a body that is not in memory, always with
 * NGX_DECLINED.
 */

static ngx_int_t
ngx_http_sszip_body_prefix(ngx_http_request_t *r, sszip_str *body)
{
    u_char     *p;
    size_t      size;
    ssize_t     n;
    ngx_buf_t  *b;

    b = r->request_body->bufs->buf;

    if (ngx_buf_in_memory(b)) {
        *body = ngx_http_sszip_piece(b);
        return NGX_DECLINED;
    }

    size = ngx_min(ngx_buf_size(b), 1024);

    p = b->in_file ? ngx_pnalloc(r->pool, size) : NULL;
    if (p == NULL) {
        return NGX_DECLINED;
    }

    n = ngx_read_file(b->file, p, size, b->file_pos);

    if (n > 0) {
        body->data = p;
        body->len = n;
    }

    return NGX_DECLINED;
}


/*
 * Sends the response of the exchange, a stored one for example, in place of
 * the upstream's.
 */

static ngx_int_t
ngx_http_sszip_respond(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_int_t                  rc;
    ngx_chain_t               *out;
#if (NGX_HTTP_GZIP)
    ngx_http_core_loc_conf_t  *clcf;
#endif

    /* unread bytes of the body must not become the next request */

    r->expect_tested = 1;

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_sszip_set_stored_head(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

#if (NGX_HTTP_GZIP)

    if (sszip_exchange_varies_on_accept_encoding(ctx->exchange)) {
        clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
        r->gzip_vary = clcf->gzip_vary;
    }

#endif

    rc = ngx_http_send_header(r);

    if (rc != NGX_ERROR && rc <= NGX_OK && !r->header_only) {

        /* the exchange may have changed the form of the body meanwhile */

        rc = ngx_http_sszip_body(r, ctx, NULL, &out);

        if (rc == NGX_OK) {
            rc = ngx_http_output_filter(r, out);
        }
    }

    ngx_http_finalize_request(r, rc);

    return NGX_DONE;
}


/*
 * Continues a hit after a thread has decoded the stored response, or failed
 * to.
 */

static void
ngx_http_sszip_decode_done(ngx_http_request_t *r)
{
    ngx_int_t              rc;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (!ctx->done) {
        /* called because the client is writable, not by the thread */
        return;
    }

    ctx->done = 0;

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    rc = ngx_http_sszip_lookup_done(r, ctx);

    if (rc == NGX_DECLINED) {
        ngx_http_core_run_phases(r);

    } else if (rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
    }
}


/*
 * Sets the upstream request's body, which a window shows to the upstream
 * module.
 */

ngx_int_t
ngx_http_sszip_rewrite_body(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    sszip_str                   body;
    ngx_chain_t                *cl;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (slcf->has_policy && (slcf->pass == NULL || slcf->sets_length)) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sszip: cannot forward a part of a batch: %s",
                      slcf->pass ? "the location sets Content-Length; remove "
                                   "\"proxy_set_header Content-Length\""
                                 : "the location's content handler does not "
                                   "support it; use \"proxy_pass\"");
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    body = sszip_exchange_request_body(ctx->exchange);

    cl = ngx_http_sszip_chain(r, body);
    if (cl == NULL) {
        return NGX_ERROR;
    }

    cl->buf->last_buf = 1;

    ctx->request_bufs = cl;
    ctx->request_length = body.len;

    if (ngx_http_sszip_rewrite_target(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    return NGX_DECLINED;
}


/* sets the target of the upstream request, if the core has changed it */

static ngx_int_t
ngx_http_sszip_rewrite_target(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    size_t     len;
    u_char    *p, *src, *dst;
    ngx_str_t  target;

    target = ngx_http_sszip_ngx_str(
                                sszip_exchange_request_target(ctx->exchange));

    if (target.len == 0) {
        return NGX_OK;
    }

    p = ngx_strlchr(target.data, target.data + target.len, '?');
    len = p ? (size_t) (p - target.data) : target.len;

    dst = ngx_pnalloc(r->pool, len);
    if (dst == NULL) {
        return NGX_ERROR;
    }

    ctx->request_path.data = dst;

    src = target.data;
    ngx_unescape_uri(&dst, &src, len, 0);

    ctx->request_path.len = dst - ctx->request_path.data;
    ctx->request_target = target;

    return NGX_OK;
}


/*
 * Suspends a request until the core wakes it, or until the lookup's timeout.
 * Subrequests that fetch parts of its response for the cache end with a
 * request that is aborted: until then, a client that disconnects is not
 * detected.
 */

static ngx_int_t
ngx_http_sszip_wait(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ctx->wake.handler = ngx_http_sszip_wake_handler;
    ctx->wake.data = r;
    ctx->wake.log = r->connection->log;

    ngx_add_timer(&ctx->wake,
                  (ngx_msec_t) sszip_exchange_next_timer(ctx->exchange));

    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->read_event_handler = ctx->updating ? ngx_http_block_reading
                                          : ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    /* the lookup may need a request to the owner */

    ngx_http_sszip_wake();

    return NGX_DONE;
}


/* continues a request that was woken, or whose lookup has timed out */

static void
ngx_http_sszip_wake_handler(ngx_event_t *ev)
{
    ngx_connection_t      *c;
    ngx_http_request_t    *r;
    ngx_http_sszip_ctx_t  *ctx;

    r = ev->data;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "http sszip wake: \"%V?%V\"", &r->uri, &r->args);

    if (ev->timer_set) {
        ngx_del_timer(ev);
    }

    /* the timer may expire while the wakeup is posted */

    if (ev->posted) {
        ngx_delete_posted_event(ev);
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL
        || ev != &ctx->wake
        || ctx->step.action != SSZIP_ACTION_WAIT)
    {
        /* the request continued without a wakeup */
        return;
    }

    if (ctx->updating) {

        ngx_http_test_reading(r);

        if (c->error) {
            /* the client has disconnected: no further parts are fetched */
            ngx_http_run_posted_requests(c);
            return;
        }
    }

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);
    ngx_http_run_posted_requests(c);
}


/* stores the response of an exchange that was sent */

void
ngx_http_sszip_store(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_http_sszip_run_detached_job(r,
                                    sszip_exchange_response_sent(ctx->exchange,
                                                       ngx_http_sszip_now()));
    ngx_http_sszip_log_body_filters(r, ctx);
    ngx_http_sszip_wake();
}
