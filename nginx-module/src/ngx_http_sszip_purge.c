
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * A location that purges: the query selects the entries, the owner removes
 * them, and the response is sent when the purge is in effect in all
 * processes.  The location's own directives control access: allow, deny,
 * auth_basic.
 */


static ngx_int_t ngx_http_sszip_purge_handler(ngx_http_request_t *r);
static void ngx_http_sszip_purge_cleanup(void *data);


/* sets the handler of a location that purges */

char *
ngx_http_sszip_cache_purge(ngx_conf_t *cf, void *post, void *data)
{
    ngx_flag_t  *purges = data;

    if (!*purges) {
        return NGX_CONF_OK;
    }

    return ngx_http_sszip_set_handler(cf, ngx_http_sszip_purge_handler);
}


/*
 * Purges the entries that the query selects; called again after each wait.
 */

static ngx_int_t
ngx_http_sszip_purge_handler(ngx_http_request_t *r)
{
    size_t                      n;
    ngx_int_t                   rc;
    u_char                      args_text[NGX_HTTP_SSZIP_LOG_TEXT],
                                reply_text[NGX_HTTP_SSZIP_LOG_TEXT];
    ngx_str_t                   args, reply;
    ngx_uint_t                  level, status;
    sszip_lookup_request        lookup;
    const sszip_str            *text;
    ngx_pool_cleanup_t         *cln;
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    ctx = ngx_http_sszip_get_ctx(r);

    ngx_memzero(&lookup, sizeof(sszip_lookup_request));

    lookup.size = sizeof(sszip_lookup_request);
    lookup.now = ngx_http_sszip_now();
    lookup.waiter = (uintptr_t) ctx;

    if (ctx == NULL
        || ngx_http_sszip_value(r, slcf->cache_namespace, &lookup.name_space)
           != NGX_OK
        || sszip_exchange_purge(ctx->exchange,
                                ngx_http_sszip_str(&r->method_name),
                                ngx_http_sszip_str(&r->args), &lookup,
                                &ctx->step)
           != SSZIP_STATUS_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    if (ctx->step.action == SSZIP_ACTION_WAIT) {

        cln = ngx_pool_cleanup_add(r->pool, 0);
        if (cln == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        cln->handler = ngx_http_sszip_purge_cleanup;
        cln->data = r;

    } else if (sszip_exchange_body(ctx->exchange, &text, &n) == SSZIP_STATUS_OK
               && n == 1)
    {
        /* the message names the purge; the log line shows the client */

        status = sszip_exchange_status(ctx->exchange);

        level = (status < 500) ? NGX_LOG_NOTICE : NGX_LOG_ERR;

        args = ngx_http_sszip_log_text(&r->args, args_text);
        reply = ngx_http_sszip_ngx_str(*text);
        reply.len--;
        reply = ngx_http_sszip_log_text(&reply, reply_text);

        ngx_log_error(level, r->connection->log, 0,
                      "sszip: purge of \"%V\": %ui %V", &args, status, &reply);
    }

    /* the callee may send or wait, so it must have a reference */

    r->main->count++;

    rc = ngx_http_sszip_lookup_done(r, ctx);

    if (rc != NGX_DONE) {
        r->main->count--;
    }

    return rc;
}


/* logs that the client of a purge is gone; the purge continues */

static void
ngx_http_sszip_purge_cleanup(void *data)
{
    ngx_http_request_t *r = data;

    u_char                 text[NGX_HTTP_SSZIP_LOG_TEXT];
    ngx_str_t              args;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx != NULL && ctx->step.action == SSZIP_ACTION_WAIT) {
        args = ngx_http_sszip_log_text(&r->args, text);

        ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                      "sszip: purge of \"%V\": the client closed the "
                      "connection before the response; the purge continues",
                      &args);
    }
}
