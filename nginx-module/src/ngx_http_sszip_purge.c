
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * A location that purges: the query says what, the cache's owner does it, and
 * the answer comes when it holds everywhere.  Who may do so is the location's
 * own business: allow, deny, auth_basic.
 */


/* what the owner says in return is short */
#define NGX_HTTP_SSZIP_PURGE_LEN  1024

/* longer than the core waits for the owner */
#define NGX_HTTP_SSZIP_PURGE_WAIT  15000


static ngx_int_t ngx_http_sszip_purge_handler(ngx_http_request_t *r);
static void ngx_http_sszip_purge_wake_handler(ngx_event_t *ev);
static void ngx_http_sszip_purge_cleanup(void *data);
static void ngx_http_sszip_purge_log(ngx_http_request_t *r, uint16_t status,
    u_char *text, size_t len);
static ngx_int_t ngx_http_sszip_purge_send(ngx_http_request_t *r,
    uint16_t status, u_char *text, size_t len);


char *
ngx_http_sszip_cache_purge(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sszip_loc_conf_t  *slcf = conf;

    ngx_str_t                   *value;
    ngx_http_core_loc_conf_t    *clcf;
    ngx_http_sszip_main_conf_t  *smcf;

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(value[1].data, "on") != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" directive has an invalid value \"%V\": it "
                           "must be \"on\" or \"off\"", &cmd->name, &value[1]);
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler != NULL) {
        return "is in a location that does something else already";
    }

    clcf->handler = ngx_http_sszip_purge_handler;
    slcf->purges = 1;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sszip_module);
    smcf->purges = 1;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_sszip_purge_handler(ngx_http_request_t *r)
{
    size_t                      len;
    u_char                      text[NGX_HTTP_SSZIP_PURGE_LEN];
    uint16_t                    status;
    ngx_int_t                   rc;
    ngx_str_t                   value;
    sszip_str                   name_space;
    ngx_pool_cleanup_t         *cln;
    ngx_http_sszip_ctx_t       *ctx;
    ngx_http_sszip_loc_conf_t  *slcf;

    if (!(r->method & NGX_HTTP_POST)
        && !(r->method_name.len == 5
             && ngx_strncmp(r->method_name.data, "PURGE", 5) == 0))
    {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    ngx_memzero(&name_space, sizeof(sszip_str));

    if (slcf->cache_namespace) {

        if (ngx_http_complex_value(r, slcf->cache_namespace, &value)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        name_space.data = value.len ? value.data : (u_char *) "";
        name_space.len = value.len;
    }

    ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_sszip_ctx_t));
    cln = ngx_pool_cleanup_add(r->pool, 0);

    if (ctx == NULL || cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (sszip_purge_start(ngx_http_sszip_str(&r->args), name_space,
                          (uintptr_t) ctx, ngx_current_msec, &status, text,
                          sizeof(text), &len)
        != SSZIP_STATUS_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (status != 0) {
        ngx_http_sszip_purge_log(r, status, text, len);
        return ngx_http_sszip_purge_send(r, status, text, len);
    }

    cln->handler = ngx_http_sszip_purge_cleanup;
    cln->data = ctx;

    ctx->request = r;

    ctx->wake.handler = ngx_http_sszip_purge_wake_handler;
    ctx->wake.data = ctx;
    ctx->wake.log = r->connection->log;

    ngx_add_timer(&ctx->wake, NGX_HTTP_SSZIP_PURGE_WAIT);

    r->main->count++;
    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    ngx_http_sszip_wake();

    return NGX_DONE;
}


static void
ngx_http_sszip_purge_wake_handler(ngx_event_t *ev)
{
    size_t                 len;
    u_char                 text[NGX_HTTP_SSZIP_PURGE_LEN];
    uint16_t               status;
    ngx_int_t              rc;
    ngx_connection_t      *c;
    ngx_http_request_t    *r;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ev->data;
    r = ctx->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    if (sszip_purge_claim((uintptr_t) ctx, &status, text, sizeof(text), &len)
        != SSZIP_STATUS_OK)
    {
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;

    } else {
        ngx_http_sszip_purge_log(r, status, text, len);
        rc = ngx_http_sszip_purge_send(r, status, text, len);
    }

    /* it is not to be woken a second time */
    ctx->request = NULL;

    if (ev->timer_set) {
        ngx_del_timer(ev);
    }

    if (ev->posted) {
        ngx_delete_posted_event(ev);
    }

    ngx_http_finalize_request(r, rc);
    ngx_http_run_posted_requests(c);
}


static void
ngx_http_sszip_purge_cleanup(void *data)
{
    ngx_http_sszip_ctx_t  *ctx = data;

    size_t    len;
    uint16_t  status;

    if (ctx->request == NULL) {
        return;
    }

    if (ctx->wake.timer_set) {
        ngx_del_timer(&ctx->wake);
    }

    if (ctx->wake.posted) {
        ngx_delete_posted_event(&ctx->wake);
    }

    /* whoever asked has gone; the purge goes on */

    (void) sszip_purge_claim((uintptr_t) ctx, &status, NULL, 0, &len);

    ngx_http_sszip_purge_log(ctx->request, 0, NULL, 0);
}


/* what was purged; the line itself says by whom */

static void
ngx_http_sszip_purge_log(ngx_http_request_t *r, uint16_t status, u_char *text,
    size_t len)
{
    ngx_uint_t  level;

    if (status == 0) {
        ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                      "sszip: purge of \"%V\": the client went before its end",
                      &r->args);
        return;
    }

    while (len && text[len - 1] <= ' ') {
        len--;
    }

    level = (status < 500) ? NGX_LOG_NOTICE : NGX_LOG_ERR;

    ngx_log_error(level, r->connection->log, 0,
                  "sszip: purge of \"%V\": %ui %*s", &r->args,
                  (ngx_uint_t) status, len, text);
}


static ngx_int_t
ngx_http_sszip_purge_send(ngx_http_request_t *r, uint16_t status, u_char *text,
    size_t len)
{
    u_char       *p;
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t   out;

    b = ngx_calloc_buf(r->pool);
    p = ngx_pnalloc(r->pool, len + 1);

    if (b == NULL || p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->pos = p;
    b->last = ngx_cpymem(p, text, len);
    *b->last++ = LF;
    b->memory = 1;
    b->last_buf = 1;
    b->last_in_chain = 1;

    r->headers_out.status = status;
    r->headers_out.content_length_n = len + 1;

    if (status == 200) {
        ngx_str_set(&r->headers_out.content_type, "application/json");

    } else {
        ngx_str_set(&r->headers_out.content_type, "application/problem+json");
    }

    r->headers_out.content_type_len = r->headers_out.content_type.len;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}
