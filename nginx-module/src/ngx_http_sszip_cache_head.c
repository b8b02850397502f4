
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * Whose chains' heads are followed, and where.  The core reads the directive
 * and tells which of the heads goes with which namespace; the process that has
 * the store follows them.
 */


/* room for what the core says, with two places of a configuration in it */
#define NGX_HTTP_SSZIP_HEADS_TEXT_LEN  1024


static char *ngx_http_sszip_cache_head_ca(ngx_conf_t *cf, ngx_str_t *word);
static void ngx_http_sszip_free_heads(void *data);


char *
ngx_http_sszip_cache_head(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sszip_loc_conf_t  *slcf = conf;

    char        *rv;
    u_char      *p;
    ngx_str_t   *value, *file;
    ngx_uint_t   i;

    value = cf->args->elts;

    for (i = 2; i < cf->args->nelts; i++) {

        if (value[i].len > 3 && ngx_strncmp(value[i].data, "ca=", 3) == 0) {

            rv = ngx_http_sszip_cache_head_ca(cf, &value[i]);

            if (rv != NGX_CONF_OK) {
                return rv;
            }
        }
    }

    rv = ngx_http_sszip_directive(cf, cmd, conf);

    if (rv != NGX_CONF_OK || slcf->head_at.len) {
        return rv;
    }

    file = &cf->conf_file->file.name;

    p = ngx_pnalloc(cf->pool, file->len + 1 + NGX_INT_T_LEN);
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    slcf->head_at.data = p;
    slcf->head_at.len = ngx_sprintf(p, "%V:%ui", file, cf->conf_file->line)
                        - p;

    return NGX_CONF_OK;
}


/* relative to the configuration, like all of nginx's certificates */

static char *
ngx_http_sszip_cache_head_ca(ngx_conf_t *cf, ngx_str_t *word)
{
    u_char     *p;
    ngx_str_t   name;

    name.data = word->data + 3;
    name.len = word->len - 3;

    if (ngx_conf_full_name(cf->cycle, &name, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (access((char *) name.data, R_OK) == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "\"sszip_cache_head\" directive has a file of "
                           "certificates, \"%V\", that can't be read", &name);
        return NGX_CONF_ERROR;
    }

    p = ngx_pnalloc(cf->pool, 3 + name.len + 1);
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    word->data = p;
    word->len = ngx_sprintf(p, "ca=%V%Z", &name) - p - 1;

    return NGX_CONF_OK;
}


/* once the place has inherited, and it is known whether it caches */

ngx_int_t
ngx_http_sszip_merge_heads(ngx_conf_t *cf, ngx_http_sszip_loc_conf_t *prev,
    ngx_http_sszip_loc_conf_t *conf)
{
    size_t                       len;
    u_char                       text[NGX_HTTP_SSZIP_HEADS_TEXT_LEN];
    ngx_flag_t                   per_request;
    sszip_str                    name;
    sszip_status                 status;
    ngx_pool_cleanup_t          *cln;
    ngx_http_core_loc_conf_t    *clcf;
    ngx_http_complex_value_t    *cv;
    ngx_http_sszip_main_conf_t  *smcf;

    if (conf->head_at.len == 0) {
        conf->head_at = prev->head_at;
    }

    if (!sszip_directives_have_head(conf->directives)) {
        return NGX_OK;
    }

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sszip_module);

    if (smcf->head_at.len == 0) {
        smcf->head_at = conf->head_at;
    }

    if (!conf->caches || !conf->answers || conf->purges) {
        return NGX_OK;
    }

    if (smcf->heads == NULL) {

        cln = ngx_pool_cleanup_add(cf->pool, 0);
        if (cln == NULL) {
            return NGX_ERROR;
        }

        if (sszip_heads_new(&smcf->heads) != SSZIP_STATUS_OK) {
            return NGX_ERROR;
        }

        cln->handler = ngx_http_sszip_free_heads;
        cln->data = smcf->heads;
    }

    cv = conf->cache_namespace;
    ngx_memzero(&name, sizeof(sszip_str));
    per_request = 0;

    if (cv != NULL) {
        name.data = cv->value.len ? cv->value.data : (u_char *) "";
        name.len = cv->value.len;
        per_request = (cv->lengths != NULL);
    }

    len = 0;

    status = sszip_heads_add(smcf->heads, conf->config, name, per_request,
                             ngx_http_sszip_str(&conf->head_at), text,
                             sizeof(text), &len);

    if (status == SSZIP_STATUS_OK) {
        return NGX_OK;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "\"sszip_cache_head\" directive, in location \"%V\", %*s "
                  "in %V", &clcf->name, len, text, &conf->head_at);

    return NGX_ERROR;
}


/* once it is known who has the store */

ngx_int_t
ngx_http_sszip_check_heads(ngx_conf_t *cf, ngx_http_sszip_main_conf_t *smcf)
{
    if (smcf->head_at.len == 0 || smcf->store != NULL) {
        return NGX_OK;
    }

    if (smcf->owner == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"sszip_cache_head\" needs \"sszip_cache_path\" in %V",
                      &smcf->head_at);

    } else {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"sszip_cache_head\" needs \"sszip_cache_path\": with "
                      "\"sszip_cache_owner\" it is the daemon that follows "
                      "nodes, those of [[head]] in its cached.toml in %V",
                      &smcf->head_at);
    }

    return NGX_ERROR;
}


static void
ngx_http_sszip_free_heads(void *data)
{
    sszip_heads_free(data);
}
