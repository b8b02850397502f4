
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * The route of a response: the upstream of the location, as the directive
 * names it (with its variables evaluated), the servers of an upstream block
 * of that name, the port of the request, and the location.  It separates
 * responses where the operator has not set a namespace.
 *
 * nginx's upstream modules do not expose the text of their directives, so it
 * is read on its way to them: the handlers of their directives are wrapped,
 * and so is the content handler that they set.
 */

typedef struct {
    ngx_str_t                    directive;
    const char                  *module;
    ngx_int_t                  (*apply)(ngx_conf_t *cf,
                                     ngx_http_sszip_loc_conf_t *slcf,
                                     ngx_uint_t i);
    ngx_http_handler_pt          wrapper;

    /* handlers of the module itself */
    ngx_http_handler_pt          handler;
    char                      *(*set)(ngx_conf_t *cf, ngx_command_t *cmd,
                                     void *conf);
} ngx_http_sszip_wrapped_t;


static char *ngx_http_sszip_set(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static ngx_int_t ngx_http_sszip_wrap_proxy_pass(ngx_conf_t *cf,
    ngx_http_sszip_loc_conf_t *slcf, ngx_uint_t i);
static ngx_int_t ngx_http_sszip_wrap_proxy_set_header(ngx_conf_t *cf,
    ngx_http_sszip_loc_conf_t *slcf, ngx_uint_t i);
static ngx_int_t ngx_http_sszip_wrap_proxy_http_version(ngx_conf_t *cf,
    ngx_http_sszip_loc_conf_t *slcf, ngx_uint_t i);
static ngx_module_t *ngx_http_sszip_find_module(ngx_conf_t *cf,
    const char *name);
static ngx_int_t ngx_http_sszip_proxy_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_fastcgi_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_uwsgi_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_scgi_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_grpc_handler(ngx_http_request_t *r);


/*
 * A block without a handler of its own inherits the handler of the enclosing
 * block ("if" in a location), so each module's handler has a wrapper of its
 * own.
 */

static ngx_http_sszip_wrapped_t  ngx_http_sszip_wrapped[] = {

    { ngx_string("proxy_pass"), "ngx_http_proxy_module",
      ngx_http_sszip_wrap_proxy_pass, ngx_http_sszip_proxy_handler,
      NULL, NULL },

    { ngx_string("fastcgi_pass"), "ngx_http_fastcgi_module",
      ngx_http_sszip_wrap_proxy_pass, ngx_http_sszip_fastcgi_handler,
      NULL, NULL },

    { ngx_string("uwsgi_pass"), "ngx_http_uwsgi_module",
      ngx_http_sszip_wrap_proxy_pass, ngx_http_sszip_uwsgi_handler,
      NULL, NULL },

    { ngx_string("scgi_pass"), "ngx_http_scgi_module",
      ngx_http_sszip_wrap_proxy_pass, ngx_http_sszip_scgi_handler,
      NULL, NULL },

    { ngx_string("grpc_pass"), "ngx_http_grpc_module",
      ngx_http_sszip_wrap_proxy_pass, ngx_http_sszip_grpc_handler,
      NULL, NULL },

    { ngx_string("proxy_set_header"), "ngx_http_proxy_module",
      ngx_http_sszip_wrap_proxy_set_header, NULL, NULL, NULL },

    { ngx_string("proxy_http_version"), "ngx_http_proxy_module",
      ngx_http_sszip_wrap_proxy_http_version, NULL, NULL, NULL },

    { ngx_null_string, NULL, NULL, NULL, NULL, NULL }
};


#define ngx_http_sszip_define_handler(name, i)                                \
                                                                              \
static ngx_int_t                                                              \
name(ngx_http_request_t *r)                                                   \
{                                                                             \
    return ngx_http_sszip_call_handler(r, ngx_http_sszip_wrapped[i].handler); \
}

ngx_http_sszip_define_handler(ngx_http_sszip_proxy_handler, 0)
ngx_http_sszip_define_handler(ngx_http_sszip_fastcgi_handler, 1)
ngx_http_sszip_define_handler(ngx_http_sszip_uwsgi_handler, 2)
ngx_http_sszip_define_handler(ngx_http_sszip_scgi_handler, 3)
ngx_http_sszip_define_handler(ngx_http_sszip_grpc_handler, 4)


/*
 * Replaces the handlers of the other modules' directives that define an
 * upstream.  Called before the configuration is read; the table outlives a
 * configuration.
 */

void
ngx_http_sszip_wrap_directives(ngx_conf_t *cf)
{
    ngx_module_t              *module;
    ngx_command_t             *cmd;
    ngx_http_sszip_wrapped_t  *w;

    for (w = ngx_http_sszip_wrapped; w->module; w++) {

        module = ngx_http_sszip_find_module(cf, w->module);

        if (module == NULL) {
            continue;
        }

        for (cmd = module->commands; cmd->name.len; cmd++) {

            if (ngx_strcmp(cmd->name.data, w->directive.data) == 0
                && cmd->set != ngx_http_sszip_set)
            {
                w->set = cmd->set;
                cmd->set = ngx_http_sszip_set;
            }
        }
    }
}


/* returns the module of that name in the configuration's cycle */

static ngx_module_t *
ngx_http_sszip_find_module(ngx_conf_t *cf, const char *name)
{
    ngx_uint_t  i;

    for (i = 0; cf->cycle->modules[i]; i++) {

        if (ngx_strcmp(cf->cycle->modules[i]->name, name) == 0) {
            return cf->cycle->modules[i];
        }
    }

    return NULL;
}


/*
 * Calls the wrapped handler of a directive, and then applies the directive to
 * sszip's location.
 */

static char *
ngx_http_sszip_set(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                       *rv;
    ngx_uint_t                  i;
    ngx_http_sszip_wrapped_t   *w;
    ngx_http_sszip_loc_conf_t  *slcf;

    for (i = 0; /* void */ ; i++) {

        w = &ngx_http_sszip_wrapped[i];

        if (w->module == NULL) {
            return NGX_CONF_ERROR;
        }

        if (w->set && ngx_strcmp(cmd->name.data, w->directive.data) == 0) {
            break;
        }
    }

    rv = w->set(cf, cmd, conf);

    if (rv != NGX_CONF_OK
        || ngx_http_sszip_find_module(cf, "ngx_http_sszip_module")
           != &ngx_http_sszip_module)
    {
        /* this module is not loaded any more, or is another build of it */
        return rv;
    }

    slcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_sszip_module);

    return (w->apply(cf, slcf, i) == NGX_OK) ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* records the upstream of a location, and wraps its content handler */

static ngx_int_t
ngx_http_sszip_wrap_proxy_pass(ngx_conf_t *cf, ngx_http_sszip_loc_conf_t *slcf,
    ngx_uint_t i)
{
    ngx_str_t                         *value;
    ngx_http_core_loc_conf_t          *clcf;
    ngx_http_compile_complex_value_t   ccv;

    value = cf->args->elts;

    slcf->pass = ngx_http_sszip_wrapped[i].module;
    slcf->url = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));

    if (slcf->url == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = &value[1];
    ccv.complex_value = slcf->url;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    ngx_http_sszip_wrapped[i].handler = clcf->handler;
    clcf->handler = ngx_http_sszip_wrapped[i].wrapper;

    return ngx_http_compile_complex_value(&ccv);
}


/*
 * Records the headers that the operator sets for the upstream.  A length that
 * the operator sets may be the length of the client's body, so the upstream
 * must receive no other body: batches are not split.
 */

static ngx_int_t
ngx_http_sszip_wrap_proxy_set_header(ngx_conf_t *cf,
    ngx_http_sszip_loc_conf_t *slcf, ngx_uint_t i)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    slcf->sets_headers = 1;

    if (ngx_strcasecmp(value[1].data, (u_char *) "Content-Length") == 0
        && ngx_strcmp(value[2].data, "$content_length") != 0
        && ngx_strcmp(value[2].data, "$http_content_length") != 0)
    {
        slcf->sets_length = 1;
    }

    if (ngx_strcasecmp(value[1].data, (u_char *) "Accept-Encoding") == 0
        && ngx_strchr(value[2].data, '$') != NULL)
    {
        slcf->sets_codings = 1;
    }

    return NGX_OK;
}


/* records the HTTP version of upstream requests */

static ngx_int_t
ngx_http_sszip_wrap_proxy_http_version(ngx_conf_t *cf,
    ngx_http_sszip_loc_conf_t *slcf, ngx_uint_t i)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    slcf->http_version = (ngx_strcmp(value[1].data, "1.0") == 0)
                         ? NGX_HTTP_VERSION_10 : NGX_HTTP_VERSION_11;

    return NGX_OK;
}


/*
 * Whether upstream requests use HTTP/1.0, so that the end of a connection may
 * be the end of a response.
 */

ngx_uint_t
ngx_http_sszip_upstream_uses_http_1_0(ngx_http_sszip_loc_conf_t *slcf)
{
    if (slcf->pass == NULL
        || ngx_strcmp(slcf->pass, "ngx_http_proxy_module") != 0)
    {
        return 0;
    }

#if (nginx_version < 1029007)

    if (slcf->http_version == 0) {
        return 1;
    }

#endif

    return slcf->http_version == NGX_HTTP_VERSION_10;
}


/*
 * Adds the upstream groups and their servers to the core's validated
 * configuration.
 */

ngx_int_t
ngx_http_sszip_add_upstreams(ngx_conf_t *cf, sszip_validated_config *config)
{
    sszip_str                       *names;
    ngx_uint_t                       i, j, n;
    ngx_http_upstream_server_t      *server;
    ngx_http_upstream_srv_conf_t   **uscfp;
    ngx_http_upstream_main_conf_t   *umcf;

    umcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_upstream_module);

    uscfp = umcf->upstreams.elts;

    for (i = 0; i < umcf->upstreams.nelts; i++) {

        if (!(uscfp[i]->flags & NGX_HTTP_UPSTREAM_CREATE)
            || uscfp[i]->servers == NULL)
        {
            continue;
        }

        server = uscfp[i]->servers->elts;
        n = uscfp[i]->servers->nelts;

        names = ngx_palloc(cf->temp_pool, n * sizeof(sszip_str));
        if (names == NULL) {
            return NGX_ERROR;
        }

        for (j = 0; j < n; j++) {
            names[j] = ngx_http_sszip_str(&server[j].name);
        }

        if (sszip_validated_config_add_upstream(config,
                                         ngx_http_sszip_str(&uscfp[i]->host),
                                         names, n)
            != SSZIP_STATUS_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * Sets the port, the host and the upstream's URL that identify the route of a
 * lookup.
 */

ngx_int_t
ngx_http_sszip_set_lookup_route(ngx_http_request_t *r,
    sszip_lookup_request *lookup)
{
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    /* the port of the listening socket: no system call is needed */
    lookup->port = ngx_inet_get_port(r->connection->local_sockaddr);

    /* the host as nginx reads it, also from an absolute target */
    lookup->host = ngx_http_sszip_str(&r->headers_in.server);

    if (slcf->cache_namespace != NULL
        || slcf->url == NULL
        || slcf->url->lengths == NULL)
    {
        return NGX_OK;
    }

    return ngx_http_sszip_value(r, slcf->url, &lookup->url);
}


/* collects the headers that the location hides from clients */

ngx_int_t
ngx_http_sszip_collect_hidden_headers(ngx_conf_t *cf,
    ngx_http_sszip_loc_conf_t *slcf, sszip_route *route)
{
    ngx_array_t               *hidden;
    ngx_module_t              *module;
    ngx_http_conf_ctx_t       *ctx;
    ngx_http_upstream_conf_t  *uconf;

    module = slcf->pass ? ngx_http_sszip_find_module(cf, slcf->pass) : NULL;

    if (module == NULL) {
        return NGX_OK;
    }

    /* every upstream module's configuration begins with the common one */

    ctx = cf->ctx;
    uconf = ctx->loc_conf[module->ctx_index];
    hidden = uconf->hide_headers;

    if (hidden == NULL || hidden == NGX_CONF_UNSET_PTR) {
        return NGX_OK;
    }

    route->nhidden = hidden->nelts;
    route->hidden = ngx_http_sszip_strs(cf->temp_pool, hidden->elts,
                                        hidden->nelts);

    return (route->hidden != NULL) ? NGX_OK : NGX_ERROR;
}
