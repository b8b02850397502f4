
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * buffering: the head is withheld until the core decides about the response
 */


/* bytes of a body that are read before other connections are served */
#define NGX_HTTP_SSZIP_TURN  (1024 * 1024)


static ngx_int_t ngx_http_sszip_end_early(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static void ngx_http_sszip_yield_read(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_end_buffering(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest);
static ngx_int_t ngx_http_sszip_send(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest);
static ngx_int_t ngx_http_sszip_start_stream(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest);
static ngx_uint_t ngx_http_sszip_encoder_needs_input(ngx_http_sszip_ctx_t *ctx);
static void ngx_http_sszip_timeout(ngx_event_t *ev);
static ngx_uint_t ngx_http_sszip_upstream_failed(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);


/*
 * Buffers the pieces of a body whose head is withheld, until the core has
 * decided on the response.
 */

ngx_int_t
ngx_http_sszip_collect(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    sszip_str     piece;
    sszip_step    step;
    ngx_chain_t  *cl, *flush_chain;

    for (cl = in; cl; cl = cl->next) {

        b = cl->buf;
        piece = ngx_http_sszip_piece(b);

        if (piece.len) {

            if (sszip_exchange_piece(ctx->exchange, piece, &step)
                != SSZIP_STATUS_OK)
            {
                return NGX_ERROR;
            }

            if (step.action != SSZIP_ACTION_AWAIT) {
                ctx->step = step;
                return ngx_http_sszip_resume_body(r, ctx, cl);
            }

            ngx_http_sszip_take_buf(b);

            ctx->turn_bytes += piece.len;
        }

        if (b->last_buf) {
            return (sszip_exchange_end(ctx->exchange, &ctx->step)
                    == SSZIP_STATUS_OK)
                   ? ngx_http_sszip_resume_body(r, ctx, NULL) : NGX_ERROR;
        }

        if (b->flush) {

            if (ngx_http_sszip_upstream_failed(r, ctx)) {
                return ngx_http_sszip_end_early(r, ctx);
            }

            /* the buffer is empty now, and must not be sent as memory */

            flush_chain = ngx_http_sszip_empty_buf(r, 0);
            if (flush_chain == NULL) {
                return NGX_ERROR;
            }

            flush_chain->next = cl->next;

            rc = ngx_http_sszip_end_buffering(r, ctx, flush_chain);

            if (rc != NGX_DECLINED) {
                return rc;
            }
        }
    }

    ngx_http_sszip_yield_read(r, ctx);

    return NGX_OK;
}


/*
 * Ends the body of a response that the upstream truncated.  The upstream
 * module finalizes the request with the result of its flush, so that a
 * response can still be sent: to a split batch, or a stale one.
 */

static ngx_int_t
ngx_http_sszip_end_early(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    if (sszip_exchange_end_truncated(ctx->exchange, &ctx->step)
        != SSZIP_STATUS_OK)
    {
        return ngx_http_sszip_bad_gateway(r, ctx,
                            "the upstream response ended before its "
                            "length was reached");
    }

    /* the upstream module intended to close the connection */
    r->keepalive = ctx->keepalive;

    return ngx_http_sszip_resume_body(r, ctx, NULL);
}


/*
 * Lets other connections be served while the upstream sends a buffered body.
 * A buffered body is always consumed, so that the upstream module would read
 * as long as the upstream sends, and no other connection would be served.
 */

static void
ngx_http_sszip_yield_read(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_event_t  *rev;

    if (ctx->turn_bytes < NGX_HTTP_SSZIP_TURN) {
        return;
    }

    ctx->turn_bytes = 0;

    if (r->upstream == NULL || r->upstream->peer.connection == NULL) {
        return;
    }

    rev = r->upstream->peer.connection->read;

    if (!rev->ready || rev->eof || rev->error) {
        return;
    }

    /* posted for the next cycle, the event is ready again then */

    if (rev->posted) {
        ngx_delete_posted_event(rev);
    }

    rev->ready = 0;
    ngx_post_event(rev, &ngx_posted_next_events);
}


/*
 * Consumes the pieces of a body that is not sent.  There is no response to
 * send, and the upstream module ignores a status in the middle of a body: it
 * receives one at the end.
 */

ngx_int_t
ngx_http_sszip_discard_chain(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
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
            return ngx_http_sszip_bad_gateway(r, ctx, ctx->step.reason);
        }
    }

    return NGX_OK;
}


/*
 * Ends the buffering window with the unconsumed rest of the chain, if the
 * core agrees; otherwise returns NGX_DECLINED.
 */

static ngx_int_t
ngx_http_sszip_end_buffering(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *rest)
{
    sszip_step  step;

    if (sszip_exchange_end_buffering(ctx->exchange, &step) != SSZIP_STATUS_OK) {
        return NGX_ERROR;
    }

    if (step.action == SSZIP_ACTION_AWAIT) {
        return NGX_DECLINED;
    }

    ctx->step = step;

    return ngx_http_sszip_resume_body(r, ctx, rest);
}


/*
 * Performs the core's action for a withheld head and the unconsumed rest of
 * the chain; NULL: there is no rest.
 */

ngx_int_t
ngx_http_sszip_resume_body(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *rest)
{
    ngx_int_t  rc;

    rc = ngx_http_sszip_run(r, ctx);

    if (rc != NGX_OK) {
        return rc;
    }

    switch (ctx->step.action) {

    case SSZIP_ACTION_SEND:
        return ngx_http_sszip_send(r, ctx, NULL);

    case SSZIP_ACTION_SEND_THEN_PASS:
        return ngx_http_sszip_send(r, ctx, rest);

    case SSZIP_ACTION_STREAM:

        if (rest == NULL) {
            rest = ngx_http_sszip_empty_buf(r, 1);

            if (rest == NULL) {
                return NGX_ERROR;
            }
        }

        return ngx_http_sszip_start_stream(r, ctx, rest);

    case SSZIP_ACTION_FAIL:
        return (rest != NULL)
               ? ngx_http_sszip_discard_chain(r, ctx, rest)
               : ngx_http_sszip_bad_gateway(r, ctx, ctx->step.reason);

    default:
        return NGX_ERROR;
    }
}


/*
 * Sends the withheld head and the body of the exchange.  That is the whole
 * body, unless the exchange stopped buffering: then it is the consumed part,
 * and the rest follows.
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

    /* a stored response that replaces the upstream's has its head already */

    rc = ctx->stored ? ngx_http_sszip_filtered_hit_head(r, ctx)
                     : ngx_http_sszip_edit_head_out(r, ctx);

    if (rc != NGX_OK || ngx_http_sszip_body(r, ctx, rest, &out) != NGX_OK) {
        return rest ? NGX_ERROR
                    : ngx_http_sszip_bad_gateway(r, ctx,
                                                 "not enough memory for the "
                                                 "response");
    }

    ctx->step.action = SSZIP_ACTION_PASS;

    rc = ngx_http_sszip_send_head(r, ctx);

    if (rc != NGX_ERROR && rc <= NGX_OK && !r->header_only) {
        rc = ngx_http_sszip_send_body(r, ctx, out);
    }

    /*
     * the upstream response is complete, whether or not the client received
     * it
     */

    if (rest == NULL) {
        ngx_http_sszip_store(r, ctx);
    }

    return rc;
}


/* sends the withheld head, then the body through the encoder */

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
        ctx->step.action = SSZIP_ACTION_PASS;
        return rc;
    }

    return ngx_http_sszip_stream_body(r, ctx, rest);
}


/*
 * Passes the pieces of a body to the encoder of a streaming response, and
 * sends the output.
 */

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

    if (ctx->step.action == SSZIP_ACTION_PASS) {
        ngx_http_sszip_store(r, ctx);
        return rc;
    }

    if (failed) {
        /*
         * the end of the body is missing: the client detects the truncation
         */
        (void) sszip_exchange_abort(ctx->exchange);

        r->connection->buffered &= ~NGX_HTTP_GZIP_BUFFERED;
        ctx->step.action = SSZIP_ACTION_FAIL;

        return rc;
    }

    if (ngx_http_sszip_encoder_needs_input(ctx)) {
        ngx_http_sszip_set_timer(r, ctx);
    }

    return rc;
}


/*
 * Whether the encoder waits for input.  If it has input, it waits for the
 * client, and a flush would only wait behind the output.
 */

static ngx_uint_t
ngx_http_sszip_encoder_needs_input(ngx_http_sszip_ctx_t *ctx)
{
    return ctx->step.action == SSZIP_ACTION_STREAM
           && ctx->in == NULL
           && !ctx->pending;
}


/*
 * Sets the timer after which bytes must not be retained any longer: neither a
 * withheld head, nor the encoder's output when the upstream pauses.
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


/* sends the withheld head, or the encoder's output, when the timer expires */

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

    /* a stream has consumed the last one before it waits for the next */

    if (ctx->flush_chain == NULL) {
        ctx->flush_chain = ngx_http_sszip_empty_buf(r, 0);
    }

    if (ctx->flush_chain == NULL) {
        rc = NGX_ERROR;

    } else if (ctx->step.action == SSZIP_ACTION_BUFFER) {
        rc = ngx_http_sszip_end_buffering(r, ctx, ctx->flush_chain);

    } else if (ngx_http_sszip_encoder_needs_input(ctx)
               && sszip_exchange_next_timer(ctx->exchange) >= 0)
    {
        rc = ngx_http_sszip_stream_body(r, ctx, ctx->flush_chain);

    } else {
        rc = NGX_OK;
    }

    if (rc == NGX_ERROR) {
        /*
         * The upstream module owns the request and must finalize it: it
         * detects a closed connection by itself, and other errors with the
         * next bytes that it sends.
         */

        c->error = 1;
    }

    ngx_http_run_posted_requests(c);
}


/*
 * Whether a flush is the upstream module's after a failure.  If another
 * subrequest is sending, it is not: the result of the upstream response is
 * queued behind it.
 */

static ngx_uint_t
ngx_http_sszip_upstream_failed(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx)
{
    return ctx->upstream_failed && r->connection->data == r;
}


/*
 * Responds with an error, since no byte was sent yet.  The request is
 * finalized with the result of the body filter for the last buffer, or for
 * the flush of a failed upstream: a status makes it an ordinary error,
 * including error_page.
 */

ngx_int_t
ngx_http_sszip_bad_gateway(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    const char *reason)
{
    ngx_int_t  rc;

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "sszip: %s", reason);

    (void) sszip_exchange_abort(ctx->exchange);

    r->connection->buffered &= ~NGX_HTTP_GZIP_BUFFERED;
    ctx->step.action = SSZIP_ACTION_PASS;

    r->keepalive = ctx->keepalive;

    if (ctx->local) {

        /* the caller ignores the result */

        rc = ngx_http_filter_finalize_request(r, &ngx_http_sszip_module,
                                              NGX_HTTP_BAD_GATEWAY);

        return (rc == NGX_OK) ? NGX_ERROR : rc;
    }

    ngx_http_clean_header(r);

    /* contexts of other filters belong to the discarded response */

    ngx_memzero(r->ctx, sizeof(void *) * ngx_http_max_module);
    ngx_http_set_ctx(r, ctx, ngx_http_sszip_module);

    r->filter_need_in_memory = 0;

    return NGX_HTTP_BAD_GATEWAY;
}
