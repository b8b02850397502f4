
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * Other modules that compress bodies may run before sszip, depending on the
 * order in which the modules were loaded.  Where sszip may compress, a marker
 * in the head makes them treat the body as encoded, until it is sszip's turn.
 */


static ngx_int_t ngx_http_sszip_coder_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_coder_init(ngx_conf_t *cf);


ngx_http_sszip_filter_place(ngx_http_sszip_coder_filter_module,
                            ngx_http_sszip_coder_init);


/* in no list of headers: only other compressing filters see it */
static ngx_table_elt_t                   ngx_http_sszip_coder;

static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;


static ngx_int_t
ngx_http_sszip_coder_header_filter(ngx_http_request_t *r)
{
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);
    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (slcf->enable
        && ctx != NULL
        && r == r->main
        && r->headers_out.content_encoding == NULL
        && (ctx->step.act == SSZIP_DO_AWAIT
            || ctx->step.act == SSZIP_DO_RESPOND)
        && sszip_exchange_would_code(ctx->exchange,
                              ngx_http_sszip_str(&r->headers_out.content_type),
                              r->headers_out.content_length_n))
    {
        r->headers_out.content_encoding = &ngx_http_sszip_coder;
    }

    return ngx_http_next_header_filter(r);
}


void
ngx_http_sszip_let_code(ngx_http_request_t *r)
{
    if (r->headers_out.content_encoding == &ngx_http_sszip_coder) {
        r->headers_out.content_encoding = NULL;
    }
}


static ngx_int_t
ngx_http_sszip_coder_init(ngx_conf_t *cf)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_sszip_coder_header_filter;

    ngx_http_sszip_coder.hash = 1;
    ngx_str_set(&ngx_http_sszip_coder.key, "Content-Encoding");
    ngx_str_set(&ngx_http_sszip_coder.value, "sszip");

    return NGX_OK;
}
