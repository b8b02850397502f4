
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * Other modules that compress bodies may run before sszip, depending on the
 * order in which the modules were loaded.  Where sszip may compress, a marker
 * in the head makes them treat the body as encoded, until it is sszip's turn.
 */


static ngx_int_t ngx_http_sszip_compress_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_compress_filter_init(ngx_conf_t *cf);


ngx_http_sszip_define_filter_module(ngx_http_sszip_coder_filter_module,
                                    ngx_http_sszip_compress_filter_init);


/* marker, in no list of headers: only other compressing filters see it */
static ngx_table_elt_t                   ngx_http_sszip_content_encoding;

static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;


/*
 * Marks a response that sszip will compress as encoded, so that other
 * compressing filters skip it.
 */

static ngx_int_t
ngx_http_sszip_compress_header_filter(ngx_http_request_t *r)
{
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);
    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (slcf->enable
        && ctx != NULL
        && r == r->main
        && r->headers_out.content_encoding == NULL
        && (ctx->step.action == SSZIP_ACTION_AWAIT
            || ctx->step.action == SSZIP_ACTION_RESPOND)
        && sszip_exchange_would_compress(ctx->exchange,
                              ngx_http_sszip_str(&r->headers_out.content_type),
                              r->headers_out.content_length_n))
    {
        r->headers_out.content_encoding = &ngx_http_sszip_content_encoding;
    }

    return ngx_http_next_header_filter(r);
}


/* removes the mark of a response that sszip will compress */

void
ngx_http_sszip_allow_encoding(ngx_http_request_t *r)
{
    if (r->headers_out.content_encoding == &ngx_http_sszip_content_encoding) {
        r->headers_out.content_encoding = NULL;
    }
}


/* registers the header filter, and defines the header that marks responses */

static ngx_int_t
ngx_http_sszip_compress_filter_init(ngx_conf_t *cf)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_sszip_compress_header_filter;

    ngx_http_sszip_content_encoding.hash = 1;
    ngx_str_set(&ngx_http_sszip_content_encoding.key, "Content-Encoding");
    ngx_str_set(&ngx_http_sszip_content_encoding.value, "sszip");

    return NGX_OK;
}
