
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * The answer as the node sent it: before "add_header", "expires" and others
 * have added to its head, with what "proxy_hide_header" hides, and before
 * "sub_filter", SSI, "charset" and others have changed its body.  That is what
 * decides whether it is stored, and what is stored; all that nginx adds or
 * changes is done anew to each answer, hit or not.
 *
 * Another place than sszip's own, which is after all of them, hence a module
 * of its own.
 */


static ngx_int_t ngx_http_sszip_node_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_judge_node(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_http_upstream_t *ngx_http_sszip_upstream(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_node_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_sszip_coder_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_node_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_sszip_coder_init(ngx_conf_t *cf);


ngx_http_sszip_filter_place(ngx_http_sszip_node_filter_module,
                            ngx_http_sszip_node_init);


ngx_http_sszip_filter_place(ngx_http_sszip_coder_filter_module,
                            ngx_http_sszip_coder_init);


/* of no head's list: it is seen by other coders only */
static ngx_table_elt_t                   ngx_http_sszip_coder;

static ngx_http_output_header_filter_pt  ngx_http_sszip_node_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_sszip_node_next_body_filter;
static ngx_http_output_header_filter_pt
                                        ngx_http_sszip_coder_next_header_filter;


static ngx_int_t
ngx_http_sszip_node_header_filter(ngx_http_request_t *r)
{
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_loc_conf_t  *slcf;

    ngx_http_sszip_close_window(r);

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (slcf->enable) {
        ctx = ngx_http_sszip_get_ctx(r);

        if (ctx != NULL && ctx->step.act == SSZIP_DO_AWAIT) {

            ctx->node_length = r->headers_out.content_length_n;
            ctx->node_coded = (r->headers_out.content_encoding != NULL);

            if (slcf->caches
                && ngx_http_sszip_judge_node(r, ctx) != NGX_OK)
            {
                return NGX_ERROR;
            }
        }
    }

    return ngx_http_sszip_node_next_header_filter(r);
}


static ngx_int_t
ngx_http_sszip_judge_node(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    bool                        replaced;
    ngx_int_t                   rc;
    size_t                      n;
    sszip_response_head         head;
    ngx_http_upstream_t        *u;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (ngx_http_test_predicates(r, slcf->no_cache) != NGX_OK) {
        (void) sszip_exchange_no_store(ctx->exchange);
    }

    u = ngx_http_sszip_upstream(r);

    ngx_memzero(&head, sizeof(sszip_response_head));

    head.size = sizeof(sszip_response_head);
    head.now = ngx_time();
    head.status = (uint16_t) r->headers_out.status;
    head.subrequest = (r != r->main);
    head.delimited = ngx_http_sszip_delimited(r);

    if (u != NULL) {
        /* nginx may have made a 304 of it, for this client */
        head.status = (uint16_t) u->headers_in.status_n;
        head.content_length = u->headers_in.content_length_n;
        head.fields = ngx_http_sszip_fields(r, &u->headers_in.headers, NULL,
                                            &n);

    } else {
        head.content_length = r->headers_out.content_length_n;
        head.fields = ngx_http_sszip_fields(r, &r->headers_out.headers,
                                            &r->headers_out.content_type, &n);
    }

    if (head.fields == NULL) {
        (void) sszip_exchange_no_store(ctx->exchange);
        return NGX_OK;
    }

    head.nfields = n;

    rc = NGX_OK;
    replaced = 0;

    if (sszip_exchange_node_head(ctx->exchange, &head,
                                 ngx_http_sszip_failure(r, head.status),
                                 ngx_http_sszip_now(), &replaced)
        == SSZIP_STATUS_OK
        && replaced)
    {
        /* if it fails some of the head is of another body */

        rc = ngx_http_sszip_set_stored_head(r, ctx);
        ctx->stored = 1;
    }

    /* an answer that will not be stored is not worth waiting for */
    ngx_http_sszip_wake();

    return rc;
}


/* whose answer is sent; NULL: it is made here */

static ngx_http_upstream_t *
ngx_http_sszip_upstream(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    /* one that has failed, or has sent the request elsewhere, is over */

    return (u != NULL && u->cleanup != NULL) ? u : NULL;
}


static ngx_int_t
ngx_http_sszip_node_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_buf_t                  *b;
    sszip_job                  *job;
    ngx_chain_t                *cl;
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_loc_conf_t  *slcf;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (ctx == NULL || ctx->stored || !slcf->caches) {
        return ngx_http_sszip_node_next_body_filter(r, in);
    }

    for (cl = in; cl; cl = cl->next) {

        b = cl->buf;

        job = sszip_exchange_node_piece(ctx->exchange,
                                    ngx_buf_in_memory(b) ? b->pos : NULL,
                                    ngx_buf_special(b) ? 0 : ngx_buf_size(b),
                                    b->last_buf,
                                    b->last_buf ? ngx_http_sszip_now() : 0);

        ngx_http_sszip_store_job(r, job);
    }

    return ngx_http_sszip_node_next_body_filter(r, in);
}


/*
 * Other modules that code bodies may run before sszip: which do is a matter of
 * the order in which they were loaded.  Where sszip may code, they are told
 * that the body is coded already, until it is sszip's turn.
 */

static ngx_int_t
ngx_http_sszip_coder_header_filter(ngx_http_request_t *r)
{
    sszip_str                   type;
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (slcf->enable && r == r->main && r->headers_out.content_encoding == NULL)
    {
        ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);
        type = ngx_http_sszip_str(&r->headers_out.content_type);

        if (ctx != NULL
            && (ctx->step.act == SSZIP_DO_AWAIT
                || ctx->step.act == SSZIP_DO_RESPOND)
            && sszip_exchange_would_code(ctx->exchange, type,
                                    r->headers_out.content_length_n))
        {
            r->headers_out.content_encoding = &ngx_http_sszip_coder;
            ctx->coder = &ngx_http_sszip_coder;
        }
    }

    return ngx_http_sszip_coder_next_header_filter(r);
}


static ngx_int_t
ngx_http_sszip_node_init(ngx_conf_t *cf)
{
    ngx_http_sszip_node_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_sszip_node_header_filter;

    ngx_http_sszip_node_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_sszip_node_body_filter;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sszip_coder_init(ngx_conf_t *cf)
{
    ngx_http_sszip_coder_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_sszip_coder_header_filter;

    ngx_http_sszip_coder.hash = 1;
    ngx_str_set(&ngx_http_sszip_coder.key, "Content-Encoding");
    ngx_str_set(&ngx_http_sszip_coder.value, "sszip");

    return NGX_OK;
}
