
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * The response as the upstream sent it: before "add_header", "expires" and
 * others add headers, with the headers that "proxy_hide_header" hides, and
 * before "sub_filter", SSI, "charset" and others change the body.  The core
 * decides on this response, and stores it; nginx repeats its changes on each
 * response, hit or miss.
 *
 * The position differs from sszip's own filter, which follows all of them,
 * hence a module of its own.  Responses to background subrequests end here:
 * the postpone filter would keep them for the client, and the subrequest with
 * them.
 */


static ngx_int_t ngx_http_sszip_upstream_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_upstream_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_int_t ngx_http_sszip_upstream_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_sszip_upstream_filter_init(ngx_conf_t *cf);


ngx_http_sszip_define_filter_module(ngx_http_sszip_node_filter_module,
                                    ngx_http_sszip_upstream_filter_init);


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


/* passes the upstream's head to the core before other filters change it */

static ngx_int_t
ngx_http_sszip_upstream_header_filter(ngx_http_request_t *r)
{
    ngx_int_t                   rc;
    ngx_http_sszip_ctx_t       *ctx, *update;
    ngx_http_sszip_loc_conf_t  *slcf;

    ngx_http_sszip_close_window(r);

    update = ngx_http_sszip_update_ctx(r);

    if (update != NULL && r->upstream != NULL) {
        /*
         * Filters that change a body do not clear the length of a
         * subrequest's response; the upstream module itself reports a body
         * that is too short.
         */
        ngx_http_clear_content_length(r);
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    ctx = slcf->enable ? ngx_http_sszip_get_ctx(r) : NULL;
    rc = NGX_OK;

    if (ctx != NULL && ctx->step.action == SSZIP_ACTION_AWAIT) {

        ctx->unfiltered_length = r->headers_out.content_length_n;
        ctx->upstream_encoded = (r->headers_out.content_encoding != NULL);

        if (slcf->caches) {
            rc = ngx_http_sszip_upstream_head(r, ctx);
        }
    }

    if (rc == NGX_OK) {
        rc = ngx_http_next_header_filter(r);
    }

    if (update != NULL) {
        ngx_http_sszip_update_start(r, update);
    }

    return rc;
}


/*
 * Passes the upstream's head to the core, which may replace the response by a
 * stale one.
 */

static ngx_int_t
ngx_http_sszip_upstream_head(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    bool                        replaced;
    ngx_int_t                   rc;
    sszip_response_head         head;
    ngx_http_upstream_t        *u;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    /* an upstream that failed or was redirected is finished */

    u = r->upstream;

    ngx_http_sszip_head(r, &head, (u != NULL && u->cleanup != NULL) ? u : NULL);

    if (ngx_http_test_predicates(r, slcf->no_cache) != NGX_OK
        || (ngx_http_sszip_bypass(r) & NGX_HTTP_SSZIP_BYPASS_STORE)
        || head.fields == NULL)
    {
        (void) sszip_exchange_no_store(ctx->exchange);
    }

    if (head.fields == NULL) {
        return NGX_OK;
    }

    rc = NGX_OK;

    if (sszip_exchange_upstream_head(ctx->exchange, &head,
                                     ngx_http_sszip_failure(r, head.status),
                                     ngx_http_sszip_now(), &replaced)
        == SSZIP_STATUS_OK
        && replaced)
    {
        /* after an error, some headers belong to another body */
        rc = ngx_http_sszip_set_stored_head(r, ctx);
    }

    /* followers need not wait for a response that is not cached */
    ngx_http_sszip_wake();

    return rc;
}


/* observes the upstream's body before other filters change it */

static ngx_int_t
ngx_http_sszip_upstream_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_buf_t                  *b;
    ngx_chain_t                *cl;
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_loc_conf_t  *slcf;

    ctx = ngx_http_sszip_update_ctx(r);

    if (ctx != NULL) {
        ngx_http_sszip_update_body(ctx, in);
        return NGX_OK;
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (ctx == NULL || ctx->stored || !slcf->caches) {
        return ngx_http_next_body_filter(r, in);
    }

    for (cl = in; cl; cl = cl->next) {

        b = cl->buf;

        ngx_http_sszip_run_detached_job(r,
            sszip_exchange_upstream_piece(ctx->exchange,
                                      ngx_buf_in_memory(b) ? b->pos : NULL,
                                      ngx_buf_special(b) ? 0 : ngx_buf_size(b),
                                      b->last_buf,
                                      b->last_buf ? ngx_http_sszip_now() : 0));
    }

    return ngx_http_next_body_filter(r, in);
}


/* registers the filters that see the upstream's response */

static ngx_int_t
ngx_http_sszip_upstream_filter_init(ngx_conf_t *cf)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_sszip_upstream_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_sszip_upstream_body_filter;

    return NGX_OK;
}
