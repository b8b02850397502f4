
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * The connection to the owner.  The core decides about the bytes; this file
 * opens, reads, writes and closes the connection.
 */


/* maximum bytes read before other connections are served */
#define NGX_HTTP_SSZIP_LINK_BYTES  (256 * 1024)

/* maximum pieces per write */
#define NGX_HTTP_SSZIP_LINK_PIECES  16


static void ngx_http_sszip_link_wake_waiters(void);
static void ngx_http_sszip_link_run(ngx_event_t *ev);
static sszip_connect_result ngx_http_sszip_link_connect(void);
static void ngx_http_sszip_link_write(void);
static void ngx_http_sszip_link_close(void);
static void ngx_http_sszip_link_closed(void);
static void ngx_http_sszip_link_read_handler(ngx_event_t *rev);
static void ngx_http_sszip_link_write_handler(ngx_event_t *wev);
static void ngx_http_sszip_link_timer_handler(ngx_event_t *ev);
static void ngx_http_sszip_link_tick(void);


static ngx_addr_t        *ngx_http_sszip_owner;
static ngx_connection_t  *ngx_http_sszip_link;
static ngx_event_t        ngx_http_sszip_link_timer;
static ngx_event_t        ngx_http_sszip_link_posted;

/* error of the last failed connection */
static ngx_err_t          ngx_http_sszip_link_err;


/* starts the link to the owner in a process that serves */

void
ngx_http_sszip_link_start(ngx_addr_t *owner)
{
    if (owner == NULL) {
        return;
    }

    ngx_http_sszip_owner = owner;

    ngx_http_sszip_init_timer(&ngx_http_sszip_link_timer,
                              ngx_http_sszip_link_timer_handler);

    /* a worker that quits need not wait for this timer */
    ngx_http_sszip_link_timer.cancelable = 1;

    ngx_http_sszip_link_posted.handler = ngx_http_sszip_link_run;
    ngx_http_sszip_link_posted.log = ngx_cycle->log;

    /* posted events are processed after others, and there are none yet */
    ngx_http_sszip_link_run(&ngx_http_sszip_link_posted);
}


/*
 * Posts the event that runs the link and wakes requests.  Resumes the
 * requests whose wait is over.  Requests to the owner are sent after all
 * present events: together they cost little more than one.
 */

void
ngx_http_sszip_wake(void)
{
    if (ngx_http_sszip_owner != NULL) {
        ngx_post_event(&ngx_http_sszip_link_posted, &ngx_posted_events);
    }

    ngx_http_sszip_link_wake_waiters();
}


/*
 * Writes the core's log lines, updates the gauges, and posts the wakeups of
 * waiting requests.
 */

static void
ngx_http_sszip_link_wake_waiters(void)
{
    u_char                 line[NGX_MAX_ERROR_STR];
    size_t                 len;
    uintptr_t              waiter;
    ngx_http_sszip_ctx_t  *ctx;

    while ((len = sszip_next_log_line(line, sizeof(line))) != 0) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "sszip: %*s", len, line);
    }

    ngx_http_sszip_update_gauges();

    while ((waiter = sszip_next_wakeup()) != 0) {
        ctx = (ngx_http_sszip_ctx_t *) waiter;
        ngx_post_event(&ctx->wake, &ngx_posted_events);
    }
}


/* initializes a timer that belongs to no connection */

void
ngx_http_sszip_init_timer(ngx_event_t *ev, ngx_event_handler_pt handler)
{
    static ngx_connection_t  null_connection;

    null_connection.fd = (ngx_socket_t) -1;

    ev->handler = handler;
    ev->data = &null_connection;
    ev->log = ngx_cycle->log;
}


/*
 * Returns the milliseconds of the monotonic clock, which the owner uses too:
 * a purge waits for some of them.
 */

uint64_t
ngx_http_sszip_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}


/* performs the core's pending actions on the connection to the owner */

static void
ngx_http_sszip_link_run(ngx_event_t *ev)
{
    uint64_t  now;

    for ( ;; ) {

        switch (sszip_link_next_action()) {

        case SSZIP_LINK_CONNECT:
            now = ngx_http_sszip_now();
            (void) sszip_link_connected(ngx_http_sszip_link_connect(), now);
            break;

        case SSZIP_LINK_WRITE:
            ngx_http_sszip_link_write();
            break;

        case SSZIP_LINK_CLOSE:
            ngx_http_sszip_link_close();
            break;

        case SSZIP_LINK_TICK:
            ngx_http_sszip_link_tick();
            break;

        default: /* SSZIP_LINK_NOTHING */
            ngx_http_sszip_link_wake_waiters();
            return;
        }
    }
}


/* opens the connection to the owner */

static sszip_connect_result
ngx_http_sszip_link_connect(void)
{
    ngx_log_t              log;
    ngx_int_t              rc;
    ngx_connection_t      *c;
    ngx_peer_connection_t  peer;

    if (ngx_exiting) {
        return SSZIP_CONNECT_FAILED;
    }

    ngx_memzero(&peer, sizeof(ngx_peer_connection_t));

    peer.sockaddr = ngx_http_sszip_owner->sockaddr;
    peer.socklen = ngx_http_sszip_owner->socklen;
    peer.name = &ngx_http_sszip_owner->name;
    peer.get = ngx_event_get_peer;

    /* connections are tried often: only the first failure is logged */

    log = *ngx_cycle->log;
    log.log_level = NGX_LOG_ALERT;

    peer.log = &log;
    peer.log_error = NGX_ERROR_INFO;

    ngx_http_sszip_link_err = 0;

    rc = ngx_event_connect_peer(&peer);

    if (rc != NGX_OK && rc != NGX_AGAIN) {

        ngx_http_sszip_link_err = ngx_socket_errno;

        if (peer.connection) {
            ngx_close_connection(peer.connection);
        }

        /* other errors mean that the owner is busy or unreachable */

        return (ngx_http_sszip_link_err == NGX_ECONNREFUSED
                || ngx_http_sszip_link_err == NGX_ENOENT)
               ? SSZIP_CONNECT_REFUSED : SSZIP_CONNECT_FAILED;
    }

    c = peer.connection;

    c->log = ngx_cycle->log;
    c->read->handler = ngx_http_sszip_link_read_handler;
    c->write->handler = ngx_http_sszip_link_write_handler;
    c->read->log = ngx_cycle->log;
    c->write->log = ngx_cycle->log;

    /* closed with idle connections when the worker quits */
    c->idle = 1;

    ngx_http_sszip_link = c;

    return SSZIP_CONNECT_OPEN;
}


/* writes the core's pending bytes to the connection */

static void
ngx_http_sszip_link_write(void)
{
    size_t             i, count;
    ssize_t            n;
    sszip_str          out[NGX_HTTP_SSZIP_LINK_PIECES];
    ngx_iovec_t        vec;
    struct iovec       iovs[NGX_HTTP_SSZIP_LINK_PIECES];
    ngx_connection_t  *c;

    c = ngx_http_sszip_link;

    if (c == NULL) {
        return;
    }

    vec.iovs = iovs;
    vec.nalloc = NGX_HTTP_SSZIP_LINK_PIECES;

    for ( ;; ) {

        if (sszip_link_output(out, NGX_HTTP_SSZIP_LINK_PIECES, &count,
                              ngx_http_sszip_now())
            != SSZIP_STATUS_OK
            || count == 0)
        {
            return;
        }

        vec.size = 0;
        vec.count = count;

        for (i = 0; i < count; i++) {
            iovs[i].iov_base = (void *) out[i].data;
            iovs[i].iov_len = out[i].len;
            vec.size += out[i].len;
        }

        n = ngx_writev(c, &vec);

        if (n == NGX_AGAIN) {

            c->write->ready = 0;

            if (ngx_handle_write_event(c->write, 0) == NGX_OK) {
                return;
            }

            n = NGX_ERROR;
        }

        if (n == NGX_ERROR) {
            ngx_http_sszip_link_closed();
            return;
        }

        (void) sszip_link_bytes_written(n);
    }
}


/* closes the connection */

static void
ngx_http_sszip_link_close(void)
{
    ngx_connection_t  *c;

    c = ngx_http_sszip_link;

    if (c != NULL) {
        ngx_http_sszip_link = NULL;
        ngx_close_connection(c);
    }
}


/* closes the connection, and reports it to the core */

static void
ngx_http_sszip_link_closed(void)
{
    ngx_http_sszip_link_close();
    (void) sszip_link_closed(ngx_http_sszip_now());
}


/* reads from the connection into the core's buffer */

static void
ngx_http_sszip_link_read_handler(ngx_event_t *rev)
{
    size_t             len, total;
    ssize_t            n;
    u_char            *p;
    ngx_connection_t  *c;

    c = rev->data;
    n = c->close ? 0 : NGX_AGAIN;

    for (total = 0; n != 0 && total < NGX_HTTP_SSZIP_LINK_BYTES; total += n) {

        if (sszip_link_read_buffer(&p, &len) != SSZIP_STATUS_OK) {
            n = 0;
            break;
        }

        /* an entry may be long, and the owner as fast as this worker */

        n = c->recv(c, p, ngx_min(len, NGX_HTTP_SSZIP_LINK_BYTES - total));

        if (n <= 0) {
            break;
        }

        (void) sszip_link_bytes_read(n, ngx_http_sszip_now());

        if (!rev->ready) {
            /* epoll has reported the number of bytes */
            break;
        }
    }

    if (n > 0 && rev->ready) {
        ngx_post_event(rev, &ngx_posted_next_events);

    } else if (n == 0
               || n == NGX_ERROR
               || ngx_handle_read_event(rev, 0) != NGX_OK)
    {
        ngx_http_sszip_link_closed();
    }

    ngx_http_sszip_wake();
}


/* continues the connection, which has become writable */

static void
ngx_http_sszip_link_write_handler(ngx_event_t *wev)
{
    ngx_http_sszip_link_write();
    ngx_http_sszip_wake();
}


/* runs the core's tick for the link when its timer expires */

static void
ngx_http_sszip_link_timer_handler(ngx_event_t *ev)
{
    ngx_http_sszip_link_tick();
    ngx_http_sszip_wake();
}


/* calls the core's tick for the link, and schedules the next one */

static void
ngx_http_sszip_link_tick(void)
{
    bool        is_bad;
    uint64_t    now;
    sszip_str   change;
    ngx_msec_t  ms;
    ngx_uint_t  level;

    now = ngx_http_sszip_now();
    ms = sszip_link_tick(now);

    if (ngx_http_sszip_link_timer.timer_set) {
        ngx_del_timer(&ngx_http_sszip_link_timer);
    }

    if (ms && !ngx_exiting) {
        ngx_add_timer(&ngx_http_sszip_link_timer, ms);
    }

    change = sszip_link_health_change(now, &is_bad);

    if (change.len) {
        level = is_bad ? NGX_LOG_ERR : NGX_LOG_NOTICE;

        ngx_log_error(level, ngx_cycle->log,
                      is_bad ? ngx_http_sszip_link_err : 0,
                      "sszip: the cache's owner at %V %*s",
                      &ngx_http_sszip_owner->name, change.len, change.data);
    }
}
