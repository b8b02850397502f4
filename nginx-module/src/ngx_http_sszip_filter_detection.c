
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/* hooks of the upstream module: failures, and redirects that it rewrites */


static ngx_int_t ngx_http_sszip_rewrite_redirect(ngx_http_request_t *r,
    ngx_table_elt_t *h, size_t prefix);
static void ngx_http_sszip_finalize_upstream(ngx_http_request_t *r,
    ngx_int_t rc);


/*
 * Wraps the upstream module's callbacks for the end and the redirects of an
 * upstream request.  An upstream that fails after its head was sent sends an
 * empty flush, without another sign of the failure.  So the status it is
 * finalized with is recorded just before that flush.
 */

void
ngx_http_sszip_hook_finalize(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL
        || u->finalize_request == NULL
        || u->finalize_request == ngx_http_sszip_finalize_upstream)
    {
        return;
    }

    ctx->finalize_request = u->finalize_request;
    u->finalize_request = ngx_http_sszip_finalize_upstream;

    if (u->rewrite_redirect != NULL) {
        ctx->rewrite_redirect = u->rewrite_redirect;
        u->rewrite_redirect = ngx_http_sszip_rewrite_redirect;
    }
}


/*
 * Rewrites a header by proxy_redirect without a change of the stored value.
 * proxy_redirect overwrites a header of the upstream response, which is to be
 * stored, and may do so differently for the next client.
 */

static ngx_int_t
ngx_http_sszip_rewrite_redirect(ngx_http_request_t *r, ngx_table_elt_t *h,
    size_t prefix)
{
    u_char                *p;
    ngx_int_t              rc;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL || ctx->rewrite_redirect == NULL) {
        return NGX_DECLINED;
    }

    p = ngx_pnalloc(r->pool, h->value.len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    *ngx_cpymem(p, h->value.data, h->value.len) = '\0';
    h->value.data = p;

    rc = ctx->rewrite_redirect(r, h, prefix);

    if (rc == NGX_OK) {
        (void) sszip_exchange_redirected(ctx->exchange);
    }

    return rc;
}


/*
 * Reports the failure of an upstream to the core before the upstream module
 * ends the request.
 */

static void
ngx_http_sszip_finalize_upstream(ngx_http_request_t *r, ngx_int_t rc)
{
    bool                   serves_stale;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    if (ctx == NULL || ctx->finalize_request == NULL) {
        /* an internal redirect has removed the context */
        return;
    }

    if (ctx->step.action != SSZIP_ACTION_AWAIT) {
        ctx->upstream_failed = (rc >= NGX_HTTP_SPECIAL_RESPONSE);

    } else if (rc >= NGX_HTTP_SPECIAL_RESPONSE
               && sszip_exchange_upstream_failed(ctx->exchange,
                                                 ngx_http_sszip_failure(r, rc),
                                                 (uint16_t) rc,
                                                 ngx_http_sszip_now(),
                                                 &serves_stale)
                  == SSZIP_STATUS_OK
               && serves_stale)
    {
        /*
         * The failure is reported before the head of the error, and error
         * pages are disabled: a stale response must be sent before they apply.
         */

        r->error_page = 1;
    }

    ctx->finalize_request(r, rc);
}


/*
 * Returns the kind of an upstream's failure.  The upstream module sets
 * statuses of its own when it cannot get a response, without a reason.  A
 * status is the node's if the module has read it from the node for this
 * request and has not failed since.  A 502 of its own means an invalid head
 * if there is one and the connection neither ended nor failed.
 */

sszip_failure
ngx_http_sszip_failure(ngx_http_request_t *r, ngx_uint_t status)
{
    ngx_connection_t     *c;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL) {
        return SSZIP_FAILURE_STATUS;
    }

    if (u->cleanup != NULL && r->headers_out.status == status) {
        /* the module sends the node's head */
        return SSZIP_FAILURE_STATUS;
    }

    c = u->peer.connection;

    if (c != NULL && u->request_sent && u->headers_in.status_n == status) {
        /* the module leaves the node's response to an error page */
        return SSZIP_FAILURE_STATUS;
    }

    if (u->state != NULL
        && u->state->connect_time == (ngx_msec_t) -1
        && status == NGX_HTTP_BAD_GATEWAY)
    {
        return SSZIP_FAILURE_CONNECT;
    }

    switch (status) {

    case NGX_HTTP_GATEWAY_TIME_OUT:
        return SSZIP_FAILURE_TIMEOUT;

    case NGX_HTTP_BAD_GATEWAY:

        /* a truncated head is parsed up to its end */
        if (u->state != NULL
            && u->state->header_time == (ngx_msec_t) -1
            && u->buffer.start != NULL
            && (u->buffer.pos != u->buffer.last
                || u->buffer.last == u->buffer.end))
        {
            return SSZIP_FAILURE_INVALID_HEADER;
        }

        return SSZIP_FAILURE_ERROR;

    default:
        return SSZIP_FAILURE_STATUS;
    }
}
