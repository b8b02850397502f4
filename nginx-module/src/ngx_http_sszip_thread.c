
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


#if (NGX_THREADS)


/*
 * Large bodies are coded in nginx's thread pools, at most cores - 1 at a time
 * in a process: a pool has 32 threads by default, and that many coders would
 * leave no core to the event loop.  The others wait in a queue of their own.
 */


#define NGX_HTTP_SSZIP_GUARD  60000


static void ngx_http_sszip_guard_handler(ngx_event_t *ev);
static void ngx_http_sszip_post(ngx_http_sszip_ctx_t *ctx);
static void ngx_http_sszip_thread_handler(void *data, ngx_log_t *log);
static void ngx_http_sszip_thread_done(ngx_event_t *ev);


typedef struct {
    sszip_exchange              *exchange;
    sszip_status                 status;
} ngx_http_sszip_thread_ctx_t;


static ngx_queue_t  ngx_http_sszip_waiting;
static ngx_uint_t   ngx_http_sszip_running;

/* running and waiting */
static ngx_uint_t   ngx_http_sszip_pending;
static ngx_event_t  ngx_http_sszip_guard;


void
ngx_http_sszip_thread_init(void)
{
    static ngx_connection_t  dumb;

    ngx_queue_init(&ngx_http_sszip_waiting);
    ngx_http_sszip_running = 0;
    ngx_http_sszip_pending = 0;

    dumb.fd = (ngx_socket_t) -1;

    ngx_http_sszip_guard.handler = ngx_http_sszip_guard_handler;
    ngx_http_sszip_guard.data = &dumb;
    ngx_http_sszip_guard.log = ngx_cycle->log;
}


/*
 * A worker that is told to quit does so once it has no timers.  While a thread
 * has an answer there may be no other.
 */

static void
ngx_http_sszip_guard_handler(ngx_event_t *ev)
{
    ngx_add_timer(ev, NGX_HTTP_SSZIP_GUARD);
}


ngx_int_t
ngx_http_sszip_code_in_thread(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    ngx_thread_task_t            *task;
    ngx_http_sszip_loc_conf_t    *slcf;
    ngx_http_sszip_thread_ctx_t  *tctx;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (slcf->thread_pool == NULL) {
        return NGX_DECLINED;
    }

    task = ngx_thread_task_alloc(r->pool, sizeof(ngx_http_sszip_thread_ctx_t));
    if (task == NULL) {
        return NGX_DECLINED;
    }

    tctx = task->ctx;
    tctx->exchange = ctx->exchange;
    tctx->status = SSZIP_STATUS_MISUSE;

    task->handler = ngx_http_sszip_thread_handler;
    task->event.data = ctx;
    task->event.handler = ngx_http_sszip_thread_done;
    task->event.log = r->connection->log;

    ctx->request = r;
    ctx->thread_pool = slcf->thread_pool;
    ctx->task = task;
    ctx->state = NGX_HTTP_SSZIP_CODING;

    /* the request stays, whoever closes it, until the thread is done */

    r->main->blocked++;
    r->aio = 1;

    /* there is nothing to send, so send_timeout has no reason to run */

    r->connection->write->delayed = 1;

    if (ngx_http_sszip_pending++ == 0) {
        ngx_add_timer(&ngx_http_sszip_guard, NGX_HTTP_SSZIP_GUARD);
    }

    if (ngx_http_sszip_running < (ngx_uint_t) ngx_max(ngx_ncpu - 1, 1)) {
        ngx_http_sszip_post(ctx);

    } else {
        ngx_queue_insert_tail(&ngx_http_sszip_waiting, &ctx->queue);
    }

    return NGX_OK;
}


static void
ngx_http_sszip_post(ngx_http_sszip_ctx_t *ctx)
{
    ngx_http_sszip_running++;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ctx->request->connection->log, 0,
                   "http sszip thread: \"%V\" running:%ui",
                   &ctx->request->uri, ngx_http_sszip_running);

    if (!ctx->request->connection->error) {

        if (ngx_thread_task_post(ctx->thread_pool, ctx->task) == NGX_OK) {
            return;
        }

        /* the pool's queue is full, and has said so in the log */
        ngx_http_sszip_thread_handler(ctx->task->ctx,
                                      ctx->request->connection->log);
    }

    /* done already, or nobody waits for it any more */

    ctx->task->event.complete = 1;
    ngx_post_event(&ctx->task->event, &ngx_posted_events);
}


static void
ngx_http_sszip_thread_handler(void *data, ngx_log_t *log)
{
    ngx_http_sszip_thread_ctx_t  *tctx = data;

    tctx->status = sszip_exchange_code(tctx->exchange);
}


static void
ngx_http_sszip_thread_done(ngx_event_t *ev)
{
    ngx_queue_t                  *q;
    ngx_connection_t             *c;
    ngx_http_request_t           *r;
    ngx_http_sszip_ctx_t         *ctx, *next;
    ngx_http_sszip_thread_ctx_t  *tctx;

    ctx = ev->data;
    tctx = ctx->task->ctx;
    r = ctx->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "http sszip thread done: \"%V?%V\"", &r->uri, &r->args);

    ngx_http_sszip_running--;

    while (!ngx_queue_empty(&ngx_http_sszip_waiting)
           && ngx_http_sszip_running
              < (ngx_uint_t) ngx_max(ngx_ncpu - 1, 1))
    {
        q = ngx_queue_head(&ngx_http_sszip_waiting);
        ngx_queue_remove(q);

        next = ngx_queue_data(q, ngx_http_sszip_ctx_t, queue);
        ngx_http_sszip_post(next);
    }

    ctx->state = NGX_HTTP_SSZIP_CODED;
    ctx->failed = (tctx->status != SSZIP_STATUS_OK);

    if (--ngx_http_sszip_pending == 0) {
        ngx_del_timer(&ngx_http_sszip_guard);
    }

    r->main->blocked--;
    r->aio = 0;
    c->write->delayed = 0;

#if (NGX_HTTP_V2)

    if (r->stream) {
        /* the write handler returns at once for a stream that can't write */
        c->write->ready = 1;
        c->write->active = 0;
    }

#endif

    if (r->done) {
        c->write->handler(c->write);

    } else {
        r->write_event_handler(r);
        ngx_http_run_posted_requests(c);
    }
}


#else


ngx_int_t
ngx_http_sszip_code_in_thread(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    return NGX_DECLINED;
}


#endif
