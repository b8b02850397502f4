
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/* contexts of requests */


static void ngx_http_sszip_stop_events(ngx_http_sszip_ctx_t *ctx);
static sszip_str ngx_http_sszip_request_target(ngx_http_request_t *r);


/*
 * Returns the context of a request, and creates it with its exchange if there
 * is none.
 */

ngx_http_sszip_ctx_t *
ngx_http_sszip_get_ctx(ngx_http_request_t *r)
{
    sszip_exchange             *exchange;
    ngx_pool_cleanup_t         *cln;
    sszip_request_head          head;
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_loc_conf_t  *slcf;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx != NULL) {
        return ctx;
    }

    /* the context lost by an internal redirect: its exchange has no client */

    for (cln = r->pool->cleanup; cln; cln = cln->next) {

        ctx = cln->data;

        if (cln->handler == ngx_http_sszip_free_exchange
            && ctx->request == r)
        {
            ngx_http_sszip_detach(ctx);
        }
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    ngx_memzero(&head, sizeof(sszip_request_head));

    head.size = sizeof(sszip_request_head);
    head.method = ngx_http_sszip_str(&r->method_name);
    head.target = ngx_http_sszip_request_target(r);
    head.fields = ngx_http_sszip_read_headers(r, &r->headers_in.headers, NULL,
                                              &head.nfields);

    if (head.target.data == NULL
        || head.fields == NULL
        || sszip_exchange_new(slcf->config, &exchange) != SSZIP_STATUS_OK)
    {
        return NULL;
    }

    ctx = ngx_http_sszip_create_ctx(r, exchange);

    if (ctx == NULL
        || sszip_exchange_request_head(exchange, &head) != SSZIP_STATUS_OK)
    {
        return NULL;
    }

    ngx_http_set_ctx(r, ctx, ngx_http_sszip_module);

    return ctx;
}


/*
 * Creates the context of an exchange, which is freed with the request's pool.
 */

ngx_http_sszip_ctx_t *
ngx_http_sszip_create_ctx(ngx_http_request_t *r, sszip_exchange *exchange)
{
    ngx_pool_cleanup_t    *cln;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_sszip_ctx_t));
    cln = ngx_pool_cleanup_add(r->pool, 0);

    if (ctx == NULL || cln == NULL) {
        sszip_exchange_free(exchange);
        ngx_http_sszip_wake();
        return NULL;
    }

    ctx->exchange = exchange;
    ctx->request = r;
    ctx->last_out = &ctx->out;

    cln->handler = ngx_http_sszip_free_exchange;
    cln->data = ctx;

    return ctx;
}


/*
 * Returns the request's target as the core reads it.  The target that selects
 * the response: the client's or, after a rewrite or an internal redirect, the
 * resulting one.
 */

static sszip_str
ngx_http_sszip_request_target(ngx_http_request_t *r)
{
    u_char     *p;
    size_t      escape;
    sszip_str   target;

    if (r->valid_unparsed_uri) {
        return ngx_http_sszip_str(&r->unparsed_uri);
    }

    escape = 2 * ngx_escape_uri(NULL, r->uri.data, r->uri.len,
                                NGX_ESCAPE_URI);

    p = ngx_pnalloc(r->pool, r->uri.len + escape + 1 + r->args.len);

    target.data = p;
    target.len = 0;

    if (p == NULL) {
        return target;
    }

    p = (u_char *) ngx_escape_uri(p, r->uri.data, r->uri.len, NGX_ESCAPE_URI);

    if (r->args.len) {
        *p++ = '?';
        p = ngx_cpymem(p, r->args.data, r->args.len);
    }

    target.len = p - target.data;

    return target;
}


/*
 * Detaches the context from its request, which continues without it.  Results
 * of an exchange are still in use: in heads, in variables and in buffers that
 * are being sent.  It is freed with the request's pool; a thread that runs a
 * job of it ends before that.
 */

void
ngx_http_sszip_detach(ngx_http_sszip_ctx_t *ctx)
{
    ngx_http_sszip_stop_events(ctx);

    (void) sszip_exchange_detach(ctx->exchange);

    ngx_http_sszip_wake();
}


/* counts and frees the exchange of a context; a job frees a long response */

void
ngx_http_sszip_free_exchange(void *data)
{
    ngx_http_sszip_ctx_t  *ctx = data;

    sszip_job             *job;

    ngx_http_sszip_stop_events(ctx);

    ngx_http_sszip_count(ctx->request, ctx);

    job = sszip_exchange_take_teardown_job(ctx->exchange);

    sszip_exchange_free(ctx->exchange);
    ctx->exchange = NULL;

    ngx_http_sszip_run_detached_job(ctx->request, job);

    ngx_http_sszip_wake();
}


/* deletes the timers and the posted wakeup of a context */

static void
ngx_http_sszip_stop_events(ngx_http_sszip_ctx_t *ctx)
{
    if (ctx->timer != NULL && ctx->timer->timer_set) {
        ngx_del_timer(ctx->timer);
    }

    if (ctx->wake.timer_set) {
        ngx_del_timer(&ctx->wake);
    }

    if (ctx->wake.posted) {
        ngx_delete_posted_event(&ctx->wake);
    }
}
