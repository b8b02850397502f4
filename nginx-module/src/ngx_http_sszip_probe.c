
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * Probes of the node are sent in background subrequests, like background
 * updates: from the content phase on, at the same location, and below the
 * same prefix as the request that caused them.  The next request on the
 * client's connection is processed after the probe, which therefore has a
 * timeout of at most one second.
 */


static ngx_int_t ngx_http_sszip_send_probe(ngx_http_request_t *r,
    sszip_exchange *exchange);
static ngx_int_t ngx_http_sszip_probe_path(ngx_http_request_t *r,
    sszip_exchange *exchange, ngx_str_t *path, ngx_str_t *out);
static ngx_http_variable_value_t *ngx_http_sszip_probe_variables(
    ngx_http_request_t *r);
static void ngx_http_sszip_set_probe_request(ngx_http_request_t *r,
    ngx_str_t *unparsed_uri, ngx_http_variable_value_t *variables);
static void ngx_http_sszip_probe_timeout(ngx_event_t *ev);


/* starts the probes of a node that the core requests */

void
ngx_http_sszip_start_probe(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    sszip_str                   url;
    sszip_exchange             *exchange;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    ngx_memzero(&url, sizeof(sszip_str));

    if (slcf->url->lengths != NULL
        && ngx_http_sszip_value(r, slcf->url, &url) != NGX_OK)
    {
        return;
    }

    do {
        exchange = sszip_exchange_take_probe(ctx->exchange, url,
                                             ngx_http_sszip_now());

    } while (exchange != NULL
             && ngx_http_sszip_send_probe(r, exchange) == NGX_OK);
}


/* sends a probe as a background subrequest */

static ngx_int_t
ngx_http_sszip_send_probe(ngx_http_request_t *r, sszip_exchange *exchange)
{
    ngx_str_t                   uri, unparsed_uri;
    ngx_http_request_t         *sr;
    ngx_http_sszip_ctx_t       *probe;
    ngx_http_variable_value_t  *variables;

    probe = ngx_http_sszip_create_ctx(r, exchange);
    if (probe == NULL) {
        return NGX_ERROR;
    }

    variables = ngx_http_sszip_probe_variables(r);

    if (variables == NULL
        || ngx_http_sszip_probe_path(r, exchange, &r->uri, &uri) != NGX_OK)
    {
        ngx_http_sszip_free_exchange(probe);
        return NGX_ERROR;
    }

    unparsed_uri = uri;

    if (r->valid_unparsed_uri
        && ngx_http_sszip_probe_path(r, exchange, &r->unparsed_uri,
                                     &unparsed_uri)
           != NGX_OK)
    {
        ngx_http_sszip_free_exchange(probe);
        return NGX_ERROR;
    }

    sr = ngx_http_sszip_background(r, probe, &uri, NULL);
    if (sr == NULL) {
        return NGX_ERROR;
    }

    probe->wake.handler = ngx_http_sszip_probe_timeout;
    probe->wake.data = sr;
    probe->wake.log = r->connection->log;

    ngx_add_timer(&probe->wake,
                  (ngx_msec_t) sszip_exchange_next_timer(exchange));

    ngx_http_sszip_set_probe_request(sr, &unparsed_uri, variables);

    return NGX_OK;
}


/* returns the path of a probe below a path of the request */

static ngx_int_t
ngx_http_sszip_probe_path(ngx_http_request_t *r,
    sszip_exchange *exchange, ngx_str_t *path, ngx_str_t *out)
{
    ngx_str_t  value;
    sszip_str  str;

    if (sszip_exchange_probe_path(exchange, ngx_http_sszip_str(path), &str)
        != SSZIP_STATUS_OK)
    {
        return NGX_DECLINED;
    }

    value = ngx_http_sszip_ngx_str(str);

    out->len = value.len;
    out->data = ngx_pstrdup(r->pool, &value);

    return (out->data != NULL) ? NGX_OK : NGX_ERROR;
}


/*
 * Copies the variables of a request: a probe has variables of its own, so that
 * their values do not appear in a log of the client's request.  A probe has no
 * body, so its variables with the length of a body have no value.
 */

static ngx_http_variable_value_t *
ngx_http_sszip_probe_variables(ngx_http_request_t *r)
{
    size_t                       size;
    ngx_uint_t                   i;
    ngx_http_core_main_conf_t   *cmcf;
    ngx_http_variable_value_t   *variables, *v;
    ngx_http_sszip_main_conf_t  *smcf;

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    smcf = ngx_http_get_module_main_conf(r, ngx_http_sszip_module);

    size = cmcf->variables.nelts * sizeof(ngx_http_variable_value_t);

    variables = ngx_palloc(r->pool, size);
    if (variables == NULL) {
        return NULL;
    }

    ngx_memcpy(variables, r->variables, size);

    for (i = 0; i < NGX_HTTP_SSZIP_LENGTHS; i++) {
        v = &variables[smcf->lengths[i]];

        v->valid = 0;
        v->not_found = 1;
        v->no_cacheable = 0;
    }

    return variables;
}


/* makes the subrequest a GET, whatever the client's method */

static void
ngx_http_sszip_set_probe_request(ngx_http_request_t *r, ngx_str_t *unparsed_uri,
    ngx_http_variable_value_t *variables)
{
    r->method = NGX_HTTP_GET;
    r->method_name = ngx_http_core_get_method;
    r->unparsed_uri = *unparsed_uri;
    r->request_body = NULL;

    r->headers_in.content_length = NULL;
    r->headers_in.content_length_n = -1;
    r->headers_in.chunked = 0;

    r->variables = variables;
}


/*
 * Finishes a probe that has timed out, as if there had been no usable
 * response.
 */

static void
ngx_http_sszip_probe_timeout(ngx_event_t *ev)
{
    u_char                 text[NGX_HTTP_SSZIP_LOG_TEXT];
    ngx_str_t              uri;
    ngx_connection_t      *c;
    ngx_http_request_t    *r;
    ngx_http_upstream_t   *u;
    ngx_http_sszip_ctx_t  *ctx;

    r = ev->data;
    c = r->connection;
    u = r->upstream;

    ngx_http_set_log_request(c->log, r);

    uri = ngx_http_sszip_log_text(&r->uri, text);

    ngx_log_error(NGX_LOG_INFO, c->log, 0,
                  "sszip: the node did not respond to the probe \"%V\" in "
                  "time", &uri);

    ctx = ngx_http_sszip_update_ctx(r);

    ctx->step.action = SSZIP_ACTION_PASS;

    ngx_http_sszip_free_exchange(ctx);

    if (u != NULL && u->cleanup != NULL) {
        (*u->cleanup)(r);
    }

    ngx_http_run_posted_requests(c);
}
