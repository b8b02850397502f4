
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


typedef struct {
    ngx_http_sszip_ctx_t         ctx;              /* to be woken */
    uint16_t                     status;
    size_t                       len;
    u_char                       text[NGX_HTTP_SSZIP_PURGE_LEN + 1];
} ngx_http_sszip_purge_t;


static ngx_int_t ngx_http_sszip_purge_handler(ngx_http_request_t *r);
static void ngx_http_sszip_purge_wake_handler(ngx_event_t *ev);
static ngx_int_t ngx_http_sszip_purge_claim(ngx_http_sszip_purge_t *purge);
static void ngx_http_sszip_purge_cleanup(void *data);
static ngx_int_t ngx_http_sszip_purge_send(ngx_http_request_t *r,
    ngx_http_sszip_purge_t *purge);


char *
ngx_http_sszip_cache_purge(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sszip_loc_conf_t  *slcf = conf;

    ngx_str_t                 *value;
    ngx_http_core_loc_conf_t  *clcf;

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

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_sszip_purge_handler(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    sszip_str                name_space;
    ngx_event_t             *wake;
    ngx_pool_cleanup_t      *cln;
    ngx_http_sszip_purge_t  *purge;

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

    purge = ngx_pcalloc(r->pool, sizeof(ngx_http_sszip_purge_t));
    cln = ngx_pool_cleanup_add(r->pool, 0);

    if (purge == NULL
        || cln == NULL
        || ngx_http_sszip_name_space(r, &name_space) != NGX_OK
        || sszip_purge_start(ngx_http_sszip_str(&r->args), name_space,
                             (uintptr_t) purge, ngx_http_sszip_now(),
                             &purge->status, purge->text,
                             NGX_HTTP_SSZIP_PURGE_LEN, &purge->len)
           != SSZIP_STATUS_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (purge->status != 0) {
        return ngx_http_sszip_purge_send(r, purge);
    }

    cln->handler = ngx_http_sszip_purge_cleanup;
    cln->data = purge;

    purge->ctx.request = r;

    wake = &purge->ctx.wake;

    wake->handler = ngx_http_sszip_purge_wake_handler;
    wake->data = purge;
    wake->log = r->connection->log;

    ngx_add_timer(wake, NGX_HTTP_SSZIP_PURGE_WAIT);

    r->main->count++;
    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    ngx_http_sszip_wake();

    return NGX_DONE;
}


static void
ngx_http_sszip_purge_wake_handler(ngx_event_t *ev)
{
    ngx_int_t                rc;
    ngx_connection_t        *c;
    ngx_http_request_t      *r;
    ngx_http_sszip_purge_t  *purge;

    purge = ev->data;
    r = purge->ctx.request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    rc = ngx_http_sszip_purge_claim(purge);

    if (rc == NGX_OK) {
        rc = ngx_http_sszip_purge_send(r, purge);
    }

    ngx_http_finalize_request(r, rc);
    ngx_http_run_posted_requests(c);
}


/* it is not to be woken a second time */

static ngx_int_t
ngx_http_sszip_purge_claim(ngx_http_sszip_purge_t *purge)
{
    purge->ctx.request = NULL;

    ngx_http_sszip_stop_events(&purge->ctx);

    return (sszip_purge_claim((uintptr_t) purge, &purge->status, purge->text,
                              NGX_HTTP_SSZIP_PURGE_LEN, &purge->len)
            == SSZIP_STATUS_OK) ? NGX_OK : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


/* whoever asked has gone; the purge goes on */

static void
ngx_http_sszip_purge_cleanup(void *data)
{
    ngx_http_sszip_purge_t  *purge = data;

    ngx_http_request_t  *r;

    r = purge->ctx.request;

    if (r == NULL) {
        return;
    }

    (void) ngx_http_sszip_purge_claim(purge);

    ngx_log_error(NGX_LOG_NOTICE, r->connection->log, 0,
                  "sszip: purge of \"%V\": the client went before its end",
                  &r->args);
}


/* the log has what was purged; the line itself says by whom */

static ngx_int_t
ngx_http_sszip_purge_send(ngx_http_request_t *r, ngx_http_sszip_purge_t *purge)
{
    ngx_str_t                 type;
    ngx_uint_t                level;
    ngx_http_complex_value_t  cv;

    while (purge->len && purge->text[purge->len - 1] <= ' ') {
        purge->len--;
    }

    level = (purge->status < 500) ? NGX_LOG_NOTICE : NGX_LOG_ERR;

    ngx_log_error(level, r->connection->log, 0,
                  "sszip: purge of \"%V\": %ui %*s", &r->args,
                  (ngx_uint_t) purge->status, purge->len, purge->text);

    if (purge->status == NGX_HTTP_OK) {
        ngx_str_set(&type, "application/json");

    } else {
        ngx_str_set(&type, "application/problem+json");
    }

    ngx_memzero(&cv, sizeof(ngx_http_complex_value_t));

    purge->text[purge->len] = LF;

    cv.value.data = purge->text;
    cv.value.len = purge->len + 1;

    return ngx_http_send_response(r, purge->status, &type, &cv);
}
