
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


static ngx_int_t ngx_http_sszip_ratio_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sszip_mode_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sszip_cache_status_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sszip_cache_reason_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sszip_cache_key_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sszip_call_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


static ngx_http_variable_t  ngx_http_sszip_vars[] = {

    { ngx_string("sszip_ratio"), NULL, ngx_http_sszip_ratio_variable,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sszip_mode"), NULL, ngx_http_sszip_mode_variable,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sszip_cache_status"), NULL,
      ngx_http_sszip_cache_status_variable,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sszip_cache_reason"), NULL,
      ngx_http_sszip_cache_reason_variable,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sszip_cache_key"), NULL, ngx_http_sszip_cache_key_variable,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sszip_rpc_method"), NULL, ngx_http_sszip_call_variable,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sszip_batch_size"), NULL, ngx_http_sszip_call_variable,
      1, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sszip_batch_hits"), NULL, ngx_http_sszip_call_variable,
      2, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


ngx_int_t
ngx_http_sszip_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_sszip_vars; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sszip_ratio_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    uint64_t               received, sent;
    ngx_uint_t             hundredths;
    ngx_http_sszip_ctx_t  *ctx;

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL
        || sszip_exchange_sizes(ctx->exchange, &received, &sent)
           != SSZIP_STATUS_OK
        || sent == 0)
    {
        v->not_found = 1;
        return NGX_OK;
    }

    v->data = ngx_pnalloc(r->pool, NGX_SIZE_T_LEN + sizeof(".00") - 1);
    if (v->data == NULL) {
        return NGX_ERROR;
    }

    hundredths = (received * 100 + sent / 2) / sent;

    v->len = ngx_sprintf(v->data, "%ui.%02ui", hundredths / 100,
                         hundredths % 100)
             - v->data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sszip_mode_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    uint8_t                mode;
    sszip_str              name;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    mode = 0;

    if (ctx != NULL) {
        (void) sszip_exchange_mode(ctx->exchange, &mode);
    }

    name = sszip_mode_name(mode);

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->len = name.len;
    v->data = (u_char *) name.data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sszip_cache_status_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    sszip_str              status;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL
        || sszip_exchange_cache_status(ctx->exchange, &status)
           != SSZIP_STATUS_OK
        || status.len == 0)
    {
        v->not_found = 1;
        return NGX_OK;
    }

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->len = status.len;
    v->data = (u_char *) status.data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sszip_cache_reason_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    sszip_str              reason;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL
        || sszip_exchange_reason(ctx->exchange, &reason) != SSZIP_STATUS_OK
        || reason.len == 0)
    {
        v->not_found = 1;
        return NGX_OK;
    }

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->len = reason.len;
    v->data = (u_char *) reason.data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sszip_cache_key_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    size_t                 len;
    u_char                *p;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, 64);
    if (p == NULL) {
        return NGX_ERROR;
    }

    if (sszip_exchange_cache_key(ctx->exchange, p, &len) != SSZIP_STATUS_OK
        || len == 0)
    {
        v->not_found = 1;
        return NGX_OK;
    }

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->len = len;
    v->data = p;

    return NGX_OK;
}


/*
 * data: 0 for the method of a single call, 1 for the size of a batch, 2 for how
 * many of its answers came from the cache
 */

static ngx_int_t
ngx_http_sszip_call_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    size_t                 size, hits;
    sszip_str              method;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL
        || sszip_exchange_call(ctx->exchange, &method, &size, &hits)
           != SSZIP_STATUS_OK
        || (data ? size == 0 : method.len == 0))
    {
        v->not_found = 1;
        return NGX_OK;
    }

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    if (data == 0) {

        /* it may be used when the exchange is gone, after a redirect */

        v->data = ngx_pnalloc(r->pool, method.len);
        if (v->data == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(v->data, method.data, method.len);
        v->len = method.len;

        return NGX_OK;
    }

    v->data = ngx_pnalloc(r->pool, NGX_SIZE_T_LEN);
    if (v->data == NULL) {
        return NGX_ERROR;
    }

    v->len = ngx_sprintf(v->data, "%uz", data == 1 ? size : hits) - v->data;

    return NGX_OK;
}
