
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/* nginx declares it in no header */

extern ngx_module_t  ngx_http_copy_filter_module;


static void ngx_http_sszip_abandon_file_bufs(ngx_http_request_t *r);


/*
 * Wraps a piece of an exchange's body in a chain link.  The bytes live as
 * long as the exchange: until the request's pool is destroyed.
 */

ngx_chain_t *
ngx_http_sszip_chain(ngx_http_request_t *r, sszip_str piece)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(r->pool);
    cl = ngx_alloc_chain_link(r->pool);

    if (b == NULL || cl == NULL) {
        return NULL;
    }

    if (piece.len) {
        b->start = (u_char *) piece.data;
        b->pos = b->start;
        b->last = b->start + piece.len;
        b->end = b->last;
        b->memory = 1;
    }

    cl->buf = b;
    cl->next = NULL;

    return cl;
}


/* creates a chain of one empty buffer with the flag "flush" or "last_buf" */

ngx_chain_t *
ngx_http_sszip_empty_buf(ngx_http_request_t *r, ngx_uint_t last)
{
    sszip_str     none;
    ngx_chain_t  *cl;

    ngx_memzero(&none, sizeof(sszip_str));

    cl = ngx_http_sszip_chain(r, none);

    if (cl != NULL) {
        cl->buf->last_buf = last;
        cl->buf->flush = !last;
    }

    return cl;
}


/*
 * Returns the body of an exchange as a chain, followed by the rest of a body.
 */

ngx_int_t
ngx_http_sszip_body(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *rest, ngx_chain_t **out)
{
    size_t            i, n;
    ngx_chain_t      *cl, **ll;
    const sszip_str  *pieces;

    if (sszip_exchange_body(ctx->exchange, &pieces, &n) != SSZIP_STATUS_OK) {
        return NGX_ERROR;
    }

    if (n == 0 && rest == NULL) {
        *out = ngx_http_sszip_empty_buf(r, 1);
        return (*out != NULL) ? NGX_OK : NGX_ERROR;
    }

    ll = out;

    for (i = 0; i < n; i++) {

        cl = ngx_http_sszip_chain(r, pieces[i]);
        if (cl == NULL) {
            return NGX_ERROR;
        }

        if (i == n - 1 && rest == NULL) {
            cl->buf->last_buf = 1;
            cl->buf->last_in_chain = 1;
        }

        *ll = cl;
        ll = &cl->next;
    }

    *ll = rest;

    return NGX_OK;
}


/*
 * Passes the pieces of a chain to the exchange; returns whether the last
 * buffer is among them.
 */

ngx_uint_t
ngx_http_sszip_feed_pieces(ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in)
{
    sszip_str     piece;
    sszip_step    step;
    ngx_uint_t    last;
    ngx_chain_t  *cl;

    last = 0;

    for (cl = in; cl; cl = cl->next) {

        piece = ngx_http_sszip_piece(cl->buf);

        if (piece.len) {
            (void) sszip_exchange_piece(ctx->exchange, piece, &step);
        }

        last |= cl->buf->last_buf;
    }

    return last;
}


/* marks all buffers of a chain as consumed */

void
ngx_http_sszip_drop_body(ngx_chain_t *in)
{
    ngx_chain_t  *cl;

    for (cl = in; cl; cl = cl->next) {
        ngx_http_sszip_take_buf(cl->buf);
    }
}


/*
 * Sends a body unchanged, and consumes it for the cache if the client is
 * gone.  A client that disconnects must not affect coalesced requests: a
 * response that is cached is fetched to its end, as far as the upstream
 * module can continue without a connection to write to.
 */

ngx_int_t
ngx_http_sszip_pass_body(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t             rc;
    ngx_chain_t          *cl;
    ngx_connection_t     *null_connection;
    ngx_http_upstream_t  *u;

    if (!ctx->client_gone) {

        rc = ngx_http_sszip_send_body(r, ctx, in);

        u = r->upstream;

        if (rc != NGX_ERROR
            || !r->connection->error
            || u == NULL
            || !sszip_exchange_is_filling(ctx->exchange))
        {
            return rc;
        }

        /* without a cleanup handler the upstream response is complete */

        if (u->cleanup != NULL) {

            if (u->pipe == NULL || !u->buffering) {
                return NGX_ERROR;
            }

            null_connection = ngx_http_sszip_null_connection(r);
            if (null_connection == NULL) {
                return NGX_ERROR;
            }

            u->pipe->downstream = null_connection;

            /*
             * Buffers that are being sent may still be read: they stay where
             * they are, and the other buffers are used without them.
             */

            u->pipe->busy = NULL;
            ngx_http_sszip_abandon_file_bufs(r);
        }

        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "http sszip client has gone: \"%V\"", &r->uri);

        ctx->client_gone = 1;

        for (cl = ctx->busy; cl; cl = cl->next) {
            cl->buf->pos = cl->buf->last;
        }
    }

    ngx_http_sszip_drop_body(in);

    return NGX_OK;
}


/*
 * Lets the copy filter, which reads a temporary file into a few buffers, use
 * new ones in place of those that are being sent.
 */

static void
ngx_http_sszip_abandon_file_bufs(ngx_http_request_t *r)
{
    ngx_chain_t             *cl;
    ngx_output_chain_ctx_t  *copy;

    copy = ngx_http_get_module_ctx(r, ngx_http_copy_filter_module);

    if (copy == NULL) {
        return;
    }

    for (cl = copy->busy; cl; cl = cl->next) {
        if (cl->buf->tag == copy->tag) {
            copy->allocated--;
        }
    }

    copy->busy = NULL;
}


/* creates a connection without a client or socket that is always writable */

ngx_connection_t *
ngx_http_sszip_null_connection(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = ngx_pcalloc(r->pool, sizeof(ngx_connection_t));
    if (c == NULL) {
        return NULL;
    }

    c->write = ngx_pcalloc(r->pool, sizeof(ngx_event_t));
    if (c->write == NULL) {
        return NULL;
    }

    c->fd = (ngx_socket_t) -1;
    c->data = r;
    c->log = r->connection->log;
    c->pool = r->pool;

    c->write->data = c;
    c->write->log = c->log;
    c->write->write = 1;
    c->write->ready = 1;

    return c;
}
