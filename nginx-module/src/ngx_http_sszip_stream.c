
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * Streaming compression of a body.  Output goes into a few buffers; if a slow
 * client occupies them all, input is not consumed, and so the upstream is
 * slowed.  The loop follows the gzip filter's.
 */


static ngx_int_t ngx_http_sszip_stream_step(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_uint_t ngx_http_sszip_next_piece(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_get_buf(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_put_buf(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, sszip_flush flushed);


/* passes a chain through the encoder, as the gzip module does */

ngx_int_t
ngx_http_sszip_stream(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t   rc;
    ngx_uint_t  flush;

    if (in) {
        if (ngx_chain_add_copy(r->pool, &ctx->in, in) != NGX_OK) {
            goto failed;
        }

        r->connection->buffered |= NGX_HTTP_GZIP_BUFFERED;
    }

    /* buffers that the client has received can be reused */

    flush = (ctx->busy != NULL);

    for ( ;; ) {

        do {
            rc = ngx_http_sszip_stream_step(r, ctx);
        } while (rc == NGX_OK);

        if (rc == NGX_ERROR) {
            goto failed;
        }

        if (ctx->out == NULL && !flush) {

            if (ctx->in || ctx->pending) {
                /* a flush in between has cleared the flag */
                r->connection->buffered |= NGX_HTTP_GZIP_BUFFERED;
            }

            return ctx->busy ? NGX_AGAIN : NGX_OK;
        }

        rc = ngx_http_sszip_pass_body(r, ctx, ctx->out);

        if (rc == NGX_ERROR) {
            goto failed;
        }

        ngx_chain_update_chains(r->pool, &ctx->free, &ctx->busy, &ctx->out,
                                (ngx_buf_tag_t) &ngx_http_sszip_module);
        ctx->last_out = &ctx->out;

        flush = 0;

        if (ctx->step.action == SSZIP_ACTION_PASS) {
            return rc;
        }
    }

failed:

    ctx->step.action = SSZIP_ACTION_FAIL;
    r->connection->buffered &= ~NGX_HTTP_GZIP_BUFFERED;

    return NGX_ERROR;
}


/*
 * Encodes one piece; returns NGX_DECLINED if there is no input, or no buffer
 * for output.
 */

static ngx_int_t
ngx_http_sszip_stream_step(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_int_t        rc;
    ngx_buf_t       *b;
    sszip_str        piece;
    sszip_progress   progress;

    if (ctx->step.action == SSZIP_ACTION_PASS) {
        return NGX_DECLINED;
    }

    if (!ctx->pending && !ngx_http_sszip_next_piece(r, ctx)) {
        return NGX_DECLINED;
    }

    if (ctx->out_buf == NULL) {
        rc = ngx_http_sszip_get_buf(r, ctx);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    b = ctx->in_buf;

    ngx_memzero(&piece, sizeof(sszip_str));

    if (b != NULL) {
        piece = ngx_http_sszip_piece(b);
    }

    if (sszip_exchange_stream(ctx->exchange, piece, ctx->flush,
                              ctx->out_buf->last,
                              ctx->out_buf->end - ctx->out_buf->last,
                              &progress)
        != SSZIP_STATUS_OK)
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sszip: compression of a stream failed, or the response "
                      "ended before its length was reached");
        return NGX_ERROR;
    }

    ngx_log_debug5(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip stream in:%uz taken:%uz out:%uz flush:%d "
                   "complete:%d", piece.len, progress.consumed,
                   progress.written, (int) ctx->flush,
                   (int) progress.complete);

    if (b != NULL) {
        b->pos += progress.consumed;

        if (b->pos == b->last) {

            ngx_http_sszip_take_buf(b);

            /*
             * The owner of the buffer may refill it at once, while the
             * encoder still has output of it: it must not be read from here
             * on.
             */

            ctx->in_buf = NULL;
        }
    }

    ctx->out_buf->last += progress.written;

    if (!progress.complete) {
        return ngx_http_sszip_put_buf(r, ctx, SSZIP_FLUSH_NONE);
    }

    ctx->pending = 0;

    if (ctx->flush == SSZIP_FLUSH_NONE
        && ctx->out_buf->last != ctx->out_buf->end)
    {
        return NGX_OK;
    }

    return ngx_http_sszip_put_buf(r, ctx, ctx->flush);
}


/* finds the next buffer of the input with bytes or a flush */

static ngx_uint_t
ngx_http_sszip_next_piece(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    while (ctx->in) {
        cl = ctx->in;
        b = cl->buf;

        ctx->in = cl->next;
        ngx_free_chain(r->pool, cl);

        if (b->last_buf || b->flush || ngx_buf_size(b) != 0) {

            /* a buffer with both flags is the last one */

            ctx->flush = b->last_buf ? SSZIP_FLUSH_FINISH
                         : b->flush ? SSZIP_FLUSH_SYNC : SSZIP_FLUSH_NONE;

            ctx->in_buf = (ngx_buf_in_memory(b) && b->pos != b->last) ? b
                                                                      : NULL;
            ctx->pending = 1;

            return 1;
        }
    }

    return 0;
}


/*
 * Takes a free output buffer or allocates one; NGX_DECLINED: all are in use.
 */

static ngx_int_t
ngx_http_sszip_get_buf(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_chain_t                *cl;
    ngx_http_sszip_loc_conf_t  *slcf;

    if (ctx->free) {
        cl = ctx->free;
        ctx->out_buf = cl->buf;
        ctx->free = cl->next;
        ngx_free_chain(r->pool, cl);

        ctx->out_buf->flush = 0;
        ctx->out_buf->temporary = 1;

        return NGX_OK;
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (ctx->bufs >= slcf->bufs.num) {
        return NGX_DECLINED;
    }

    ctx->out_buf = ngx_create_temp_buf(r->pool, slcf->bufs.size);
    if (ctx->out_buf == NULL) {
        return NGX_ERROR;
    }

    ctx->out_buf->tag = (ngx_buf_tag_t) &ngx_http_sszip_module;
    ctx->out_buf->recycled = 1;
    ctx->bufs++;

    return NGX_OK;
}


/* appends the present output buffer to the output chain */

static ngx_int_t
ngx_http_sszip_put_buf(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    sszip_flush flushed)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    cl = ngx_alloc_chain_link(r->pool);
    if (cl == NULL) {
        return NGX_ERROR;
    }

    b = ctx->out_buf;
    ctx->out_buf = NULL;

    /* an empty buffer must not look like memory */
    b->temporary = (b->last != b->pos);

    if (flushed == SSZIP_FLUSH_SYNC) {
        b->flush = 1;
        r->connection->buffered &= ~NGX_HTTP_GZIP_BUFFERED;
    }

    if (flushed == SSZIP_FLUSH_FINISH) {
        b->last_buf = 1;
        b->last_in_chain = 1;

        ctx->step.action = SSZIP_ACTION_PASS;
        r->connection->buffered &= ~NGX_HTTP_GZIP_BUFFERED;
    }

    cl->buf = b;
    cl->next = NULL;
    *ctx->last_out = cl;
    ctx->last_out = &cl->next;

    return NGX_OK;
}
