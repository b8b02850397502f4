
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


static ngx_int_t ngx_http_sszip_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sszip_no_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


/*
 * A variable for Lua's bypass, since variables survive redirects;
 * configurations must not use it.
 */

static ngx_str_t  ngx_http_sszip_lua_bypass = ngx_string("sszip_lua_bypass");


/* adds the variables, whose names and values the core defines */

ngx_int_t
ngx_http_sszip_add_variables(ngx_conf_t *cf)
{
    ngx_str_t             name;
    sszip_str             text;
    ngx_uint_t            i;
    ngx_http_variable_t  *var;

    for (i = 0; /* void */ ; i++) {

        text = sszip_variable_name(i);

        if (text.len == 0) {
            break;
        }

        name.data = (u_char *) text.data;
        name.len = text.len;

        var = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = ngx_http_sszip_variable;
        var->data = i;
    }

    var = ngx_http_add_variable(cf, &ngx_http_sszip_lua_bypass,
                                NGX_HTTP_VAR_NOHASH);
    if (var == NULL) {
        return NGX_ERROR;
    }

    var->get_handler = ngx_http_sszip_no_variable;

    return NGX_OK;
}


/* reserves the index of the variable in which Lua sets the bypass */

ngx_int_t
ngx_http_sszip_index_bypass(ngx_conf_t *cf, ngx_http_sszip_main_conf_t *smcf)
{
    smcf->bypass = ngx_http_get_variable_index(cf, &ngx_http_sszip_lua_bypass);

    return (smcf->bypass == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


/* sets the bypass that Lua requests for a request */

ngx_int_t
ngx_http_sszip_set_bypass(ngx_http_request_t *r, ngx_uint_t bypass)
{
    ngx_http_variable_value_t   *v;
    ngx_http_sszip_main_conf_t  *smcf;

    static u_char  values[] = { 0, 1, 2, 3 };

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sszip_module);

    if (!smcf->used || r->variables == NULL) {
        return NGX_DECLINED;
    }

    v = &r->variables[smcf->bypass];

    v->len = 1;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->data = &values[bypass & 3];

    return NGX_OK;
}


/* returns the bypass that Lua has requested for a request */

ngx_uint_t
ngx_http_sszip_bypass(ngx_http_request_t *r)
{
    ngx_http_variable_value_t   *v;
    ngx_http_sszip_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sszip_module);

    v = &r->variables[smcf->bypass];

    return (v->valid && v->len == 1) ? *v->data : 0;
}


/* returns no value: the variable is read by its index only */

static ngx_int_t
ngx_http_sszip_no_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    v->not_found = 1;

    return NGX_OK;
}


/* returns the value of a variable, which the core formats */

static ngx_int_t
ngx_http_sszip_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    sszip_str              text;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (sszip_exchange_variable(ctx ? ctx->exchange : NULL, data, &text)
        != SSZIP_STATUS_OK
        || text.data == NULL)
    {
        v->not_found = 1;
        return NGX_OK;
    }

    /* the next variable overwrites the text */

    v->data = ngx_pnalloc(r->pool, text.len);
    if (v->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(v->data, text.data, text.len);

    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->len = text.len;

    return NGX_OK;
}
