
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * Status page: metrics of all workers as HTML, JSON or OpenMetrics.  Workers
 * count if a location has a status page, in memory that outlives them and a
 * reload.
 */


/* pages beyond the counters: the zone's own pages and their descriptors */
#define NGX_HTTP_SSZIP_ZONE_SPARE  16


static ngx_int_t ngx_http_sszip_status_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_sszip_init_zone(ngx_shm_zone_t *zone, void *data);


/* sets the handler of a location with a status page */

char *
ngx_http_sszip_report_status(ngx_conf_t *cf, void *post, void *data)
{
    ngx_flag_t  *reports_status = data;

    char                        *error;
    size_t                       size;
    ngx_http_sszip_main_conf_t  *smcf;

    static ngx_str_t  name = ngx_string("sszip_status");

    if (!*reports_status) {
        return NGX_CONF_OK;
    }

    error = ngx_http_sszip_set_handler(cf, ngx_http_sszip_status_handler);

    if (error != NGX_CONF_OK) {
        return error;
    }

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sszip_module);

    if (smcf->zone != NULL) {
        return NGX_CONF_OK;
    }

    size = ngx_align(sszip_metrics_board_size(), ngx_pagesize)
           + NGX_HTTP_SSZIP_ZONE_SPARE * ngx_pagesize;

    smcf->zone = ngx_shared_memory_add(cf, &name, size, &ngx_http_sszip_module);

    if (smcf->zone == NULL) {
        return NGX_CONF_ERROR;
    }

    smcf->zone->init = ngx_http_sszip_init_zone;

    return NGX_CONF_OK;
}


/*
 * Initializes the shared memory of the metrics, or keeps an earlier cycle's.
 */

static ngx_int_t
ngx_http_sszip_init_zone(ngx_shm_zone_t *zone, void *data)
{
    ngx_slab_pool_t  *pool;

    pool = (ngx_slab_pool_t *) zone->shm.addr;

    if (data == NULL && !zone->shm.exists) {
        pool->data = ngx_slab_calloc(pool, sszip_metrics_board_size());
    }

    zone->data = pool->data;

    if (sszip_metrics_board_init(zone->data, ngx_http_sszip_now())
        != SSZIP_STATUS_OK)
    {
        ngx_log_error(NGX_LOG_EMERG, zone->shm.log, 0,
                      "sszip: not enough memory for counters in zone \"%V\"",
                      &zone->shm.name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * Returns the metrics board of all workers; 0: no location has a status page.
 */

ngx_uint_t
ngx_http_sszip_metrics_board(sszip_metrics_board *board)
{
    ngx_http_sszip_main_conf_t  *smcf;

    static ngx_str_t  host = ngx_string(NGINX_VER);

    smcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_sszip_module);

    if (smcf == NULL || smcf->zone == NULL) {
        return 0;
    }

    board->size = sizeof(sszip_metrics_board);
    board->memory = smcf->zone->data;
    /*
     * A worker's number is not unique: a worker that ends after a reload may
     * have the same as a new one.
     */

    board->worker = ngx_process_slot;
    board->now = ngx_http_sszip_now();
    board->host = ngx_http_sszip_str(&host);

    return 1;
}


/* adds a finished exchange to the metrics */

void
ngx_http_sszip_count(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    sszip_metrics_board  board;

    /*
     * A context that a redirect has replaced is not counted, nor a request
     * without a client.
     */

    if (r == r->main
        && ctx == ngx_http_get_module_ctx(r, ngx_http_sszip_module)
        && ngx_http_sszip_metrics_board(&board))
    {
        (void) sszip_exchange_count(ctx->exchange, &board);
    }
}


/*
 * Updates the gauges of the worker; a background request is not counted, and
 * may be a worker's last.
 */

void
ngx_http_sszip_update_gauges(void)
{
    sszip_metrics_board  board;

    if (ngx_http_sszip_metrics_board(&board)) {
        (void) sszip_metrics_board_set_gauges(&board);
    }
}


/*
 * Clears the slot of a worker that ends on the metrics board: another worker
 * may reuse it.
 */

void
ngx_http_sszip_clear_board(void)
{
    sszip_metrics_board  board;

    if (ngx_http_sszip_metrics_board(&board)) {
        (void) sszip_metrics_board_reset_gauges(&board);
    }
}


/*
 * Sends the status page; called again after each wait.
 */

static ngx_int_t
ngx_http_sszip_status_handler(ngx_http_request_t *r)
{
    ngx_int_t              rc;
    sszip_metrics_board    board;
    sszip_lookup_request   lookup;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_sszip_get_ctx(r);

    ngx_memzero(&lookup, sizeof(sszip_lookup_request));

    lookup.size = sizeof(sszip_lookup_request);
    lookup.now = ngx_http_sszip_now();
    lookup.waiter = (uintptr_t) ctx;

    if (ctx == NULL
        || !ngx_http_sszip_metrics_board(&board)
        || sszip_exchange_report_status(ctx->exchange,
                                        ngx_http_sszip_str(&r->method_name),
                                        ngx_http_sszip_str(&r->args), &lookup,
                                        &board, &ctx->step)
           != SSZIP_STATUS_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    /* the callee may send or wait, so it must have a reference */

    r->main->count++;

    rc = ngx_http_sszip_lookup_done(r, ctx);

    if (rc != NGX_DONE) {
        r->main->count--;
    }

    return rc;
}
