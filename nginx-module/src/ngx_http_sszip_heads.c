
/*
 * Copyright (C) the sszip authors
 */


/*
 * Memory in which workers share tip floors.  A worker that shows a newer
 * block to a client ends older ones for all workers at once: the client's
 * next request may arrive at another worker before the owner has notified it.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_http_sszip_module.h"


#define NGX_HTTP_SSZIP_HEADS_SPARE  16


static ngx_int_t ngx_http_sszip_init_heads(ngx_shm_zone_t *zone, void *data);


/* only if there is an owner, which sends events about heads */

ngx_int_t
ngx_http_sszip_add_heads(ngx_conf_t *cf, ngx_http_sszip_main_conf_t *smcf)
{
    size_t  size;

    static ngx_str_t  name = ngx_string("sszip_heads");

    size = ngx_align(sszip_heads_length(), ngx_pagesize)
           + NGX_HTTP_SSZIP_HEADS_SPARE * ngx_pagesize;

    smcf->heads = ngx_shared_memory_add(cf, &name, size,
                                        &ngx_http_sszip_module);

    if (smcf->heads == NULL) {
        return NGX_ERROR;
    }

    smcf->heads->init = ngx_http_sszip_init_heads;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sszip_init_heads(ngx_shm_zone_t *zone, void *data)
{
    ngx_slab_pool_t  *pool;

    pool = (ngx_slab_pool_t *) zone->shm.addr;

    if (data == NULL && !zone->shm.exists) {
        pool->data = ngx_slab_calloc(pool, sszip_heads_length());
    }

    zone->data = pool->data;

    if (zone->data == NULL) {
        ngx_log_error(NGX_LOG_EMERG, zone->shm.log, 0,
                      "sszip: no memory for heads in zone \"%V\"",
                      &zone->shm.name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* attaches the memory in a worker that has started */

void
ngx_http_sszip_share_heads(ngx_http_sszip_main_conf_t *smcf)
{
    if (smcf->heads != NULL) {
        (void) sszip_heads_share(smcf->heads->data);
    }
}
