
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
static char *ngx_http_sszip_cache_owner(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static void *ngx_http_sszip_create_main_conf(ngx_conf_t *cf);
static void *ngx_http_sszip_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_sszip_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static ngx_int_t ngx_http_sszip_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_sszip_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_sszip_init_process(ngx_cycle_t *cycle);
static void ngx_http_sszip_free_plan(void *data);
static void ngx_http_sszip_free_conf(void *data);
static char *ngx_http_sszip_add_place(ngx_conf_t *cf,
    ngx_http_sszip_loc_conf_t *conf);


#define NGX_HTTP_SSZIP_ANY_CONF                                               \
    NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF


#define ngx_http_sszip_own(name, type, set, level)                            \
    { ngx_string(name), type, set, level, 0, NULL }

#define ngx_http_sszip_slot(name, type, set, field)                           \
    { ngx_string(name), NGX_HTTP_SSZIP_ANY_CONF|type, set,                    \
      NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_sszip_loc_conf_t, field),   \
      NULL }

/* read, checked and inherited by the core, as in all hosts */

#define ngx_http_sszip_rule(name, type)                                       \
    ngx_http_sszip_own(name, NGX_HTTP_SSZIP_ANY_CONF|type,                    \
                       ngx_http_sszip_directive, NGX_HTTP_LOC_CONF_OFFSET)


static ngx_command_t  ngx_http_sszip_commands[] = {

    ngx_http_sszip_rule("sszip", NGX_HTTP_LIF_CONF|NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_types", NGX_CONF_1MORE),
    ngx_http_sszip_rule("sszip_min_length", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_comp_level", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_max_oneshot", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_hold", NGX_CONF_TAKE12),
    ngx_http_sszip_rule("sszip_stream_level", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_buffers", NGX_CONF_TAKE2),
    ngx_http_sszip_rule("sszip_memory", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_upstream_encoding", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_ssz", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_ssz_preset", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_ssz_max_size", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_ssz_hold", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_ssz_request", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_batch_max", NGX_CONF_TAKE1),

    ngx_http_sszip_rule("sszip_cache", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_valid", NGX_CONF_TAKE2),
    ngx_http_sszip_rule("sszip_cache_max_entry", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_max_request", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_credentials", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_lock", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_lock_timeout", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_use_stale", NGX_CONF_1MORE),
    ngx_http_sszip_rule("sszip_cache_background_update", NGX_CONF_TAKE1),
    ngx_http_sszip_rule("sszip_cache_head", NGX_CONF_1MORE),

    ngx_http_sszip_own("sszip_cache_memory", NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
                       ngx_http_sszip_directive, NGX_HTTP_LOC_CONF_OFFSET),

    ngx_http_sszip_own("sszip_cache_owner", NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
                       ngx_http_sszip_cache_owner, NGX_HTTP_MAIN_CONF_OFFSET),

    ngx_http_sszip_own("sszip_cache_path", NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
                       ngx_http_sszip_cache_path, NGX_HTTP_MAIN_CONF_OFFSET),

    ngx_http_sszip_own("sszip_cache_purge", NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
                       ngx_http_sszip_cache_purge, NGX_HTTP_LOC_CONF_OFFSET),

    ngx_http_sszip_slot("sszip_cache_namespace", NGX_CONF_TAKE1,
                        ngx_http_set_complex_value_slot, cache_namespace),
    ngx_http_sszip_slot("sszip_cache_bypass", NGX_CONF_1MORE,
                        ngx_http_set_predicate_slot, cache_bypass),
    ngx_http_sszip_slot("sszip_no_cache", NGX_CONF_1MORE,
                        ngx_http_set_predicate_slot, no_cache),

#if (NGX_THREADS)
    ngx_http_sszip_own("sszip_thread_pool",
                       NGX_HTTP_SSZIP_ANY_CONF|NGX_CONF_TAKE1,
                       ngx_http_sszip_thread_pool, NGX_HTTP_LOC_CONF_OFFSET),
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
    ngx_http_sszip_owner_exit_process,     /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static char *
ngx_http_sszip_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sszip_loc_conf_t  *slcf = conf;

    u_char                      *p;
    ngx_str_t                   *file;
    sszip_str                   *values, at, said;
    sszip_status                 status;
    ngx_http_sszip_main_conf_t  *smcf;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sszip_module);
    smcf->used = 1;

    file = &cf->conf_file->file.name;

    values = ngx_http_sszip_arguments(cf);
    p = ngx_pnalloc(cf->temp_pool, file->len + 1 + NGX_INT_T_LEN);

    if (values == NULL || p == NULL) {
        return NGX_CONF_ERROR;
    }

    at.data = p;
    at.len = ngx_sprintf(p, "%V:%ui", file, cf->conf_file->line) - p;

    status = sszip_directives_set(slcf->directives,
                                  ngx_http_sszip_str(&cmd->name), values,
                                  cf->args->nelts - 1, at,
                                  ngx_http_sszip_str(&cf->cycle->conf_prefix),
                                  &said);

    return ngx_http_sszip_said(cf, cmd, status, &said);
}


sszip_str *
ngx_http_sszip_arguments(ngx_conf_t *cf)
{
    ngx_str_t   *value;
    sszip_str   *values;
    ngx_uint_t   i;

    value = cf->args->elts;

    values = ngx_palloc(cf->temp_pool, cf->args->nelts * sizeof(sszip_str));
    if (values == NULL) {
        return NULL;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        values[i - 1] = ngx_http_sszip_str(&value[i]);
    }

    return values;
}


char *
ngx_http_sszip_said(ngx_conf_t *cf, ngx_command_t *cmd, sszip_status status,
    sszip_str *said)
{
    ngx_uint_t  level;

    if (status != SSZIP_STATUS_OK && status != SSZIP_STATUS_INVALID) {
        return NGX_CONF_ERROR;
    }

    level = (status == SSZIP_STATUS_OK) ? NGX_LOG_WARN : NGX_LOG_EMERG;

    if (said->len && cmd != NULL) {
        ngx_conf_log_error(level, cf, 0, "\"%V\" directive %*s", &cmd->name,
                           said->len, said->data);

    } else if (said->len) {
        ngx_log_error(level, cf->log, 0, "%*s", said->len, said->data);
    }

    return (status == SSZIP_STATUS_OK) ? NGX_CONF_OK : NGX_CONF_ERROR;
}


#if (NGX_THREADS)

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


static char *
ngx_http_sszip_cache_owner(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sszip_main_conf_t  *smcf = conf;

    ngx_url_t   u;
    ngx_str_t  *value;

    if (smcf->owner != NULL) {
        return "is duplicate, or there is an \"sszip_cache_path\"";
    }

    value = cf->args->elts;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = value[1];
    u.no_resolve = 1;

    if (value[1].len <= 5
        || ngx_strncasecmp(value[1].data, (u_char *) "unix:", 5) != 0
        || ngx_parse_url(cf->pool, &u) != NGX_OK
        || u.naddrs != 1)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" directive has an invalid value \"%V\": "
                           "it must be \"unix:\" and the path of a socket%s%s",
                           &cmd->name, &value[1], u.err ? ": " : "",
                           u.err ? u.err : "");
        return NGX_CONF_ERROR;
    }

    smcf->owner = u.addrs;

    return NGX_CONF_OK;
}


static void *
ngx_http_sszip_create_main_conf(ngx_conf_t *cf)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_sszip_main_conf_t  *smcf;

    smcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_sszip_main_conf_t));
    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (smcf == NULL
        || cln == NULL
        || ngx_array_init(&smcf->caching, cf->pool, 4,
                          sizeof(ngx_http_sszip_loc_conf_t *))
           != NGX_OK
        || sszip_plan_new(&smcf->plan) != SSZIP_STATUS_OK)
    {
        return NULL;
    }

    cln->handler = ngx_http_sszip_free_plan;
    cln->data = smcf->plan;

    return smcf;
}


static void *
ngx_http_sszip_create_loc_conf(ngx_conf_t *cf)
{
    ngx_pool_cleanup_t         *cln;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_sszip_loc_conf_t));
    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (slcf == NULL
        || cln == NULL
        || sszip_directives_new(&slcf->directives) != SSZIP_STATUS_OK)
    {
        return NULL;
    }

    cln->handler = ngx_http_sszip_free_conf;
    cln->data = slcf;

    slcf->cache_bypass = NGX_CONF_UNSET_PTR;
    slcf->no_cache = NGX_CONF_UNSET_PTR;

#if (NGX_THREADS)
    slcf->threads = NGX_CONF_UNSET;
#endif

    return slcf;
}


static void
ngx_http_sszip_free_plan(void *data)
{
    sszip_plan_free(data);
}


static void
ngx_http_sszip_free_conf(void *data)
{
    ngx_http_sszip_loc_conf_t  *slcf = data;

    sszip_config_free(slcf->config);
    sszip_directives_free(slcf->directives);
}


static char *
ngx_http_sszip_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_sszip_loc_conf_t  *prev = parent;
    ngx_http_sszip_loc_conf_t  *conf = child;

    sszip_rules                  rules;
    ngx_http_core_loc_conf_t    *clcf;
    ngx_http_sszip_loc_conf_t  **slcfp;
    ngx_http_sszip_main_conf_t  *smcf;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sszip_module);

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    conf->location = clcf->name;
    conf->answers = (clcf->handler != NULL);

    /* "if" and "limit_except" switch the configuration, not the handler */

    if (clcf->noname && clcf->handler == NULL) {
        conf->answers = prev->answers;
        conf->pass = prev->pass;
        conf->url = prev->url;
    }

    if (!smcf->used) {
        return NGX_CONF_OK;
    }

    if (!conf->sets_fields) {
        conf->sets_fields = prev->sets_fields;
        conf->sets_length = prev->sets_length;
        conf->sets_codings = prev->sets_codings;
    }

    if (sszip_directives_inherit(conf->directives, prev->directives)
        != SSZIP_STATUS_OK
        || ngx_http_sszip_hide(cf, conf) != NGX_OK
        || sszip_config_new(conf->directives, &conf->config)
           != SSZIP_STATUS_OK
        || sszip_config_rules(conf->config, &rules) != SSZIP_STATUS_OK)
    {
        return NGX_CONF_ERROR;
    }

    conf->enable = rules.enable;
    conf->caches = rules.caches;
    conf->reads = rules.reads;
    conf->bufs.num = rules.buffers;
    conf->bufs.size = rules.buffer_size;

    ngx_conf_merge_ptr_value(conf->cache_bypass, prev->cache_bypass, NULL);
    ngx_conf_merge_ptr_value(conf->no_cache, prev->no_cache, NULL);

    if (conf->cache_namespace == NULL) {
        conf->cache_namespace = prev->cache_namespace;
    }

    if (conf->caches || (conf->enable && smcf->config == NULL)) {
        smcf->config = conf->config;
    }

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

    return ngx_http_sszip_add_place(cf, conf);
}


static char *
ngx_http_sszip_add_place(ngx_conf_t *cf, ngx_http_sszip_loc_conf_t *conf)
{
    sszip_str                    said;
    sszip_place                  place;
    sszip_status                 status;
    ngx_http_complex_value_t    *cv;
    ngx_http_sszip_main_conf_t  *smcf;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sszip_module);

    ngx_memzero(&place, sizeof(sszip_place));

    place.size = sizeof(sszip_place);
    place.name = ngx_http_sszip_str(&conf->location);
    place.answers = (bool) conf->answers;
    place.purges = (bool) conf->purges;

    cv = conf->cache_namespace;

    if (cv != NULL) {
        place.name_space.data = cv->value.len ? cv->value.data : (u_char *) "";
        place.name_space.len = cv->value.len;
        place.per_request = (cv->lengths != NULL);
    }

    status = sszip_plan_add(smcf->plan, conf->config, &place, &said);

    return ngx_http_sszip_said(cf, NULL, status, &said);
}


static ngx_int_t
ngx_http_sszip_preconfiguration(ngx_conf_t *cf)
{
    ngx_http_sszip_wrap_directives(cf);

    return ngx_http_sszip_add_variables(cf);
}


static ngx_int_t
ngx_http_sszip_init(ngx_conf_t *cf)
{
    sszip_str                    said;
    sszip_status                 status;
    ngx_http_handler_pt         *h;
    ngx_http_core_main_conf_t   *cmcf;
    ngx_http_sszip_main_conf_t  *smcf;

    static ngx_str_t  names[] = {
        ngx_string("http_accept_encoding"),
        ngx_string("content_length"),
        ngx_string("http_content_length")
    };

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sszip_module);

    if (!smcf->used) {
        return NGX_OK;
    }

    smcf->accept_encoding = ngx_http_get_variable_index(cf, &names[0]);
    smcf->lengths[0] = ngx_http_get_variable_index(cf, &names[1]);
    smcf->lengths[1] = ngx_http_get_variable_index(cf, &names[2]);

    if (smcf->accept_encoding == NGX_ERROR
        || smcf->lengths[0] == NGX_ERROR
        || smcf->lengths[1] == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    status = sszip_plan_check(smcf->plan, smcf->owner != NULL, &said);

    if (ngx_http_sszip_said(cf, NULL, status, &said) != NGX_CONF_OK
        || ngx_http_sszip_init_places(cf, smcf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (smcf->config != NULL) {

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
        && smcf->config != NULL
        && (ngx_process == NGX_PROCESS_WORKER
            || ngx_process == NGX_PROCESS_SINGLE))
    {
        ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx,
                                               ngx_core_module);

        ngx_http_sszip_owner_single(cycle, smcf);

        if (sszip_process_start(smcf->config, ccf->worker_processes)
               != SSZIP_STATUS_OK
            || ngx_http_sszip_link_start(cycle, smcf) != NGX_OK)
        {
            ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
                          "sszip: nothing will be cached in this process");
        }

        /* of all workers the first says it */

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
