
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


#define NGX_HTTP_SSZIP_TIP_FLOORS_SPARE  16


static ngx_int_t ngx_http_sszip_init_tip_floor_zone(ngx_shm_zone_t *zone,
    void *data);


/*
 * Adds the shared memory of the tip floors, only if there is an owner, which
 * sends events about heads.
 */

ngx_int_t
ngx_http_sszip_add_tip_floor_zone(ngx_conf_t *cf,
    ngx_http_sszip_main_conf_t *smcf)
{
    size_t  size;

    static ngx_str_t  name = ngx_string("sszip_heads");

    size = ngx_align(sszip_tip_floors_size(), ngx_pagesize)
           + NGX_HTTP_SSZIP_TIP_FLOORS_SPARE * ngx_pagesize;

    smcf->tip_floors = ngx_shared_memory_add(cf, &name, size,
                                             &ngx_http_sszip_module);

    if (smcf->tip_floors == NULL) {
        return NGX_ERROR;
    }

    smcf->tip_floors->init = ngx_http_sszip_init_tip_floor_zone;

    return NGX_OK;
}


/*
 * Initializes the shared memory of the tip floors, or keeps an earlier
 * cycle's.
 */

static ngx_int_t
ngx_http_sszip_init_tip_floor_zone(ngx_shm_zone_t *zone, void *data)
{
    ngx_slab_pool_t  *pool;

    pool = (ngx_slab_pool_t *) zone->shm.addr;

    if (data == NULL && !zone->shm.exists) {
        pool->data = ngx_slab_calloc(pool, sszip_tip_floors_size());
    }

    zone->data = pool->data;

    if (zone->data == NULL) {
        ngx_log_error(NGX_LOG_EMERG, zone->shm.log, 0,
                      "sszip: not enough memory for tip floors in zone \"%V\"",
                      &zone->shm.name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * Attaches the shared memory of the tip floors in a worker that has started.
 */

void
ngx_http_sszip_share_tip_floors(ngx_http_sszip_main_conf_t *smcf)
{
    if (smcf->tip_floors != NULL) {
        (void) sszip_tip_floors_attach(smcf->tip_floors->data);
    }
}
