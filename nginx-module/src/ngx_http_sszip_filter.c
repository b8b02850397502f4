
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


static ngx_int_t ngx_http_sszip_header_filter(ngx_http_request_t *r);
static void ngx_http_sszip_detect_body_filters(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_sszip_copy_to_cache(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


/* registers the header filter and the body filter */

void
ngx_http_sszip_filter_init(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_sszip_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_sszip_body_filter;
}


/*
 * Passes a response head to the core, and withholds or sends it as the core
 * decides.
 */

static ngx_int_t
ngx_http_sszip_header_filter(ngx_http_request_t *r)
{
    ngx_int_t              rc;
    ngx_http_sszip_ctx_t  *ctx;

    ngx_http_sszip_allow_encoding(r);

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL) {
        return ngx_http_next_header_filter(r);
    }

    if (ctx->step.action == SSZIP_ACTION_RESPOND) {
        ctx->step.action = SSZIP_ACTION_PASS;
        ngx_http_sszip_detect_body_filters(r, ctx);

        return (ngx_http_sszip_filtered_hit_head(r, ctx) == NGX_OK)
               ? ngx_http_sszip_send_head(r, ctx) : NGX_ERROR;
    }

    if (ctx->step.action != SSZIP_ACTION_AWAIT) {
        return ngx_http_sszip_send_head(r, ctx);
    }

    ngx_http_sszip_detect_body_filters(r, ctx);

    ctx->local = (r->upstream == NULL || r->upstream->cleanup == NULL);

    rc = ngx_http_sszip_response_head(r, ctx);

    /* followers need not wait for a response that is not cached */
    ngx_http_sszip_wake();

    if (rc == NGX_ERROR) {
        /* after an error, some headers belong to another body */
        return NGX_ERROR;
    }

    if (ctx->step.action == SSZIP_ACTION_PASS) {
        return ngx_http_sszip_send_head(r, ctx);
    }

    if (ctx->step.action == SSZIP_ACTION_FAIL
        && r->headers_out.status == NGX_HTTP_SWITCHING_PROTOCOLS)
    {
        /* no end of a body follows */
        ctx->keepalive = 0;
        return ngx_http_sszip_bad_gateway(r, ctx, ctx->step.reason);
    }

    ngx_http_sszip_hook_finalize(r, ctx);

    r->main_filter_need_in_memory = 1;

    if (ctx->step.action != SSZIP_ACTION_OBSERVE) {
        /* ranges refer to the upstream's bytes, and no withheld head */
        r->allow_ranges = 0;
    }

    if (ctx->step.action == SSZIP_ACTION_OBSERVE
        || ctx->step.action == SSZIP_ACTION_STREAM)
    {
        return ngx_http_sszip_pass_head(r, ctx);
    }

    ctx->keepalive = r->keepalive;

    r->connection->buffered |= NGX_HTTP_GZIP_BUFFERED;

    ngx_http_sszip_set_timer(r, ctx);

    return NGX_OK;
}


/*
 * Detects another filter that changes bodies: it clears the length, or needs
 * the bodies in memory.
 */

static void
ngx_http_sszip_detect_body_filters(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx)
{
    off_t                       length;
    ngx_uint_t                  compresses;
    ngx_table_elt_t            *coding;
    sszip_other_filters         other_filters;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (!slcf->caches || r != r->main) {
        return;
    }

    length = r->headers_out.content_length_n;
    coding = r->headers_out.content_encoding;
    compresses = coding != NULL && coding->value.len && !ctx->upstream_encoded;

    other_filters = sszip_exchange_other_filters(ctx->exchange,
                                           r->filter_need_in_memory
                                           || length != ctx->unfiltered_length,
                                           compresses, length >= 0);

    ctx->body_changed = (other_filters != SSZIP_OTHER_FILTERS_NONE);

    if (other_filters == SSZIP_OTHER_FILTERS_SEPARATE_COPY) {
        r->main_filter_need_in_memory = 1;
    }

    ngx_http_sszip_log_body_filters(r, ctx);
}


/*
 * Logs the first detection of another filter that changes bodies in a
 * location.
 */

void
ngx_http_sszip_log_body_filters(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx)
{
    ngx_http_sszip_loc_conf_t  *slcf;

    if (!sszip_exchange_is_new_filter_detection(ctx->exchange)) {
        return;
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                  "sszip: another module changes bodies in location \"%V\": "
                  "cached responses are sent through it, and not compressed "
                  "by sszip", &slcf->location);
}


/*
 * Sends a head to the next filter, and records whether that failed.  Other
 * filters allocate their contexts when they see the head.  A filter that
 * failed to may crash on the body, and the sender of the body may not know
 * that the head failed, since it was withheld.
 */

ngx_int_t
ngx_http_sszip_send_head(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_next_header_filter(r);

    ctx->head_failed = (rc == NGX_ERROR);

    return rc;
}


/* sends a body to the next filter, unless its head failed */

ngx_int_t
ngx_http_sszip_send_body(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *in)
{
    return ctx->head_failed ? NGX_ERROR : ngx_http_next_body_filter(r, in);
}


/*
 * Sends the head of a response that is not changed.  A client may be gone
 * before the head is sent, for example after a reset of HTTP/2.  A response
 * that is cached is fetched nevertheless, and its first piece detects that
 * the client is gone.
 */

ngx_int_t
ngx_http_sszip_pass_head(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_int_t             rc;
    ngx_http_upstream_t  *u;

    rc = ngx_http_sszip_send_head(r, ctx);

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


/*
 * Buffers, compresses or passes a piece of a response body, as the core
 * decided at the head.
 */

static ngx_int_t
ngx_http_sszip_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL) {
        return ngx_http_next_body_filter(r, in);
    }

    if (ctx->done) {
        ctx->done = 0;

        /* the upstream request is over: no upstream module reads a status */
        ctx->local = 1;

        return ngx_http_sszip_resume_body(r, ctx, NULL);
    }

    switch (ctx->step.action) {

    case SSZIP_ACTION_BUFFER:
        return ngx_http_sszip_collect(r, ctx, in);

    case SSZIP_ACTION_STREAM:
        return ngx_http_sszip_stream_body(r, ctx, in);

    case SSZIP_ACTION_OBSERVE:
        return ngx_http_sszip_copy_to_cache(r, ctx, in);

    case SSZIP_ACTION_RUN_JOB:
        return NGX_AGAIN;

    case SSZIP_ACTION_FAIL:

        if (!r->header_sent) {
            return ngx_http_sszip_discard_chain(r, ctx, in);
        }

        /* bytes that are being sent may continue, but no others follow */

        return (in != NULL) ? NGX_ERROR
                            : ngx_http_sszip_send_body(r, ctx, NULL);

    default:
        return ngx_http_sszip_send_body(r, ctx, in);
    }
}


/* feeds the pieces of a response to the cache while it is sent */

static ngx_int_t
ngx_http_sszip_copy_to_cache(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *in)
{
    ngx_int_t   rc;
    ngx_uint_t  last;

    last = ngx_http_sszip_feed_pieces(ctx, in);

    /* the response may have become too long to be stored */
    ngx_http_sszip_wake();

    rc = ngx_http_sszip_pass_body(r, ctx, in);

    if (last) {
        ctx->step.action = SSZIP_ACTION_PASS;
        ngx_http_sszip_store(r, ctx);
    }

    return rc;
}
