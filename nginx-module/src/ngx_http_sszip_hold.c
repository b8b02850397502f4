
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/* a head that is held, until it is known what becomes of it */


/* what is taken of a body before it is another connection's turn, in bytes */
#define NGX_HTTP_SSZIP_TURN  (1024 * 1024)


static ngx_int_t ngx_http_sszip_end_early(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static void ngx_http_sszip_take_turns(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_release(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest);
static ngx_int_t ngx_http_sszip_send(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest);
static ngx_int_t ngx_http_sszip_start_stream(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest);
static ngx_uint_t ngx_http_sszip_waits_for_input(ngx_http_sszip_ctx_t *ctx);
static void ngx_http_sszip_timeout(ngx_event_t *ev);
static ngx_uint_t ngx_http_sszip_upstream_failed(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);


ngx_int_t
ngx_http_sszip_collect(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    sszip_str     piece;
    sszip_step    step;
    ngx_chain_t  *cl, *mark;

    for (cl = in; cl; cl = cl->next) {

        b = cl->buf;
        piece = ngx_http_sszip_piece(b);

        if (piece.len) {

            if (sszip_exchange_piece(ctx->exchange, piece, &step)
                != SSZIP_STATUS_OK)
            {
                return NGX_ERROR;
            }

            if (step.act != SSZIP_DO_AWAIT) {
                ctx->step = step;
                return ngx_http_sszip_go(r, ctx, cl);
            }

            ngx_http_sszip_take_buf(b);

            ctx->turn += piece.len;
        }

        if (b->last_buf) {
            return (sszip_exchange_end(ctx->exchange, &ctx->step)
                    == SSZIP_STATUS_OK) ? ngx_http_sszip_go(r, ctx, NULL)
                                        : NGX_ERROR;
        }

        if (b->flush) {

            if (ngx_http_sszip_upstream_failed(r, ctx)) {
                return ngx_http_sszip_end_early(r, ctx);
            }

            /* the buffer itself is empty now, and must not go on as memory */

            mark = ngx_http_sszip_mark(r, 0);
            if (mark == NULL) {
                return NGX_ERROR;
            }

            mark->next = cl->next;

            rc = ngx_http_sszip_release(r, ctx, mark);

            if (rc != NGX_DECLINED) {
                return rc;
            }
        }
    }

    ngx_http_sszip_take_turns(r, ctx);

    return NGX_OK;
}


/*
 * The node has broken its response off.  The upstream module finalizes the
 * request with what its flush returns, so that an answer can still be sent:
 * to a split batch, or one that stands in for the node's.
 */

static ngx_int_t
ngx_http_sszip_end_early(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    if (sszip_exchange_end_early(ctx->exchange, &ctx->step) != SSZIP_STATUS_OK)
    {
        return ngx_http_sszip_bad_gateway(r, ctx,
                            "the response ended before its length was reached");
    }

    /* the upstream module meant to break the connection off */
    r->keepalive = ctx->keepalive;

    return ngx_http_sszip_go(r, ctx, NULL);
}


/*
 * A held body is always taken, so that the upstream module would read on for as
 * long as the node has more, and no other connection had its turn until then.
 */

static void
ngx_http_sszip_take_turns(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_event_t  *rev;

    if (ctx->turn < NGX_HTTP_SSZIP_TURN) {
        return;
    }

    ctx->turn = 0;

    if (r->upstream == NULL || r->upstream->peer.connection == NULL) {
        return;
    }

    rev = r->upstream->peer.connection->read;

    if (!rev->ready || rev->eof || rev->error) {
        return;
    }

    /* only what is posted for the next cycle is ready again then */

    if (rev->posted) {
        ngx_delete_posted_event(rev);
    }

    rev->ready = 0;
    ngx_post_event(rev, &ngx_posted_next_events);
}


/*
 * There is nothing to send, and in the midst of a body the upstream module does
 * not look at a status: it gets one at the end.
 */

ngx_int_t
ngx_http_sszip_drop(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    for (cl = in; cl; cl = cl->next) {

        b = cl->buf;

        ngx_http_sszip_take_buf(b);

        if (b->last_buf
            || (b->flush && ngx_http_sszip_upstream_failed(r, ctx)))
        {
            return ngx_http_sszip_bad_gateway(r, ctx, ctx->step.why);
        }
    }

    return NGX_OK;
}


/*
 * Ends holding, if the core agrees, with what of the chain has not been taken;
 * NGX_DECLINED: it does not.
 */

static ngx_int_t
ngx_http_sszip_release(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *rest)
{
    sszip_step  step;

    if (sszip_exchange_release(ctx->exchange, &step) != SSZIP_STATUS_OK) {
        return NGX_ERROR;
    }

    if (step.act == SSZIP_DO_AWAIT) {
        return NGX_DECLINED;
    }

    ctx->step = step;

    return ngx_http_sszip_go(r, ctx, rest);
}


/*
 * What is to become of a held head, and of the chain that has not been taken;
 * NULL: that was all.
 */

ngx_int_t
ngx_http_sszip_go(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *rest)
{
    ngx_int_t  rc;

    rc = ngx_http_sszip_run(r, ctx);

    if (rc != NGX_OK) {
        return rc;
    }

    switch (ctx->step.act) {

    case SSZIP_DO_SEND:
        return ngx_http_sszip_send(r, ctx, NULL);

    case SSZIP_DO_SEND_THEN_PASS:
        return ngx_http_sszip_send(r, ctx, rest);

    case SSZIP_DO_STREAM:

        if (rest == NULL) {
            rest = ngx_http_sszip_mark(r, 1);

            if (rest == NULL) {
                return NGX_ERROR;
            }
        }

        return ngx_http_sszip_start_stream(r, ctx, rest);

    case SSZIP_DO_FAIL:
        return (rest != NULL)
               ? ngx_http_sszip_drop(r, ctx, rest)
               : ngx_http_sszip_bad_gateway(r, ctx, ctx->step.why);

    default:
        return NGX_ERROR;
    }
}


/*
 * The held head, then the body that the exchange has.  That is all of it,
 * unless the exchange has given up: then it is what was taken before, and the
 * rest follows.
 */

static ngx_int_t
ngx_http_sszip_send(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *rest)
{
    ngx_int_t     rc;
    ngx_chain_t  *out;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip send: \"%V\"", &r->uri);

    r->connection->buffered &= ~NGX_HTTP_GZIP_BUFFERED;

    /* where a stored answer stands in for the node's its head is there */

    rc = ctx->stored ? ngx_http_sszip_code_stored_head(r, ctx)
                     : ngx_http_sszip_edit_head_out(r, ctx);

    if (rc != NGX_OK || ngx_http_sszip_body(r, ctx, rest, &out) != NGX_OK) {
        return rest ? NGX_ERROR
                    : ngx_http_sszip_bad_gateway(r, ctx,
                                                 "no memory for the answer");
    }

    ctx->step.act = SSZIP_DO_PASS;

    rc = ngx_http_sszip_send_head(r, ctx);

    if (rc != NGX_ERROR && rc <= NGX_OK && !r->header_only) {
        rc = ngx_http_sszip_send_body(r, ctx, out);
    }

    /* the node has answered, whatever the client has made of it */

    if (rest == NULL) {
        ngx_http_sszip_store(r, ctx);
    }

    return rc;
}


/* the held head, then the body through the encoder, which has what was held */

static ngx_int_t
ngx_http_sszip_start_stream(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *rest)
{
    ngx_int_t  rc;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip start stream: \"%V\"", &r->uri);

    r->connection->buffered &= ~NGX_HTTP_GZIP_BUFFERED;

    if (ngx_http_sszip_edit_head_out(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_sszip_pass_head(r, ctx);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        ctx->step.act = SSZIP_DO_PASS;
        return rc;
    }

    return ngx_http_sszip_stream_body(r, ctx, rest);
}


ngx_int_t
ngx_http_sszip_stream_body(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t     rc;
    ngx_uint_t    failed;
    ngx_chain_t  *cl;

    failed = 0;

    for (cl = in; cl; cl = cl->next) {
        if (cl->buf->flush && !cl->buf->last_buf
            && ngx_http_sszip_upstream_failed(r, ctx))
        {
            failed = 1;
        }
    }

    rc = ngx_http_sszip_stream(r, ctx, in);

    ngx_http_sszip_wake();

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (ctx->step.act == SSZIP_DO_PASS) {
        ngx_http_sszip_store(r, ctx);
        return rc;
    }

    if (failed) {
        /* what there was is out, the end is not: the client will see that */
        (void) sszip_exchange_cut_short(ctx->exchange);

        r->connection->buffered &= ~NGX_HTTP_GZIP_BUFFERED;
        ctx->step.act = SSZIP_DO_FAIL;

        return rc;
    }

    if (ngx_http_sszip_waits_for_input(ctx)) {
        ngx_http_sszip_set_timer(r, ctx);
    }

    return rc;
}


/*
 * The encoder has no more to take.  If it has, it waits for the client, and a
 * flush would only wait behind what is there.
 */

static ngx_uint_t
ngx_http_sszip_waits_for_input(ngx_http_sszip_ctx_t *ctx)
{
    return ctx->step.act == SSZIP_DO_STREAM && ctx->in == NULL && !ctx->pending;
}


/*
 * Nothing may wait in the module for longer than the core allows: neither a
 * held head, nor what the encoder keeps when the node pauses.
 */

void
ngx_http_sszip_set_timer(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    int64_t       ms;
    ngx_event_t  *ev;

    ms = sszip_exchange_next_timer(ctx->exchange);

    if (ms < 0) {
        return;
    }

    ev = ctx->timer;

    if (ev == NULL) {
        ev = ngx_pcalloc(r->pool, sizeof(ngx_event_t));
        if (ev == NULL) {
            return;
        }

        ev->handler = ngx_http_sszip_timeout;
        ev->data = r;
        ev->log = r->connection->log;

        ctx->timer = ev;
    }

    if (!ev->timer_set) {
        ngx_add_timer(ev, (ngx_msec_t) ms);
    }
}


static void
ngx_http_sszip_timeout(ngx_event_t *ev)
{
    ngx_int_t              rc;
    ngx_connection_t      *c;
    ngx_http_request_t    *r;
    ngx_http_sszip_ctx_t  *ctx;

    r = ev->data;
    c = r->connection;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL || ctx->timer != ev || c->error) {
        return;
    }

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "http sszip timer: \"%V\"", &r->uri);

    /* a stream has taken the last one before it waits for the next */

    if (ctx->mark == NULL) {
        ctx->mark = ngx_http_sszip_mark(r, 0);
    }

    if (ctx->mark == NULL) {
        rc = NGX_ERROR;

    } else if (ctx->step.act == SSZIP_DO_HOLD) {
        rc = ngx_http_sszip_release(r, ctx, ctx->mark);

    } else if (ngx_http_sszip_waits_for_input(ctx)
               && sszip_exchange_next_timer(ctx->exchange) >= 0)
    {
        rc = ngx_http_sszip_stream_body(r, ctx, ctx->mark);

    } else {
        rc = NGX_OK;
    }

    if (rc == NGX_ERROR) {
        /*
         * The upstream module holds the request, so it must be the one to
         * end it: it learns of a closed connection by itself, and of other
         * errors with the next thing that it sends.
         */

        c->error = 1;
    }

    ngx_http_run_posted_requests(c);
}


/*
 * A flush after the upstream has failed is the one by which it says so, unless
 * it is a subrequest that speaks: what the node's answer came to is queued
 * behind it.
 */

static ngx_uint_t
ngx_http_sszip_upstream_failed(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx)
{
    return ctx->upstream_failed && r->connection->data == r;
}


/*
 * Nothing was sent yet, so the client can be told.  What a body filter
 * returns for the last buffer, or for the flush of a failed upstream, is what
 * the request is finalized with: the status makes it an ordinary error, with
 * error_page and all.
 */

ngx_int_t
ngx_http_sszip_bad_gateway(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    const char *why)
{
    ngx_int_t  rc;

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "sszip: %s", why);

    (void) sszip_exchange_cut_short(ctx->exchange);

    r->connection->buffered &= ~NGX_HTTP_GZIP_BUFFERED;
    ctx->step.act = SSZIP_DO_PASS;

    r->keepalive = ctx->keepalive;

    if (ctx->own) {

        /* whoever made it does not look at what becomes of it */

        rc = ngx_http_filter_finalize_request(r, &ngx_http_sszip_module,
                                              NGX_HTTP_BAD_GATEWAY);

        return (rc == NGX_OK) ? NGX_ERROR : rc;
    }

    ngx_http_clean_header(r);

    /* what other filters have in mind is of the answer that there was */

    ngx_memzero(r->ctx, sizeof(void *) * ngx_http_max_module);
    ngx_http_set_ctx(r, ctx, ngx_http_sszip_module);

    r->filter_need_in_memory = 0;

    return NGX_HTTP_BAD_GATEWAY;
}
