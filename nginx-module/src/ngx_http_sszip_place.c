
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * What chose an answer: the node that a location passes requests to, as the
 * directive names it (with what its variables came to), the servers of an
 * upstream block of that name, the port that was asked and the location.  It
 * is what keeps answers apart where the operator has not named them, and it
 * is the same after a reload, in another process and after a restart: nothing
 * in it is the place of a line in a file.
 *
 * nginx's upstream modules keep the text of their directives to themselves,
 * so it is read on its way to them: their directives' handlers are wrapped,
 * and so is the content handler that they set.
 */

typedef struct {
    ngx_str_t                    directive;
    const char                  *module;
    ngx_int_t                  (*heed)(ngx_conf_t *cf,
                                     ngx_http_sszip_loc_conf_t *slcf,
                                     ngx_uint_t i);
    ngx_http_handler_pt          ours;

    /* the module's own */
    ngx_http_handler_pt          handler;
    char                      *(*set)(ngx_conf_t *cf, ngx_command_t *cmd,
                                     void *conf);
} ngx_http_sszip_wrapped_t;


static char *ngx_http_sszip_set(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static ngx_int_t ngx_http_sszip_heed_pass(ngx_conf_t *cf,
    ngx_http_sszip_loc_conf_t *slcf, ngx_uint_t i);
static ngx_int_t ngx_http_sszip_heed_header(ngx_conf_t *cf,
    ngx_http_sszip_loc_conf_t *slcf, ngx_uint_t i);
static ngx_module_t *ngx_http_sszip_module_named(ngx_conf_t *cf,
    const char *name);
static ngx_http_upstream_srv_conf_t *ngx_http_sszip_block(
    ngx_http_upstream_main_conf_t *umcf, ngx_str_t *url);
static ngx_int_t ngx_http_sszip_place_text(ngx_pool_t *pool,
    ngx_http_upstream_main_conf_t *umcf, ngx_str_t *url, ngx_str_t *location,
    ngx_str_t *place);

static ngx_int_t ngx_http_sszip_proxy_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_fastcgi_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_uwsgi_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_scgi_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_grpc_handler(ngx_http_request_t *r);


/*
 * A block without a handler of its own keeps that of the block before ("if"
 * in a location), so each module's handler has a stand-in of its own.
 */

static ngx_http_sszip_wrapped_t  ngx_http_sszip_wrapped[] = {

    { ngx_string("proxy_pass"), "ngx_http_proxy_module",
      ngx_http_sszip_heed_pass, ngx_http_sszip_proxy_handler, NULL, NULL },

    { ngx_string("fastcgi_pass"), "ngx_http_fastcgi_module",
      ngx_http_sszip_heed_pass, ngx_http_sszip_fastcgi_handler, NULL, NULL },

    { ngx_string("uwsgi_pass"), "ngx_http_uwsgi_module",
      ngx_http_sszip_heed_pass, ngx_http_sszip_uwsgi_handler, NULL, NULL },

    { ngx_string("scgi_pass"), "ngx_http_scgi_module",
      ngx_http_sszip_heed_pass, ngx_http_sszip_scgi_handler, NULL, NULL },

    { ngx_string("grpc_pass"), "ngx_http_grpc_module",
      ngx_http_sszip_heed_pass, ngx_http_sszip_grpc_handler, NULL, NULL },

    { ngx_string("proxy_set_header"), "ngx_http_proxy_module",
      ngx_http_sszip_heed_header, NULL, NULL, NULL },

    { ngx_null_string, NULL, NULL, NULL, NULL, NULL }
};


#define ngx_http_sszip_stand_in(name, i)                                      \
                                                                              \
static ngx_int_t                                                              \
name(ngx_http_request_t *r)                                                   \
{                                                                             \
    return ngx_http_sszip_pass_on(r, ngx_http_sszip_wrapped[i].handler);      \
}

ngx_http_sszip_stand_in(ngx_http_sszip_proxy_handler, 0)
ngx_http_sszip_stand_in(ngx_http_sszip_fastcgi_handler, 1)
ngx_http_sszip_stand_in(ngx_http_sszip_uwsgi_handler, 2)
ngx_http_sszip_stand_in(ngx_http_sszip_scgi_handler, 3)
ngx_http_sszip_stand_in(ngx_http_sszip_grpc_handler, 4)


/* before the configuration is read; the table outlives a configuration */

void
ngx_http_sszip_wrap_directives(ngx_conf_t *cf)
{
    ngx_module_t              *module;
    ngx_command_t             *cmd;
    ngx_http_sszip_wrapped_t  *w;

    for (w = ngx_http_sszip_wrapped; w->module; w++) {

        module = ngx_http_sszip_module_named(cf, w->module);

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


static ngx_module_t *
ngx_http_sszip_module_named(ngx_conf_t *cf, const char *name)
{
    ngx_uint_t  i;

    for (i = 0; cf->cycle->modules[i]; i++) {

        if (ngx_strcmp(cf->cycle->modules[i]->name, name) == 0) {
            return cf->cycle->modules[i];
        }
    }

    return NULL;
}


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
        || ngx_http_sszip_module_named(cf, "ngx_http_sszip_module")
           != &ngx_http_sszip_module)
    {
        /* or this is not loaded any more, or another build of it is */
        return rv;
    }

    slcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_sszip_module);

    return (w->heed(cf, slcf, i) == NGX_OK) ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_int_t
ngx_http_sszip_heed_pass(ngx_conf_t *cf, ngx_http_sszip_loc_conf_t *slcf,
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
    clcf->handler = ngx_http_sszip_wrapped[i].ours;

    return ngx_http_compile_complex_value(&ccv);
}


/*
 * A length of the operator's own making may be that of the client's body, so
 * the node gets no other: of a batch all is asked.
 */

static ngx_int_t
ngx_http_sszip_heed_header(ngx_conf_t *cf, ngx_http_sszip_loc_conf_t *slcf,
    ngx_uint_t i)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    slcf->sets_fields = 1;

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


/* once all upstream blocks are known: where no variable has a say in it */

ngx_int_t
ngx_http_sszip_init_places(ngx_conf_t *cf, ngx_http_sszip_main_conf_t *smcf)
{
    ngx_uint_t                      i;
    ngx_http_sszip_loc_conf_t     **slcfs, *slcf;
    ngx_http_upstream_main_conf_t  *umcf;

    umcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_upstream_module);

    slcfs = smcf->caching.elts;

    for (i = 0; i < smcf->caching.nelts; i++) {

        slcf = slcfs[i];

        if (slcf->cache_namespace != NULL) {
            continue;
        }

        if (slcf->url == NULL) {

            if (slcf->answers && !slcf->purges && smcf->owner != NULL) {
                ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                              "\"sszip_cache on\" has no effect in location "
                              "\"%V\": nothing tells what makes its answers; "
                              "it needs an \"sszip_cache_namespace\"",
                              &slcf->location);
                slcf->caches = 0;
                slcf->reads = 0;
            }

            slcf->place = slcf->location;
            continue;
        }

        if (slcf->url->lengths != NULL) {
            continue;
        }

        if (ngx_http_sszip_place_text(cf->pool, umcf, &slcf->url->value,
                                      &slcf->location, &slcf->place)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sszip_place(ngx_http_request_t *r, sszip_asked *asked)
{
    ngx_str_t                       url, place;
    ngx_http_sszip_loc_conf_t      *slcf;
    ngx_http_upstream_main_conf_t  *umcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    /* of the listening socket: no call for it */
    asked->port = ngx_inet_get_port(r->connection->local_sockaddr);

    /* as nginx reads it, of an absolute target, too */
    asked->host = ngx_http_sszip_str(&r->headers_in.server);

    if (slcf->url == NULL || slcf->url->lengths == NULL) {
        asked->place = ngx_http_sszip_str(&slcf->place);
        return NGX_OK;
    }

    umcf = ngx_http_get_module_main_conf(r, ngx_http_upstream_module);

    if (ngx_http_complex_value(r, slcf->url, &url) != NGX_OK
        || ngx_http_sszip_place_text(r->pool, umcf, &url, &slcf->location,
                                     &place)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    asked->place = ngx_http_sszip_str(&place);

    return NGX_OK;
}


/* a line feed ends each part: no configuration has one in a name */

static ngx_int_t
ngx_http_sszip_place_text(ngx_pool_t *pool,
    ngx_http_upstream_main_conf_t *umcf, ngx_str_t *url, ngx_str_t *location,
    ngx_str_t *place)
{
    size_t                         len;
    u_char                        *p;
    ngx_uint_t                     i, n;
    ngx_http_upstream_server_t    *server;
    ngx_http_upstream_srv_conf_t  *uscf;

    uscf = ngx_http_sszip_block(umcf, url);

    server = NULL;
    n = 0;

    if (uscf != NULL && uscf->servers != NULL) {
        server = uscf->servers->elts;
        n = uscf->servers->nelts;
    }

    len = location->len + 1 + url->len + 1;

    for (i = 0; i < n; i++) {
        len += server[i].name.len + 1;
    }

    p = ngx_pnalloc(pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    place->data = p;
    place->len = len;

    p = ngx_sprintf(p, "%V\n%V\n", location, url);

    for (i = 0; i < n; i++) {
        p = ngx_sprintf(p, "%V\n", &server[i].name);
    }

    return NGX_OK;
}


/* the upstream block that a URL names, or NULL */

static ngx_http_upstream_srv_conf_t *
ngx_http_sszip_block(ngx_http_upstream_main_conf_t *umcf, ngx_str_t *url)
{
    u_char                         *p, *last, *host;
    size_t                          len;
    ngx_uint_t                      i;
    ngx_http_upstream_srv_conf_t  **uscfp;

    host = url->data;
    last = url->data + url->len;

    for (p = host; p + 3 <= last; p++) {
        if (p[0] == ':' && p[1] == '/' && p[2] == '/') {
            host = p + 3;
            break;
        }
    }

    for (p = host; p < last && *p != '/' && *p != '?'; p++) { /* void */ }

    len = p - host;
    uscfp = umcf->upstreams.elts;

    for (i = 0; i < umcf->upstreams.nelts; i++) {

        if ((uscfp[i]->flags & NGX_HTTP_UPSTREAM_CREATE)
            && uscfp[i]->host.len == len
            && ngx_strncasecmp(uscfp[i]->host.data, host, len) == 0)
        {
            return uscfp[i];
        }
    }

    return NULL;
}


/* what proxy_hide_header and the like hide, on hits as on misses */

ngx_int_t
ngx_http_sszip_hide(ngx_conf_t *cf, ngx_http_sszip_loc_conf_t *slcf)
{
    size_t                     n;
    ngx_str_t                 *hidden;
    sszip_str                 *names;
    ngx_uint_t                 i;
    ngx_module_t              *module;
    ngx_http_conf_ctx_t       *ctx;
    ngx_http_upstream_conf_t  *uconf;

    module = slcf->pass ? ngx_http_sszip_module_named(cf, slcf->pass) : NULL;

    if (module == NULL) {
        return NGX_OK;
    }

    /* what is of all upstream modules is the first thing in each one's own */

    ctx = cf->ctx;
    uconf = ctx->loc_conf[module->ctx_index];

    if (uconf->hide_headers == NULL
        || uconf->hide_headers == NGX_CONF_UNSET_PTR)
    {
        return NGX_OK;
    }

    hidden = uconf->hide_headers->elts;
    n = uconf->hide_headers->nelts;

    names = ngx_palloc(cf->temp_pool, (n + 1) * sizeof(sszip_str));
    if (names == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        names[i] = ngx_http_sszip_str(&hidden[i]);
    }

    return sszip_directives_hide(slcf->directives, names, n)
           == SSZIP_STATUS_OK ? NGX_OK : NGX_ERROR;
}
