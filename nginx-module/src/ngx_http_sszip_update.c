
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * A new answer is fetched in a background subrequest, as proxy_cache does, in
 * which all goes as in the main request from the content phase on.  What it
 * fetches is for the cache alone.
 */


static ngx_int_t ngx_http_sszip_update_done(ngx_http_request_t *r, void *data,
    ngx_int_t rc);
static ngx_int_t ngx_http_sszip_update_detach(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_update_input_filter_init(void *data);


/*
 * Before the answer is sent: the request may be gone after that.  If there
 * can't be a subrequest, the next one who asks is the next to try.
 */

void
ngx_http_sszip_update(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    sszip_exchange        *exchange;
    ngx_http_sszip_ctx_t  *update;

    exchange = sszip_exchange_take_update(ctx->exchange);

    if (exchange == NULL) {
        return;
    }

    update = ngx_http_sszip_create_ctx(r, exchange);
    if (update == NULL) {
        return;
    }

    if (sszip_exchange_request_body(exchange).len != 0
        && ngx_http_sszip_rewrite_body(r, update) != NGX_DECLINED)
    {
        ngx_http_sszip_free_exchange(update);
        return;
    }

    if (ngx_http_sszip_background(r, update, &r->uri, &r->args) == NULL) {
        return;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip update: \"%V?%V\"", &r->uri, &r->args);

    /* the body that it sends is the main request's */
    r->preserve_body = 1;
}


/* NULL: there is none, and nothing more comes of the context */

ngx_http_request_t *
ngx_http_sszip_background(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_str_t *uri, ngx_str_t *args)
{
    ngx_http_request_t          *sr;
    ngx_http_post_subrequest_t  *ps;

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
        ngx_http_sszip_free_exchange(ctx);
        return NULL;
    }

    ctx->request = sr;
    ctx->looked_up = 1;

    sr->filter_need_in_memory = 1;

    ngx_http_set_ctx(sr, ctx, ngx_http_sszip_module);

    return sr;
}


/*
 * Called with each attempt to finalize the subrequest.  A status is none but
 * the start of an error page, and some errors would break off the client's
 * answer.  An upstream that has failed after the head ends its subrequest like
 * one that has not.
 */

static ngx_int_t
ngx_http_sszip_update_done(ngx_http_request_t *r, void *data, ngx_int_t rc)
{
    ngx_uint_t             breaks;
    ngx_http_sszip_ctx_t  *ctx = data;

    breaks = (rc == NGX_ERROR
              || rc == NGX_HTTP_REQUEST_TIME_OUT
              || rc == NGX_HTTP_CLIENT_CLOSED_REQUEST
              || rc == NGX_HTTP_CLOSE);

    if (!breaks && (rc > NGX_OK || r->buffered)) {
        return rc;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip update done: %i, failed:%d",
                   rc, ctx->upstream_failed);

    if (ctx->step.act == SSZIP_DO_SHOW && !breaks && !ctx->upstream_failed) {
        ctx->step.act = SSZIP_DO_PASS;
        ngx_http_sszip_store(r, ctx);

        return rc;
    }

    /* those who wait for it go on before the client has its answer */

    ctx->step.act = SSZIP_DO_PASS;

    ngx_http_sszip_free_exchange(ctx);

    if (breaks && !r->connection->error && !r->aio) {
        r->buffered = 0;
        return NGX_OK;
    }

    return rc;
}


/* its head was judged */

void
ngx_http_sszip_update_begins(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL) {
        return;
    }

    /* sszip alone keeps it: files wait for the client's connection, too */
    u->cacheable = 0;
    u->store = 0;

    if (ctx->step.act == SSZIP_DO_SHOW
        && ngx_http_sszip_update_detach(r, ctx) == NGX_OK)
    {
        u->buffering = 1;
        return;
    }

    /* nobody is to have it: an error page perhaps, after a redirect */

    ctx->step.act = SSZIP_DO_PASS;

    u->buffering = 0;
    r->header_only = 1;
}


/*
 * The upstream module passes on what it has as the client's connection allows,
 * and runs that connection's timer, which is the main request's.  In its place
 * it gets a connection to nobody, that can always be written to; and it can
 * get it as soon as it has made its pipe, in u->input_filter_init().
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
        /* modules whose answers are never buffered */
        return NGX_DECLINED;
    }

    c = ngx_http_sszip_nobody(r);
    if (c == NULL) {
        return NGX_ERROR;
    }

    ctx->nobody = c;
    ctx->input_filter_init = u->input_filter_init;
    u->input_filter_init = ngx_http_sszip_update_input_filter_init;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sszip_update_input_filter_init(void *data)
{
    ngx_http_request_t *r = data;

    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_sszip_update_ctx(r);

    r->upstream->pipe->downstream = ctx->nobody;

    return ctx->input_filter_init(data);
}


void
ngx_http_sszip_update_body(ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_chain_t  *cl;

    if (ctx->step.act == SSZIP_DO_SHOW) {

        for (cl = in; cl; cl = cl->next) {

            if (cl->buf->in_file && !ngx_buf_in_memory(cl->buf)) {
                /* in spite of filter_need_in_memory */
                ctx->upstream_failed = 1;
            }
        }

        (void) ngx_http_sszip_show(ctx, in);
    }

    ngx_http_sszip_drop_body(in);

    /* it may have become too long to be stored */
    ngx_http_sszip_wake();
}


/* NULL: it is another request */

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
