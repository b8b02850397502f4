
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * Background updates: a new response, or a part of the response that the main
 * request waits for, is fetched in a background subrequest, as proxy_cache
 * does, which is processed like the main request from the content phase on.
 * The response is for the cache only.
 */


static ngx_int_t ngx_http_sszip_send_update(ngx_http_request_t *r,
    sszip_exchange *exchange);
static ngx_int_t ngx_http_sszip_update_done(ngx_http_request_t *r, void *data,
    ngx_int_t rc);
static ngx_int_t ngx_http_sszip_update_detach(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_update_input_filter_init(void *data);


/*
 * Starts the background updates that the core requests after a lookup.
 * Called before the response is sent, since the request may be gone after
 * that.  The main request may end before its subrequests, and nginx keeps it
 * until they have ended.  If a subrequest cannot be created, its exchange is
 * freed: requests that wait for its response are woken.
 */

void
ngx_http_sszip_update(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    sszip_exchange  *exchange;

    ctx->updating = 0;

    for ( ;; ) {
        exchange = sszip_exchange_take_background_update(ctx->exchange);

        if (exchange == NULL) {
            return;
        }

        if (ngx_http_sszip_send_update(r, exchange) == NGX_OK) {
            ctx->updating = 1;
        }
    }
}


/* sends a background update as a background subrequest */

static ngx_int_t
ngx_http_sszip_send_update(ngx_http_request_t *r, sszip_exchange *exchange)
{
    ngx_http_sszip_ctx_t  *update;

    update = ngx_http_sszip_create_ctx(r, exchange);
    if (update == NULL) {
        return NGX_ERROR;
    }

    if (sszip_exchange_request_body(exchange).len != 0
        && ngx_http_sszip_rewrite_body(r, update) != NGX_DECLINED)
    {
        ngx_http_sszip_free_exchange(update);
        return NGX_ERROR;
    }

    if (ngx_http_sszip_background(r, update, &r->uri, &r->args) == NULL) {
        return NGX_ERROR;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip update: \"%V?%V\"", &r->uri, &r->args);

    /* the subrequest sends the main request's body */
    r->preserve_body = 1;

    return NGX_OK;
}


/*
 * Creates a subrequest without output whose exchange is the context's.  NULL:
 * no subrequest was created, and the context is detached.
 */

ngx_http_request_t *
ngx_http_sszip_background(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_str_t *uri, ngx_str_t *args)
{
    ngx_uint_t                   count;
    ngx_http_request_t          *sr;
    ngx_http_post_subrequest_t  *ps;

    count = r->main->count;

    ps = ngx_palloc(r->pool, sizeof(ngx_http_post_subrequest_t));

    if (ps != NULL) {
        ps->handler = ngx_http_sszip_update_done;
        ps->data = ctx;
    }

    if (ps == NULL
        || ngx_http_subrequest(r, uri, args, &sr, ps,
                               NGX_HTTP_SUBREQUEST_CLONE
                               |NGX_HTTP_SUBREQUEST_BACKGROUND)
           != NGX_OK)
    {
        /* nginx may have counted a subrequest that it had no memory to post */
        r->main->count = count;

        ngx_http_sszip_free_exchange(ctx);
        return NULL;
    }

    ctx->request = sr;
    ctx->lookup_over = 1;

    sr->filter_need_in_memory = 1;

    ngx_http_set_ctx(sr, ctx, ngx_http_sszip_module);

    return sr;
}


/*
 * Stores the response of a background update when its subrequest ends.
 * Called with each attempt to finalize the subrequest.  A status only starts
 * an error page, and some errors would abort the client's response.  An
 * upstream that fails after the head ends its subrequest like one that
 * succeeds.
 */

static ngx_int_t
ngx_http_sszip_update_done(ngx_http_request_t *r, void *data, ngx_int_t rc)
{
    ngx_uint_t             aborted;
    ngx_http_sszip_ctx_t  *ctx = data;

    aborted = (rc == NGX_ERROR
               || rc == NGX_HTTP_REQUEST_TIME_OUT
               || rc == NGX_HTTP_CLIENT_CLOSED_REQUEST
               || rc == NGX_HTTP_CLOSE);

    if (!aborted && (rc > NGX_OK || r->buffered)) {
        return rc;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip update done: %i, failed:%d",
                   rc, ctx->upstream_failed);

    if (ctx->step.action == SSZIP_ACTION_OBSERVE
        && !aborted
        && !ctx->upstream_failed)
    {
        ctx->step.action = SSZIP_ACTION_PASS;
        ngx_http_sszip_store(r, ctx);

        return rc;
    }

    /* followers are resumed before the client has its response */

    ctx->step.action = SSZIP_ACTION_PASS;

    ngx_http_sszip_free_exchange(ctx);

    if (aborted && !r->connection->error && !r->aio) {
        r->buffered = 0;
        return NGX_OK;
    }

    return rc;
}


/*
 * Detaches a background update from the client's connection.  Called after
 * the core has evaluated the response head.
 */

void
ngx_http_sszip_update_start(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL) {
        return;
    }

    /* only sszip stores the response: nginx's files wait for the client */
    u->cacheable = 0;
    u->store = 0;

    if (ctx->step.action == SSZIP_ACTION_OBSERVE
        && ngx_http_sszip_update_detach(r, ctx) == NGX_OK)
    {
        u->buffering = 1;
        return;
    }

    /* the response is discarded: an error page perhaps, after a redirect */

    ctx->step.action = SSZIP_ACTION_PASS;

    u->buffering = 0;
    r->header_only = 1;
}


/*
 * Replaces the connection to which the response of a background update is
 * written.  The upstream module sends bytes as the client's connection
 * allows, and runs the timer of that connection, which belongs to the main
 * request.  It is replaced by a connection without a client that is always
 * writable, as soon as the upstream module has created its pipe, in
 * u->input_filter_init().
 */

static ngx_int_t
ngx_http_sszip_update_detach(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_connection_t     *c;
    ngx_http_upstream_t  *u;

    u = r->upstream;

#if (NGX_HTTP_CACHE)
    if (r->cached) {
        return NGX_OK;
    }
#endif

    if (u->pipe == NULL
        || u->pipe->input_ctx != r
        || u->input_filter_init == NULL)
    {
        /* modules whose responses are never buffered */
        return NGX_DECLINED;
    }

    c = ngx_http_sszip_null_connection(r);
    if (c == NULL) {
        return NGX_ERROR;
    }

    ctx->null_connection = c;
    ctx->input_filter_init = u->input_filter_init;
    u->input_filter_init = ngx_http_sszip_update_input_filter_init;

    return NGX_OK;
}


/*
 * Lets the pipe of a background update write to the connection without a
 * client.
 */

static ngx_int_t
ngx_http_sszip_update_input_filter_init(void *data)
{
    ngx_http_request_t *r = data;

    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_sszip_update_ctx(r);

    r->upstream->pipe->downstream = ctx->null_connection;

    return ctx->input_filter_init(data);
}


/* feeds the body of a background update to the core, and drops it */

void
ngx_http_sszip_update_body(ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_chain_t  *cl;

    if (ctx->step.action == SSZIP_ACTION_OBSERVE) {

        for (cl = in; cl; cl = cl->next) {

            if (cl->buf->in_file && !ngx_buf_in_memory(cl->buf)) {
                /* a filter has ignored filter_need_in_memory */
                ctx->upstream_failed = 1;
            }
        }

        (void) ngx_http_sszip_feed_pieces(ctx, in);
    }

    ngx_http_sszip_drop_body(in);

    /* the response may have become too long to be stored */
    ngx_http_sszip_wake();
}


/*
 * Returns the context of a background request.  NULL: the request is no
 * background request.
 */

ngx_http_sszip_ctx_t *
ngx_http_sszip_update_ctx(ngx_http_request_t *r)
{
    if (r->post_subrequest == NULL
        || r->post_subrequest->handler != ngx_http_sszip_update_done)
    {
        return NULL;
    }

    return r->post_subrequest->data;
}
