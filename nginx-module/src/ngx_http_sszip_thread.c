
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


#if (NGX_THREADS)


/*
 * Jobs run in nginx's thread pools, at most as many at a time in a process as
 * the core allows: a pool has 32 threads by default, and that many encoders
 * would leave no processor to the event loop.  The others wait in a queue of
 * the module.
 *
 * A job encodes a response, for which its request waits; or it encodes a
 * response to be stored that was sent already, or releases a long one.
 */


#define NGX_HTTP_SSZIP_GUARD  60000


typedef struct {
    ngx_http_sszip_ctx_t        *ctx;          /* NULL: none waits */
    ngx_pool_t                  *pool;
    ngx_thread_pool_t           *thread_pool;
    ngx_thread_task_t           *task;
    ngx_queue_t                  queue;
    sszip_job                   *work;
} ngx_http_sszip_job_t;


static void ngx_http_sszip_guard_handler(ngx_event_t *ev);
static ngx_int_t ngx_http_sszip_start_job(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, sszip_job *work);
static void ngx_http_sszip_post_jobs(void);
static void ngx_http_sszip_thread_handler(void *data, ngx_log_t *log);
static void ngx_http_sszip_thread_done(ngx_event_t *ev);
static void ngx_http_sszip_job_done(ngx_http_sszip_ctx_t *ctx, sszip_job *work);


static ngx_queue_t  ngx_http_sszip_waiting;
static ngx_uint_t   ngx_http_sszip_running;
static ngx_uint_t   ngx_http_sszip_max_running;

/* number of running and waiting jobs */
static ngx_uint_t   ngx_http_sszip_pending;
static ngx_event_t  ngx_http_sszip_guard;


/* initializes the queue of jobs in a worker */

void
ngx_http_sszip_thread_init(void)
{
    ngx_queue_init(&ngx_http_sszip_waiting);
    ngx_http_sszip_max_running = sszip_max_running_jobs();
    ngx_http_sszip_running = 0;
    ngx_http_sszip_pending = 0;

    ngx_http_sszip_init_timer(&ngx_http_sszip_guard,
                              ngx_http_sszip_guard_handler);
}


/*
 * Restarts the timer that keeps a quitting worker alive.  A worker that is
 * quitting exits when it has no timers.  While a thread has a response, there
 * may be no other timer.
 */

static void
ngx_http_sszip_guard_handler(ngx_event_t *ev)
{
    ngx_add_timer(ev, NGX_HTTP_SSZIP_GUARD);
}


/* enqueues the job of an exchange for the thread pool */

static ngx_int_t
ngx_http_sszip_start_job(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    sszip_job *work)
{
    ngx_pool_t                 *pool;
    ngx_thread_task_t          *task;
    ngx_http_sszip_job_t       *job;
    ngx_http_sszip_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);

    if (slcf->thread_pool == NULL) {
        return NGX_DECLINED;
    }

    pool = ngx_create_pool(1024, ngx_cycle->log);
    if (pool == NULL) {
        return NGX_DECLINED;
    }

    task = ngx_thread_task_alloc(pool, sizeof(ngx_http_sszip_job_t));

    if (task == NULL) {
        ngx_destroy_pool(pool);
        return NGX_DECLINED;
    }

    job = task->ctx;

    job->ctx = ctx;
    job->pool = pool;
    job->thread_pool = slcf->thread_pool;
    job->task = task;
    job->work = work;

    task->handler = ngx_http_sszip_thread_handler;
    task->event.handler = ngx_http_sszip_thread_done;
    task->event.data = job;
    task->event.log = ngx_cycle->log;

    if (ctx != NULL) {

        /* the request stays until the thread is done, even if it is closed */

        r->main->blocked++;

        /*
         * There is no output, so send_timeout must not run.  r->aio is not
         * set for that, because the upstream of a post_action would wait for
         * its end, forever.
         */

        r->connection->write->delayed = 1;
    }

    if (ngx_http_sszip_pending++ == 0) {
        ngx_add_timer(&ngx_http_sszip_guard, NGX_HTTP_SSZIP_GUARD);
    }

    ngx_queue_insert_tail(&ngx_http_sszip_waiting, &job->queue);

    ngx_http_sszip_post_jobs();

    return NGX_OK;
}


/* posts as many queued jobs to the thread pool as may run */

static void
ngx_http_sszip_post_jobs(void)
{
    ngx_queue_t           *q;
    ngx_http_sszip_job_t  *job;

    while (!ngx_queue_empty(&ngx_http_sszip_waiting)
           && ngx_http_sszip_running < ngx_http_sszip_max_running)
    {
        q = ngx_queue_head(&ngx_http_sszip_waiting);
        ngx_queue_remove(q);

        ngx_http_sszip_running++;

        job = ngx_queue_data(q, ngx_http_sszip_job_t, queue);

        ngx_log_debug2(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                       "http sszip thread job:%p running:%ui", job,
                       ngx_http_sszip_running);

        if (job->ctx == NULL
            || !job->ctx->request->connection->error
            || sszip_job_has_store(job->work))
        {
            if (ngx_thread_task_post(job->thread_pool, job->task) == NGX_OK) {
                continue;
            }

            /* the queue of the pool is full, which nginx has logged */
            ngx_http_sszip_thread_handler(job, ngx_cycle->log);
        }

        /* the job is done already, or no request waits for it any more */

        job->task->event.complete = 1;
        ngx_post_event(&job->task->event, &ngx_posted_events);
    }
}


/* runs a job on a thread of the pool */

static void
ngx_http_sszip_thread_handler(void *data, ngx_log_t *log)
{
    ngx_http_sszip_job_t  *job = data;

    (void) sszip_job_run(job->work);
}


/* handles the completion of a job on the worker's event loop */

static void
ngx_http_sszip_thread_done(ngx_event_t *ev)
{
    ngx_http_sszip_job_t  *job;

    job = ev->data;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ev->log, 0,
                   "http sszip thread done job:%p", job);

    ngx_http_sszip_running--;

    ngx_http_sszip_post_jobs();

    if (--ngx_http_sszip_pending == 0) {
        ngx_del_timer(&ngx_http_sszip_guard);
    }

    if (job->ctx != NULL) {
        ngx_http_sszip_job_done(job->ctx, job->work);

    } else {
        (void) sszip_job_store(job->work, ngx_http_sszip_now());
        ngx_http_sszip_wake();
    }

    ngx_destroy_pool(job->pool);
}


/* continues the request whose job has run */

static void
ngx_http_sszip_job_done(ngx_http_sszip_ctx_t *ctx, sszip_job *work)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = ctx->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "http sszip coded: \"%V?%V\"", &r->uri, &r->args);

    ctx->done = 1;

    if (sszip_exchange_job_done(ctx->exchange, work, &ctx->step)
        != SSZIP_STATUS_OK)
    {
        ctx->step.action = SSZIP_ACTION_FAIL;
    }

    /* the job may have assembled a response that other requests wait for */
    ngx_http_sszip_wake();

    r->main->blocked--;
    c->write->delayed = 0;

    if (c->error) {
        /*
         * the client is gone, and its request may end without reading the
         * result
         */
        ngx_http_sszip_store(r, ctx);
    }

    if (ngx_http_get_module_ctx(r, ngx_http_sszip_module) != ctx) {

        /*
         * The client is gone, and a post_action has continued the request.
         * If it is finished, only this job has kept the request; if it was
         * terminated, its write handler waits for this.
         */

        ngx_http_sszip_detach(ctx);

        if (r->main->count == 0) {
            r->main->count++;
            ngx_http_finalize_request(r, NGX_DONE);

        } else {
            r->write_event_handler(r);
        }

        ngx_http_run_posted_requests(c);

        return;
    }

#if (NGX_HTTP_V2)

    if (r->stream) {
        /*
         * the write handler returns at once for a stream that is not writable
         */
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


#endif


/*
 * Starts the job of the present action, if it has one.  Returns NGX_AGAIN if
 * a thread runs it; otherwise it has run, and its result is the next action.
 */

ngx_int_t
ngx_http_sszip_run(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    sszip_job  *job;

    if (ctx->step.action != SSZIP_ACTION_RUN_JOB) {
        return NGX_OK;
    }

    job = ctx->step.job;

#if (NGX_THREADS)

    if (ngx_http_sszip_start_job(r, ctx, job) == NGX_OK) {
        return NGX_AGAIN;
    }

#endif

    (void) sszip_job_run(job);

    return (sszip_exchange_job_done(ctx->exchange, job, &ctx->step)
            == SSZIP_STATUS_OK) ? NGX_OK : NGX_ERROR;
}


/* runs a job that no request waits for; NULL: there is none */

void
ngx_http_sszip_run_detached_job(ngx_http_request_t *r, sszip_job *job)
{
    if (job == NULL) {
        return;
    }

#if (NGX_THREADS)

    if (ngx_http_sszip_start_job(r, NULL, job) == NGX_OK) {
        return;
    }

#endif

    (void) sszip_job_run(job);
    (void) sszip_job_store(job, ngx_http_sszip_now());
}
