
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


static char *ngx_http_sszip_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
#if (NGX_THREADS)
static char *ngx_http_sszip_thread_pool(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
#endif
static char *ngx_http_sszip_report_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    sszip_status status, sszip_str *text);
static void *ngx_http_sszip_create_main_conf(ngx_conf_t *cf);
static void *ngx_http_sszip_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_sszip_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static ngx_int_t ngx_http_sszip_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_sszip_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_sszip_init_process(ngx_cycle_t *cycle);
static void ngx_http_sszip_exit_process(ngx_cycle_t *cycle);
static void ngx_http_sszip_free_validated_config(void *data);
static void ngx_http_sszip_check_routes(ngx_conf_t *cf,
    ngx_http_sszip_main_conf_t *smcf);


#define NGX_HTTP_SSZIP_ANY_CONF                                               \
    NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF


#define ngx_http_sszip_own(name, type, set)                                   \
    { ngx_string(name), type, set, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL }

#define ngx_http_sszip_slot(name, type, set, field, post)                     \
    { ngx_string(name), type, set, NGX_HTTP_LOC_CONF_OFFSET,                  \
      offsetof(ngx_http_sszip_loc_conf_t, field), post }

/* directives that the core parses, checks and inherits, as in all hosts */

#define ngx_http_sszip_rule(name, type)                                       \
    ngx_http_sszip_own(name, NGX_HTTP_SSZIP_ANY_CONF|type,                    \
                       ngx_http_sszip_directive)


static ngx_conf_post_t  ngx_http_sszip_purge_post = {
    ngx_http_sszip_cache_purge
};


static ngx_conf_post_t  ngx_http_sszip_status_post = {
    ngx_http_sszip_report_status
};


static ngx_command_t  ngx_http_sszip_commands[] = {

    ngx_http_sszip_rule("sszip", NGX_HTTP_LIF_CONF|NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_types", NGX_CONF_1MORE),
    ngx_http_sszip_rule("sszip_min_length", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_comp_level", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_max_oneshot", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_hold", NGX_CONF_TAKE12),
    ngx_http_sszip_rule("sszip_stream_level", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_zstd", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_zstd_level", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_buffers", NGX_CONF_TAKE2),
    ngx_http_sszip_rule("sszip_memory", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_upstream_encoding", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_request_decoding", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_ssz", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_ssz_preset", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_ssz_max_size", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_ssz_hold", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_ssz_concurrency", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_ssz_request", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_ssz_witness", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_batch_max", NGX_CONF_TAKE12),
    ngx_http_sszip_rule("sszip_method", NGX_CONF_2MORE),
    ngx_http_sszip_rule("sszip_max_answer", NGX_CONF_TAKE2),
    ngx_http_sszip_rule("sszip_logs_max_range", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_upgrade", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_query", NGX_CONF_TAKE1),

    ngx_http_sszip_rule("sszip_cache", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_get", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_valid", NGX_CONF_TAKE2),
    ngx_http_sszip_rule("sszip_cache_method", NGX_CONF_TAKE23),
    ngx_http_sszip_rule("sszip_cache_max_entry", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_max_request", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_credentials", NGX_CONF_1MORE),
    ngx_http_sszip_rule("sszip_cache_lock", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_lock_timeout", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_use_stale", NGX_CONF_1MORE),
    ngx_http_sszip_rule("sszip_cache_background_update", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_head", NGX_CONF_1MORE),
    ngx_http_sszip_rule("sszip_verify", NGX_CONF_TAKE12),
    ngx_http_sszip_rule("sszip_logs_split", NGX_CONF_TAKE12),
    ngx_http_sszip_rule("sszip_logs_from_receipts", NGX_CONF_TAKE1),

    ngx_http_sszip_own("sszip_cache_memory", NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
                       ngx_http_sszip_directive),
    ngx_http_sszip_own("sszip_cache_owner", NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
                       ngx_http_sszip_directive),
    ngx_http_sszip_own("sszip_cache_lookup_timeout",
                       NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
                       ngx_http_sszip_directive),
    ngx_http_sszip_own("sszip_cache_path", NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
                       ngx_http_sszip_directive),
    ngx_http_sszip_own("sszip_cache_fleet", NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
                       ngx_http_sszip_directive),

    ngx_http_sszip_slot("sszip_cache_purge", NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
                        ngx_conf_set_flag_slot, purges,
                        &ngx_http_sszip_purge_post),
    ngx_http_sszip_slot("sszip_status", NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
                        ngx_conf_set_flag_slot, reports_status,
                        &ngx_http_sszip_status_post),
    ngx_http_sszip_slot("sszip_cache_namespace",
                        NGX_HTTP_SSZIP_ANY_CONF|NGX_CONF_TAKE1,
                        ngx_http_set_complex_value_slot, cache_namespace, NULL),
    ngx_http_sszip_slot("sszip_cache_bypass",
                        NGX_HTTP_SSZIP_ANY_CONF|NGX_CONF_1MORE,
                        ngx_http_set_predicate_slot, cache_bypass, NULL),
    ngx_http_sszip_slot("sszip_no_cache",
                        NGX_HTTP_SSZIP_ANY_CONF|NGX_CONF_1MORE,
                        ngx_http_set_predicate_slot, no_cache, NULL),

#if (NGX_THREADS)
    ngx_http_sszip_own("sszip_thread_pool",
                       NGX_HTTP_SSZIP_ANY_CONF|NGX_CONF_TAKE1,
                       ngx_http_sszip_thread_pool),
#endif

    ngx_null_command
};


static ngx_http_module_t  ngx_http_sszip_module_ctx = {
    ngx_http_sszip_preconfiguration,       /* preconfiguration */
    ngx_http_sszip_init,                   /* postconfiguration */

    ngx_http_sszip_create_main_conf,       /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_sszip_create_loc_conf,        /* create location configuration */
    ngx_http_sszip_merge_loc_conf          /* merge location configuration */
};


ngx_module_t  ngx_http_sszip_module = {
    NGX_MODULE_V1,
    &ngx_http_sszip_module_ctx,            /* module context */
    ngx_http_sszip_commands,               /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    ngx_http_sszip_init_process,           /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_sszip_exit_process,           /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


/* passes a directive of sszip to the core, which parses its values */

static char *
ngx_http_sszip_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sszip_loc_conf_t  *slcf = conf;

    ngx_str_t                   *value;
    sszip_str                    text;
    sszip_status                 status;
    sszip_directive              directive;
    ngx_http_sszip_main_conf_t  *smcf;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sszip_module);
    smcf->used = 1;

    value = cf->args->elts;

    ngx_memzero(&directive, sizeof(sszip_directive));

    directive.size = sizeof(sszip_directive);
    directive.name = ngx_http_sszip_str(&cmd->name);
    directive.nvalues = cf->args->nelts - 1;
    directive.values = ngx_http_sszip_strs(cf->temp_pool, &value[1],
                                           directive.nvalues);
    directive.file = ngx_http_sszip_str(&cf->conf_file->file.name);
    directive.line = cf->conf_file->line;

    if (directive.values == NULL) {
        return NGX_CONF_ERROR;
    }

    status = sszip_validated_config_set(smcf->config, &slcf->block, &directive,
                                        &text);

    return ngx_http_sszip_report_directive(cf, cmd, status, &text);
}


/* copies an array of strings for the core */

sszip_str *
ngx_http_sszip_strs(ngx_pool_t *pool, ngx_str_t *strs, size_t n)
{
    size_t      i;
    sszip_str  *copies;

    copies = ngx_palloc(pool, (n + 1) * sizeof(sszip_str));
    if (copies == NULL) {
        return NULL;
    }

    for (i = 0; i < n; i++) {
        copies[i] = ngx_http_sszip_str(&strs[i]);
    }

    return copies;
}


/*
 * Reports the core's text on a directive or, without one, on the
 * configuration.
 */

static char *
ngx_http_sszip_report_directive(ngx_conf_t *cf, ngx_command_t *cmd,
    sszip_status status, sszip_str *text)
{
    ngx_uint_t  level;

    if (status != SSZIP_STATUS_OK && status != SSZIP_STATUS_INVALID) {
        return NGX_CONF_ERROR;
    }

    level = (status == SSZIP_STATUS_OK) ? NGX_LOG_WARN : NGX_LOG_EMERG;

    if (text->len && cmd != NULL) {
        ngx_conf_log_error(level, cf, 0, "\"%V\" directive %*s", &cmd->name,
                           text->len, text->data);

    } else if (text->len) {
        ngx_log_error(level, cf->log, 0, "%*s", text->len, text->data);
    }

    return (status == SSZIP_STATUS_OK) ? NGX_CONF_OK : NGX_CONF_ERROR;
}


#if (NGX_THREADS)

/* sets the thread pool of a location, or disables it */

static char *
ngx_http_sszip_thread_pool(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sszip_loc_conf_t  *slcf = conf;

    ngx_str_t  *value;

    if (slcf->threads != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        slcf->threads = 0;
        return NGX_CONF_OK;
    }

    if (value[1].len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" directive has an invalid value \"\": it "
                           "must be the name of a thread pool or \"off\"",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    slcf->threads = 1;
    slcf->thread_pool = ngx_thread_pool_add(cf, &value[1]);

    if (slcf->thread_pool == NULL) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}

#endif


char *
ngx_http_sszip_set_handler(ngx_conf_t *cf, ngx_http_handler_pt handler)
{
    ngx_http_core_loc_conf_t    *clcf;
    ngx_http_sszip_main_conf_t  *smcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler != NULL) {
        return "conflicts with the content handler of its location; "
               "use another location";
    }

    clcf->handler = handler;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sszip_module);
    smcf->used = 1;

    return NGX_CONF_OK;
}


static void *
ngx_http_sszip_create_main_conf(ngx_conf_t *cf)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_sszip_main_conf_t  *smcf;

    if (sszip_abi() != SSZIP_ABI) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "sszip: the core's library is of another build than "
                      "sszip.h (interface %ui, the header has %ui): build "
                      "both from one source",
                      (ngx_uint_t) sszip_abi(), (ngx_uint_t) SSZIP_ABI);
        return NULL;
    }

    smcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_sszip_main_conf_t));
    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (smcf == NULL
        || cln == NULL
        || ngx_array_init(&smcf->caching, cf->pool, 4,
                          sizeof(ngx_http_sszip_loc_conf_t *))
           != NGX_OK
        || sszip_validated_config_new(ngx_http_sszip_str(&cf->cycle->prefix),
                                   ngx_http_sszip_str(&cf->cycle->conf_prefix),
                                   &smcf->config)
           != SSZIP_STATUS_OK)
    {
        return NULL;
    }

    cln->handler = ngx_http_sszip_free_validated_config;
    cln->data = smcf->config;

    return smcf;
}


/* frees the core's validated configuration with the pool of the cycle */

static void
ngx_http_sszip_free_validated_config(void *data)
{
    sszip_validated_config_free(data);
}


static void *
ngx_http_sszip_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_sszip_loc_conf_t));
    if (slcf == NULL) {
        return NULL;
    }

    slcf->purges = NGX_CONF_UNSET;
    slcf->reports_status = NGX_CONF_UNSET;
    slcf->cache_bypass = NGX_CONF_UNSET_PTR;
    slcf->no_cache = NGX_CONF_UNSET_PTR;

#if (NGX_THREADS)
    slcf->threads = NGX_CONF_UNSET;
#endif

    return slcf;
}


/*
 * Merges the settings of a location with the enclosing block's, and adds the
 * route to the core.
 */

static char *
ngx_http_sszip_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_sszip_loc_conf_t  *prev = parent;
    ngx_http_sszip_loc_conf_t  *conf = child;

    sszip_str                    text;
    sszip_route                  route;
    sszip_status                 status;
    sszip_route_settings         settings;
    ngx_http_complex_value_t    *cv;
    ngx_http_core_loc_conf_t    *clcf;
    ngx_http_sszip_loc_conf_t  **slcfp;
    ngx_http_sszip_main_conf_t  *smcf;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sszip_module);

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    conf->location = clcf->name;
    conf->has_handler = (clcf->handler != NULL);

    /* "if" and "limit_except" switch the configuration, not the handler */

    if (clcf->noname && clcf->handler == NULL) {
        conf->has_handler = prev->has_handler;
        conf->pass = prev->pass;
        conf->url = prev->url;
    }

    if (!smcf->used) {
        return NGX_CONF_OK;
    }

    if (conf->http_version == 0) {
        conf->http_version = prev->http_version;
    }

    if (!conf->sets_headers) {
        conf->sets_headers = prev->sets_headers;
        conf->sets_length = prev->sets_length;
        conf->sets_codings = prev->sets_codings;
    }

    ngx_conf_init_value(conf->purges, 0);
    ngx_conf_init_value(conf->reports_status, 0);
    ngx_conf_merge_ptr_value(conf->cache_bypass, prev->cache_bypass, NULL);
    ngx_conf_merge_ptr_value(conf->no_cache, prev->no_cache, NULL);

    if (conf->cache_namespace == NULL) {
        conf->cache_namespace = prev->cache_namespace;
    }

    ngx_memzero(&route, sizeof(sszip_route));

    route.size = sizeof(sszip_route);
    route.name = ngx_http_sszip_str(&conf->location);
    route.handles_requests = (bool) (conf->has_handler
                                     && !conf->reports_status);
    route.purges = (bool) conf->purges;

    /* the location of an "if" has set them */

    if (!clcf->noname) {
        route.body_buffer = clcf->client_body_buffer_size;
        route.is_http_1_0 = (bool) ngx_http_sszip_upstream_uses_http_1_0(conf);
    }

    if (conf->url != NULL && conf->url->lengths == NULL) {
        route.url = ngx_http_sszip_str(&conf->url->value);
    }

    cv = conf->cache_namespace;

    if (cv != NULL) {
        route.name_space.data = cv->value.len ? cv->value.data : (u_char *) "";
        route.name_space.len = cv->value.len;
        route.per_request = (cv->lengths != NULL);
    }

    if (ngx_http_sszip_collect_hidden_headers(cf, conf, &route) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    status = sszip_validated_config_add_route(smcf->config, &conf->block,
                                              prev->block, &route, &settings,
                                              &text);

    if (ngx_http_sszip_report_directive(cf, NULL, status, &text)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    conf->config = settings.config;
    conf->enable = settings.enable;
    conf->caches = settings.caches && !conf->reports_status;
    conf->reads_requests = settings.reads_requests && !conf->reports_status
                           && !conf->purges;
    conf->has_policy = settings.has_policy;

    /* other modules may send a request that differs from the URI */

    conf->sends_probes = settings.sends_probes
                         && conf->pass != NULL
                         && ngx_strcmp(conf->pass, "ngx_http_proxy_module")
                            == 0;

    conf->bufs.num = settings.buffers;
    conf->bufs.size = settings.buffer_size;

    smcf->enable |= conf->enable;

    if (conf->caches) {
        slcfp = ngx_array_push(&smcf->caching);
        if (slcfp == NULL) {
            return NGX_CONF_ERROR;
        }

        *slcfp = conf;
    }

#if (NGX_THREADS)

    if (conf->threads == NGX_CONF_UNSET) {
        conf->threads = prev->threads;
        conf->thread_pool = prev->thread_pool;
    }

    if (conf->enable && conf->threads && conf->thread_pool == NULL) {
        conf->thread_pool = ngx_thread_pool_add(cf, NULL);

        if (conf->thread_pool == NULL) {
            return NGX_CONF_ERROR;
        }
    }

#endif

    return NGX_CONF_OK;
}


/* wraps the directives of other modules, and adds the variables */

static ngx_int_t
ngx_http_sszip_preconfiguration(ngx_conf_t *cf)
{
    ngx_http_sszip_wrap_directives(cf);

    return ngx_http_sszip_add_variables(cf);
}


/* registers the phase handlers and the filters, if a location uses sszip */

static ngx_int_t
ngx_http_sszip_init(ngx_conf_t *cf)
{
    sszip_str                    text;
    sszip_status                 status;
    ngx_http_handler_pt         *h;
    ngx_http_core_main_conf_t   *cmcf;
    ngx_http_sszip_main_conf_t  *smcf;

    static ngx_str_t  names[] = {
        ngx_string("http_accept_encoding"),
        ngx_string("content_length"),
        ngx_string("http_content_length"),
        ngx_string("request_uri")
    };

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sszip_module);

    if (!smcf->used) {
        return NGX_OK;
    }

    smcf->accept_encoding = ngx_http_get_variable_index(cf, &names[0]);
    smcf->lengths[0] = ngx_http_get_variable_index(cf, &names[1]);
    smcf->lengths[1] = ngx_http_get_variable_index(cf, &names[2]);
    smcf->request_uri = ngx_http_get_variable_index(cf, &names[3]);

    if (smcf->accept_encoding == NGX_ERROR
        || smcf->lengths[0] == NGX_ERROR
        || smcf->lengths[1] == NGX_ERROR
        || smcf->request_uri == NGX_ERROR
        || ngx_http_sszip_index_bypass(cf, smcf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_sszip_wrap_length_variables(cf);

    if (ngx_http_sszip_add_upstreams(cf, smcf->config) != NGX_OK) {
        return NGX_ERROR;
    }

    status = sszip_validated_config_check(smcf->config, &text);

    if (ngx_http_sszip_report_directive(cf, NULL, status, &text) != NGX_CONF_OK
        || ngx_http_sszip_init_owner(cf, smcf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_http_sszip_check_routes(cf, smcf);

    if (smcf->enable) {

        cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

        h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
        if (h == NULL) {
            return NGX_ERROR;
        }

        *h = ngx_http_sszip_cache_handler;
    }

    ngx_http_sszip_filter_init();

    return NGX_OK;
}


/*
 * Warns of locations without a namespace or an upstream that identifies them.
 */

static void
ngx_http_sszip_check_routes(ngx_conf_t *cf, ngx_http_sszip_main_conf_t *smcf)
{
    ngx_uint_t                   i;
    ngx_http_sszip_loc_conf_t  **slcfp, *slcf;

    slcfp = smcf->caching.elts;

    for (i = 0; i < smcf->caching.nelts; i++) {

        slcf = slcfp[i];

        if (slcf->cache_namespace == NULL
            && slcf->url == NULL
            && slcf->has_handler
            && !slcf->purges
            && !slcf->reports_status
            && smcf->owner != NULL)
        {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "\"sszip_cache on\" has no effect in location "
                          "\"%V\": its upstream is unknown; set "
                          "\"sszip_cache_namespace\"",
                          &slcf->location);
            slcf->caches = 0;
            slcf->reads_requests = slcf->has_policy;
        }
    }
}


/* starts the link, the threads and the metrics of a worker */

static ngx_int_t
ngx_http_sszip_init_process(ngx_cycle_t *cycle)
{
    sszip_str                    version, coders;
    ngx_core_conf_t             *ccf;
    ngx_http_sszip_main_conf_t  *smcf;

#if (NGX_THREADS)
    ngx_http_sszip_thread_init();
#endif

    smcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_sszip_module);

    if (smcf != NULL
        && smcf->enable
        && (ngx_process == NGX_PROCESS_WORKER
            || ngx_process == NGX_PROCESS_SINGLE))
    {
        ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx,
                                               ngx_core_module);

        if (ngx_http_sszip_reserve_length(cycle) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_http_sszip_clear_board();

        ngx_http_sszip_owner_single(smcf);

        if (sszip_validated_config_start(smcf->config, ccf->worker_processes)
            == SSZIP_STATUS_OK)
        {
            ngx_http_sszip_share_tip_floors(smcf);
            ngx_http_sszip_link_start(smcf->owner);

        } else {
            ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
                          "sszip: cannot start the cache of this process: "
                          "internal error; nothing is cached in it");
        }

        /* only the first worker logs the libraries */

        if (ngx_worker == 0) {
            version = sszip_version();
            coders = sszip_coders();

            ngx_log_error(NGX_LOG_NOTICE, cycle->log, 0,
                          "sszip %*s compresses with %*s",
                          version.len, version.data, coders.len, coders.data);
        }
    }

    return NGX_OK;
}


/* ends the owner and the metrics of a process */

static void
ngx_http_sszip_exit_process(ngx_cycle_t *cycle)
{
    if (ngx_process == NGX_PROCESS_WORKER || ngx_process == NGX_PROCESS_SINGLE)
    {
        ngx_http_sszip_clear_board();
    }

    ngx_http_sszip_owner_exit_process(cycle);
}
