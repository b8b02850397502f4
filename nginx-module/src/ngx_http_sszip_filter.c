
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


static ngx_int_t ngx_http_sszip_header_filter(ngx_http_request_t *r);
static void ngx_http_sszip_look_at_filters(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_pass_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_sszip_tee(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
static ngx_int_t ngx_http_sszip_collect(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
static ngx_int_t ngx_http_sszip_drop(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
static ngx_int_t ngx_http_sszip_end(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_go(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest);
static ngx_int_t ngx_http_sszip_send(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest);
static ngx_int_t ngx_http_sszip_start_stream(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest);
static ngx_int_t ngx_http_sszip_stream_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
static ngx_uint_t ngx_http_sszip_waits_for_input(ngx_http_sszip_ctx_t *ctx);
static ngx_chain_t *ngx_http_sszip_mark(ngx_http_request_t *r,
    ngx_uint_t last);
static void ngx_http_sszip_set_timer(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static void ngx_http_sszip_timeout(ngx_event_t *ev);
static ngx_int_t ngx_http_sszip_release(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest);
static ngx_int_t ngx_http_sszip_bad_gateway(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, sszip_str *why);
static ngx_uint_t ngx_http_sszip_upstream_failed(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);


static sszip_str  ngx_http_sszip_short = {
    (u_char *) "the response ended before its length was reached",
    sizeof("the response ended before its length was reached") - 1
};

static sszip_str  ngx_http_sszip_nomem = {
    (u_char *) "no memory for the answer",
    sizeof("no memory for the answer") - 1
};

static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;

ngx_http_output_body_filter_pt  ngx_http_sszip_next_body_filter;


void
ngx_http_sszip_filter_init(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_sszip_header_filter;

    ngx_http_sszip_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_sszip_body_filter;
}


static ngx_int_t
ngx_http_sszip_header_filter(ngx_http_request_t *r)
{
    ngx_int_t              rc;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL) {
        return ngx_http_next_header_filter(r);
    }

    if (ctx->coder != NULL) {

        if (r->headers_out.content_encoding == ctx->coder) {
            r->headers_out.content_encoding = NULL;
        }

        ctx->coder = NULL;
    }

    if (ctx->step.act == SSZIP_DO_RESPOND) {
        ctx->step.act = SSZIP_DO_PASS;
        ngx_http_sszip_look_at_filters(r, ctx);

        if (ngx_http_sszip_code_stored_head(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }

        return ngx_http_next_header_filter(r);
    }

    if (ctx->step.act != SSZIP_DO_AWAIT) {
        return ngx_http_next_header_filter(r);
    }

    ngx_http_sszip_look_at_filters(r, ctx);

    ctx->own = (r->upstream == NULL || r->upstream->cleanup == NULL);

    rc = ngx_http_sszip_judge(r, ctx);

    /* an answer that will not be stored is not worth waiting for */
    ngx_http_sszip_wake();

    if (rc == NGX_ERROR) {
        /* some of its head is of another body */
        return NGX_ERROR;
    }

    if (ctx->step.act == SSZIP_DO_PASS) {
        return ngx_http_next_header_filter(r);
    }

    ngx_http_sszip_watch_upstream(r, ctx);

    r->main_filter_need_in_memory = 1;

    if (ctx->step.act == SSZIP_DO_SHOW) {
        return ngx_http_sszip_pass_head(r, ctx);
    }

    /* ranges are of the node's bytes, and their filter sees no held head */
    r->allow_ranges = 0;

    if (ctx->step.act == SSZIP_DO_STREAM) {
        return ngx_http_sszip_pass_head(r, ctx);
    }

    ctx->keepalive = r->keepalive;

    r->connection->buffered |= NGX_HTTP_GZIP_BUFFERED;

    ngx_http_sszip_set_timer(r, ctx);

    return NGX_OK;
}


/* what changes a body takes away its length, or asks to have it in memory */

static void
ngx_http_sszip_look_at_filters(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx)
{
    off_t                       length;
    ngx_uint_t                  codes;
    sszip_beside                beside;
    ngx_table_elt_t            *coding;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (!slcf->caches || r != r->main) {
        return;
    }

    length = r->headers_out.content_length_n;
    coding = r->headers_out.content_encoding;
    codes = coding != NULL && coding->value.len && !ctx->node_coded;

    beside = sszip_exchange_beside(ctx->exchange,
                                   r->filter_need_in_memory
                                   || length != ctx->node_length,
                                   codes, length >= 0);

    ctx->changed = (beside != SSZIP_BESIDE_NOTHING);

    if (beside == SSZIP_BESIDE_APART) {
        r->main_filter_need_in_memory = 1;
    }

    ngx_http_sszip_note_filters(r, ctx);
}


void
ngx_http_sszip_note_filters(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_http_sszip_loc_conf_t  *slcf;

    if (!sszip_exchange_is_news(ctx->exchange)) {
        return;
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                  "sszip: another module changes bodies in location \"%V\": "
                  "what is stored is sent through it, and not compressed by "
                  "sszip", &slcf->location);
}


/*
 * A client may have gone before there is a head to send: one of HTTP/2 has said
 * so.  What is to be stored comes all the same, and the first piece of it finds
 * out that nobody takes it.
 */

static ngx_int_t
ngx_http_sszip_pass_head(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_int_t             rc;
    ngx_http_upstream_t  *u;

    rc = ngx_http_next_header_filter(r);

    u = r->upstream;

    if (rc == NGX_ERROR
        && r->connection->error
        && u != NULL
        && u->cleanup != NULL
        && u->buffering
        && sszip_exchange_is_filling(ctx->exchange))
    {
        return NGX_OK;
    }

    return rc;
}


static ngx_int_t
ngx_http_sszip_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL) {
        return ngx_http_sszip_next_body_filter(r, in);
    }

    if (ctx->done) {
        ctx->done = 0;

        /* the node is done with: nobody waits for a status */
        ctx->own = 1;

        return ngx_http_sszip_go(r, ctx, NULL);
    }

    switch (ctx->step.act) {

    case SSZIP_DO_HOLD:
        return ngx_http_sszip_collect(r, ctx, in);

    case SSZIP_DO_STREAM:
        return ngx_http_sszip_stream_body(r, ctx, in);

    case SSZIP_DO_SHOW:
        return ngx_http_sszip_tee(r, ctx, in);

    case SSZIP_DO_RUN:
        return NGX_AGAIN;

    case SSZIP_DO_FAIL:

        if (!r->header_sent) {
            return ngx_http_sszip_drop(r, ctx, in);
        }

        /* what is on its way may go, but nothing follows it */

        return (in != NULL) ? NGX_ERROR
                            : ngx_http_sszip_next_body_filter(r, NULL);

    default:
        return ngx_http_sszip_next_body_filter(r, in);
    }
}


/* a copy of what passes, to be stored */

static ngx_int_t
ngx_http_sszip_tee(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    sszip_str     piece;
    sszip_step    step;
    ngx_uint_t    last;
    ngx_chain_t  *cl;

    last = 0;

    for (cl = in; cl; cl = cl->next) {

        b = cl->buf;

        if (ngx_buf_in_memory(b) && b->last != b->pos) {

            piece.data = b->pos;
            piece.len = b->last - b->pos;

            (void) sszip_exchange_piece(ctx->exchange, piece, &step);
        }

        last |= b->last_buf;
    }

    /* it may have become too long to be stored */
    ngx_http_sszip_wake();

    rc = ngx_http_sszip_pass_body(r, ctx, in);

    if (last) {
        ctx->step.act = SSZIP_DO_PASS;
        ngx_http_sszip_store(r, ctx);
    }

    return rc;
}


/*
 * A client that goes takes nothing from those who want the same: what is to be
 * stored comes to its end, as far as the upstream module can go on without a
 * connection to write to.
 */

ngx_int_t
ngx_http_sszip_pass_body(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t             rc;
    ngx_chain_t          *cl;
    ngx_connection_t     *nobody;
    ngx_http_upstream_t  *u;

    if (!ctx->orphan) {

        rc = ngx_http_sszip_next_body_filter(r, in);

        u = r->upstream;

        if (rc != NGX_ERROR
            || !r->connection->error
            || u == NULL
            || !sszip_exchange_is_filling(ctx->exchange))
        {
            return rc;
        }

        /* without a cleanup the node's answer is all there */

        if (u->cleanup != NULL) {

            if (u->pipe == NULL || !u->buffering) {
                return NGX_ERROR;
            }

            nobody = ngx_http_sszip_nobody(r);
            if (nobody == NULL) {
                return NGX_ERROR;
            }

            u->pipe->downstream = nobody;

            /*
             * What is on its way may still be read: it stays where it is, and
             * the other buffers do without.
             */

            u->pipe->busy = NULL;
        }

        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "http sszip client has gone: \"%V\"", &r->uri);

        ctx->orphan = 1;

        for (cl = ctx->busy; cl; cl = cl->next) {
            cl->buf->pos = cl->buf->last;
        }
    }

    for (cl = in; cl; cl = cl->next) {

        cl->buf->pos = cl->buf->last;

        if (cl->buf->in_file) {
            cl->buf->file_pos = cl->buf->file_last;
        }
    }

    return NGX_OK;
}


static ngx_int_t
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

        if (ngx_buf_in_memory(b) && b->last != b->pos) {

            piece.data = b->pos;
            piece.len = b->last - b->pos;

            if (sszip_exchange_piece(ctx->exchange, piece, &step)
                != SSZIP_STATUS_OK)
            {
                return NGX_ERROR;
            }

            if (step.act != SSZIP_DO_AWAIT) {
                ctx->step = step;
                return ngx_http_sszip_go(r, ctx, cl);
            }

            b->pos = b->last;

            if (b->in_file) {
                b->file_pos = b->file_last;
            }
        }

        if (b->last_buf) {
            return ngx_http_sszip_end(r, ctx);
        }

        if (b->flush) {

            if (ngx_http_sszip_upstream_failed(r, ctx)) {
                return ngx_http_sszip_bad_gateway(r, ctx,
                                                  &ngx_http_sszip_short);
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

    return NGX_OK;
}


/*
 * There is nothing to send, and in the midst of a body the upstream module does
 * not look at a status: it gets one at the end.
 */

static ngx_int_t
ngx_http_sszip_drop(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    for (cl = in; cl; cl = cl->next) {

        b = cl->buf;

        b->pos = b->last;

        if (b->in_file) {
            b->file_pos = b->file_last;
        }

        if (b->last_buf
            || (b->flush && ngx_http_sszip_upstream_failed(r, ctx)))
        {
            return ngx_http_sszip_bad_gateway(r, ctx, &ctx->step.why);
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


static ngx_int_t
ngx_http_sszip_end(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    if (sszip_exchange_end(ctx->exchange, &ctx->step) != SSZIP_STATUS_OK) {
        return NGX_ERROR;
    }

    return ngx_http_sszip_go(r, ctx, NULL);
}


/*
 * What is to become of a held head, and of the chain that has not been taken;
 * NULL: that was all.
 */

static ngx_int_t
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
               : ngx_http_sszip_bad_gateway(r, ctx, &ctx->step.why);

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
    ngx_chain_t  *out, *cl;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip send: \"%V\"", &r->uri);

    r->connection->buffered &= ~NGX_HTTP_GZIP_BUFFERED;

    /* where a stored answer stands in for the node's its head is there */

    rc = ctx->stored ? ngx_http_sszip_code_stored_head(r, ctx)
                     : ngx_http_sszip_edit_head_out(r, ctx);

    if (rc != NGX_OK || ngx_http_sszip_body(r, ctx, &out) != NGX_OK) {
        return rest ? NGX_ERROR
                    : ngx_http_sszip_bad_gateway(r, ctx, &ngx_http_sszip_nomem);
    }

    if (rest != NULL) {

        /* what was taken is not all of it */

        for (cl = out; cl->next; cl = cl->next) { /* void */ }

        cl->buf->last_buf = 0;
        cl->buf->last_in_chain = 0;
        cl->next = rest;

        if (!ngx_buf_in_memory(cl->buf)) {
            out = rest;
        }
    }

    ctx->step.act = SSZIP_DO_PASS;

    rc = ngx_http_next_header_filter(r);

    if (rc != NGX_ERROR && rc <= NGX_OK && !r->header_only) {
        rc = ngx_http_sszip_next_body_filter(r, out);
    }

    /* the node has answered, whatever the client has made of it */

    if (rest == NULL) {
        ngx_http_sszip_store(r, ctx);
    }

    return rc;
}


ngx_int_t
ngx_http_sszip_body(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t **out)
{
    size_t            i, n;
    ngx_buf_t        *b;
    ngx_chain_t      *cl, **ll;
    const sszip_str  *pieces;

    if (sszip_exchange_body(ctx->exchange, &pieces, &n) != SSZIP_STATUS_OK) {
        return NGX_ERROR;
    }

    ll = out;

    for (i = 0; i < n || ll == out; i++) {

        b = ngx_calloc_buf(r->pool);
        if (b == NULL) {
            return NGX_ERROR;
        }

        cl = ngx_alloc_chain_link(r->pool);
        if (cl == NULL) {
            return NGX_ERROR;
        }

        if (i < n) {

            /* lives as long as the exchange: until the request's pool goes */

            b->pos = (u_char *) pieces[i].data;
            b->last = (u_char *) pieces[i].data + pieces[i].len;
            b->memory = 1;
        }

        b->last_buf = (i + 1 >= n);
        b->last_in_chain = (i + 1 >= n);

        cl->buf = b;
        *ll = cl;
        ll = &cl->next;
    }

    *ll = NULL;

    return NGX_OK;
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


static ngx_int_t
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


/* a buffer that says nothing but "flush" or "last" */

static ngx_chain_t *
ngx_http_sszip_mark(ngx_http_request_t *r, ngx_uint_t last)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NULL;
    }

    cl = ngx_alloc_chain_link(r->pool);
    if (cl == NULL) {
        return NULL;
    }

    b->last_buf = last;
    b->flush = !last;

    cl->buf = b;
    cl->next = NULL;

    return cl;
}


/*
 * Nothing may wait in the module for longer than the core allows: neither a
 * held head, nor what the encoder keeps when the node pauses.
 */

static void
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
    ngx_chain_t           *flush;
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

    flush = (ctx->step.act == SSZIP_DO_STREAM) ? ctx->mark : NULL;

    if (flush == NULL) {
        flush = ngx_http_sszip_mark(r, 0);

        if (ctx->step.act == SSZIP_DO_STREAM) {
            ctx->mark = flush;
        }
    }

    if (flush == NULL) {
        rc = NGX_ERROR;

    } else if (ctx->step.act == SSZIP_DO_HOLD) {
        rc = ngx_http_sszip_release(r, ctx, flush);

    } else if (ngx_http_sszip_waits_for_input(ctx)
               && sszip_exchange_next_timer(ctx->exchange) >= 0)
    {
        rc = ngx_http_sszip_stream_body(r, ctx, flush);

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

static ngx_int_t
ngx_http_sszip_bad_gateway(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    sszip_str *why)
{
    ngx_int_t  rc;

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "sszip: %*s", why->len,
                  why->data);

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
