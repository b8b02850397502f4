
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * Variables from which upstream modules set the length of a request's body.
 * nginx omits a header whose variable cannot be allocated, and sends the body
 * nevertheless: the node then reads a request without a body, and responds to
 * that.  The variable counts as evaluated from then on, for the main request
 * and its subrequests.  Where the request's pool has no memory for such a
 * value, it is evaluated in memory that the worker has reserved.
 */


static ngx_int_t ngx_http_sszip_length_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);


static ngx_str_t
    ngx_http_sszip_length_names[NGX_HTTP_SSZIP_ALLOCATED_LENGTHS] =
{
    ngx_string("content_length"),
    ngx_string("proxy_internal_body_length")
};


/* memory for one value; NULL: the worker has reserved none */

static ngx_pool_t  *ngx_http_sszip_length_pool;


/*
 * Replaces the handlers of the variables.  Each configuration has the replaced
 * handlers of its own: another module's data may belong to a configuration,
 * and the previous one is in use until its requests have ended, or if this one
 * is rejected.
 */

void
ngx_http_sszip_wrap_length_variables(ngx_conf_t *cf)
{
    ngx_str_t                          *name;
    ngx_uint_t                          i, j;
    ngx_hash_key_t                     *keys;
    ngx_http_variable_t                *var;
    ngx_http_core_main_conf_t          *cmcf;
    ngx_http_sszip_main_conf_t         *smcf;
    ngx_http_sszip_variable_handler_t  *handler;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sszip_module);

    keys = cmcf->variables_keys->keys.elts;

    for (i = 0; i < cmcf->variables_keys->keys.nelts; i++) {

        var = keys[i].value;

        for (j = 0; j < NGX_HTTP_SSZIP_ALLOCATED_LENGTHS; j++) {

            name = &ngx_http_sszip_length_names[j];

            if (var->name.len != name->len
                || ngx_strncmp(var->name.data, name->data, name->len) != 0)
            {
                continue;
            }

            handler = &smcf->length_handlers[j];

            handler->get_handler = var->get_handler;
            handler->data = var->data;

            var->get_handler = ngx_http_sszip_length_variable;
            var->data = j;
        }
    }
}


/* reserves the memory of a worker */

ngx_int_t
ngx_http_sszip_reserve_length(ngx_cycle_t *cycle)
{
    ngx_http_sszip_length_pool = ngx_create_pool(NGX_MIN_POOL_SIZE
                                                 + NGX_OFF_T_LEN, cycle->log);

    return (ngx_http_sszip_length_pool != NULL) ? NGX_OK : NGX_ERROR;
}


/*
 * Evaluates a variable by the handler of its own module.  The value is in the
 * request's context if the request's pool has no memory for it.
 */

static ngx_int_t
ngx_http_sszip_length_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_int_t                           rc;
    ngx_pool_t                         *pool;
    ngx_http_sszip_ctx_t               *ctx;
    ngx_http_sszip_main_conf_t         *smcf;
    ngx_http_sszip_variable_handler_t  *handler;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sszip_module);

    handler = &smcf->length_handlers[data];

    rc = handler->get_handler(r, v, handler->data);

    if (rc == NGX_OK) {
        return NGX_OK;
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    /* the worker has no pool if its first configuration only purges */

    if (ctx == NULL || ngx_http_sszip_length_pool == NULL) {
        return rc;
    }

    /* the log of the worker's first cycle may be gone */
    ngx_http_sszip_length_pool->log = r->connection->log;

    pool = r->pool;
    r->pool = ngx_http_sszip_length_pool;

    rc = handler->get_handler(r, v, handler->data);

    r->pool = pool;

    if (rc == NGX_OK && v->valid && v->len <= NGX_OFF_T_LEN) {
        ngx_memcpy(ctx->lengths[data], v->data, v->len);
        v->data = ctx->lengths[data];

    } else {
        rc = NGX_ERROR;
    }

    ngx_reset_pool(ngx_http_sszip_length_pool);

    return rc;
}
