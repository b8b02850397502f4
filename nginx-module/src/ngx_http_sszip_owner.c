
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"

#include <dlfcn.h>

#include <sszip_owner.h>


/*
 * One process holds the store: nginx's cache manager, which the master starts
 * anew whenever it dies.  The library that does it is opened there, after the
 * fork, and nowhere else: a store does not survive a fork, and workers have no
 * use for it.  Without a master the only process does it itself.
 */


#define NGX_HTTP_SSZIP_OWNER_LIB   "libsszip_owner.so"

/* how often the log is looked at, and how often until it serves */
#define NGX_HTTP_SSZIP_OWNER_POLL  250
#define NGX_HTTP_SSZIP_OWNER_WAIT  20

/*
 * for how long the store's opening holds a process that has nothing else to
 * do, and one that serves
 */
#define NGX_HTTP_SSZIP_OWNER_OPEN   2000
#define NGX_HTTP_SSZIP_OWNER_YIELD  10

/* what nginx's own managers say that have nothing to do, at most */
#define NGX_HTTP_SSZIP_OWNER_NEVER  (60 * 60 * 1000)

/* the master kills after some three seconds */
#define NGX_HTTP_SSZIP_OWNER_STOP  2000

/* how much later it is tried again if it can't be started */
#define NGX_HTTP_SSZIP_OWNER_FAIL  60000

#define NGX_HTTP_SSZIP_OWNER_LINE  1024


static ngx_int_t ngx_http_sszip_owner_lib(ngx_conf_t *cf, ngx_str_t *lib);
static ngx_msec_t ngx_http_sszip_owner_manager(void *data);
static void ngx_http_sszip_owner_run(ngx_log_t *log,
    ngx_http_sszip_main_conf_t *smcf);
static ngx_int_t ngx_http_sszip_owner_start(ngx_http_sszip_main_conf_t *smcf);
static void *ngx_http_sszip_owner_open(ngx_http_sszip_main_conf_t *smcf);
static void *ngx_http_sszip_owner_symbol(void *dl, const char *name);
static void ngx_http_sszip_owner_log(void);
static void ngx_http_sszip_owner_at_exit(ngx_uint_t *registered);
static void ngx_http_sszip_owner_exit(void);
static ngx_msec_t ngx_http_sszip_owner_poll(ngx_http_sszip_main_conf_t *smcf);
static void ngx_http_sszip_owner_timer_handler(ngx_event_t *ev);


/* the library's functions, in the process that has opened it */

static sszip_owner       *ngx_http_sszip_owner_running;

static uint32_t         (*ngx_http_sszip_owner_abi_f)(void);
static const char      *(*ngx_http_sszip_owner_version_f)(void);
static sszip_owner     *(*ngx_http_sszip_owner_start_f)(
                                            const sszip_owner_config *config,
                                            char *error, size_t size);
static sszip_owner_state  (*ngx_http_sszip_owner_poll_f)(
                                            const sszip_owner *owner,
                                            uint64_t limit);
static bool             (*ngx_http_sszip_owner_log_f)(
                                            const sszip_owner *owner,
                                            sszip_owner_level *level,
                                            char *line, size_t size);
static bool             (*ngx_http_sszip_owner_stop_f)(sszip_owner *owner,
                                            uint64_t limit);


/*
 * sszip_cache_path path [max_size=size] [memory=size] [inactive=time]
 *                       [recompress=on|off]
 *
 * nginx makes the folder once the configuration is read, and gives it to the
 * workers' user, with "-t" too: the core has looked into it before that.
 */

char *
ngx_http_sszip_cache_path(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sszip_main_conf_t  *smcf = conf;

    char          *rv;
    u_char        *p;
    ngx_url_t      u;
    sszip_str     *values, said;
    ngx_path_t    *path;
    sszip_store    store;
    sszip_status   status;

    if (smcf->owner != NULL) {
        return "is duplicate, or there is an \"sszip_cache_owner\"";
    }

    values = ngx_http_sszip_arguments(cf);
    path = ngx_pcalloc(cf->pool, sizeof(ngx_path_t));

    if (values == NULL
        || path == NULL
        || ngx_http_sszip_owner_lib(cf, &smcf->library) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    status = sszip_plan_set_store(smcf->plan, values, cf->args->nelts - 1,
                                  ngx_http_sszip_str(&cf->cycle->prefix),
                                  &said);

    rv = ngx_http_sszip_said(cf, cmd, status, &said);

    if (rv != NGX_CONF_OK
        || sszip_plan_store(smcf->plan, &store) != SSZIP_STATUS_OK)
    {
        return NGX_CONF_ERROR;
    }

    p = ngx_pnalloc(cf->pool, store.folder.len + 1
                              + sizeof("unix:") + store.socket.len);
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    path->name.data = p;
    path->name.len = store.folder.len;

    p = ngx_cpymem(p, store.folder.data, store.folder.len + 1);

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.no_resolve = 1;
    u.url.data = p;
    u.url.len = ngx_sprintf(p, "unix:%s", store.socket.data) - p;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs != 1) {
        return NGX_CONF_ERROR;
    }

    path->manager = ngx_http_sszip_owner_manager;
    path->data = smcf;
    path->conf_file = cf->conf_file->file.name.data;
    path->line = cf->conf_file->line;

    if (ngx_add_path(cf, &path) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    smcf->owner = u.addrs;
    smcf->store = 1;

    return NGX_CONF_OK;
}


/* the library is beside the module */

static ngx_int_t
ngx_http_sszip_owner_lib(ngx_conf_t *cf, ngx_str_t *lib)
{
    size_t       len;
    u_char      *p;
    Dl_info      info;
    const char  *slash;

    if (dladdr((void *) &ngx_http_sszip_module, &info) == 0
        || info.dli_fname == NULL)
    {
        return NGX_ERROR;
    }

    slash = strrchr(info.dli_fname, '/');
    len = slash ? slash - info.dli_fname + 1 : 0;

    lib->data = ngx_pnalloc(cf->pool, len + sizeof(NGX_HTTP_SSZIP_OWNER_LIB));
    if (lib->data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(lib->data, info.dli_fname, len);
    p = ngx_cpymem(p, NGX_HTTP_SSZIP_OWNER_LIB,
                   sizeof(NGX_HTTP_SSZIP_OWNER_LIB));

    lib->len = p - lib->data - 1;

    if (access((char *) lib->data, R_OK) == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "\"sszip_cache_path\" needs \"%V\", beside the "
                           "module", lib);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * In the cache manager.  The managers of all paths are called whenever one of
 * them has asked for it, so ours has a timer of its own.
 */

static ngx_msec_t
ngx_http_sszip_owner_manager(void *data)
{
    ngx_http_sszip_owner_run(ngx_cycle->log, data);

    return NGX_HTTP_SSZIP_OWNER_NEVER;
}


static void
ngx_http_sszip_owner_run(ngx_log_t *log, ngx_http_sszip_main_conf_t *smcf)
{
    static ngx_event_t       ev;
    static ngx_connection_t  dumb;

    dumb.fd = (ngx_socket_t) -1;

    ev.handler = ngx_http_sszip_owner_timer_handler;
    ev.data = &dumb;
    ev.log = log;
    ev.cancelable = 1;

    /*
     * The next cycle's configuration does not change what runs, and is what
     * it starts with when it has to start again: the last one's is freed.
     */

    dumb.data = smcf;

    if (!ev.timer_set) {
        ngx_http_sszip_owner_timer_handler(&ev);
    }
}


/* in how many milliseconds it is to be called again */

static ngx_msec_t
ngx_http_sszip_owner_poll(ngx_http_sszip_main_conf_t *smcf)
{
    ngx_msec_t         limit;
    sszip_owner_state  state;
    static ngx_uint_t  registered;

    if (ngx_http_sszip_owner_running == NULL
        && ngx_http_sszip_owner_start(smcf) != NGX_OK)
    {
        return NGX_HTTP_SSZIP_OWNER_FAIL;
    }

    limit = (ngx_process == NGX_PROCESS_SINGLE) ? NGX_HTTP_SSZIP_OWNER_YIELD
                                                : NGX_HTTP_SSZIP_OWNER_OPEN;

    state = ngx_http_sszip_owner_poll_f(ngx_http_sszip_owner_running, limit);

    ngx_http_sszip_owner_log();

    switch (state) {

    case SSZIP_OWNER_SERVING:
        ngx_http_sszip_owner_at_exit(&registered);
        return NGX_HTTP_SSZIP_OWNER_POLL;

    case SSZIP_OWNER_ENDED:
        (void) ngx_http_sszip_owner_stop_f(ngx_http_sszip_owner_running, 0);
        ngx_http_sszip_owner_running = NULL;

        return NGX_HTTP_SSZIP_OWNER_FAIL;

    default:
        return NGX_HTTP_SSZIP_OWNER_WAIT;
    }
}


/* where there is no cache manager */

ngx_int_t
ngx_http_sszip_owner_single(ngx_cycle_t *cycle,
    ngx_http_sszip_main_conf_t *smcf)
{
    if (smcf->store && ngx_process == NGX_PROCESS_SINGLE) {
        ngx_http_sszip_owner_run(cycle->log, smcf);
    }

    return NGX_OK;
}


/* such a process does not wait for the store before it exits */

void
ngx_http_sszip_owner_exit_process(ngx_cycle_t *cycle)
{
    if (ngx_process == NGX_PROCESS_SINGLE) {
        ngx_http_sszip_owner_exit();
    }
}


static void
ngx_http_sszip_owner_timer_handler(ngx_event_t *ev)
{
    ngx_connection_t  *dumb;

    dumb = ev->data;

    ngx_add_timer(ev, ngx_http_sszip_owner_poll(dumb->data));
}


static ngx_int_t
ngx_http_sszip_owner_start(ngx_http_sszip_main_conf_t *smcf)
{
    char                 text[NGX_HTTP_SSZIP_OWNER_LINE];
    sszip_store          store;
    static ngx_uint_t    registered;
    sszip_owner_config   config;

    if (sszip_plan_store(smcf->plan, &store) != SSZIP_STATUS_OK
        || (ngx_http_sszip_owner_start_f == NULL
            && ngx_http_sszip_owner_open(smcf) == NULL))
    {
        return NGX_ERROR;
    }

    ngx_memzero(&config, sizeof(sszip_owner_config));

    config.size = sizeof(sszip_owner_config);
    config.socket = (char *) store.socket.data;
    config.socket_len = store.socket.len;
    config.path = (char *) store.data.data;
    config.path_len = store.data.len;
    config.max_size = store.max_size;
    config.memory = store.memory;
    config.max_entry = store.max_entry;
    config.inactive = store.inactive;
    config.no_recompress = store.no_recompress;
    config.heads = (char *) store.heads.data;
    config.heads_len = store.heads.len;

    ngx_http_sszip_owner_running =
                 ngx_http_sszip_owner_start_f(&config, text, sizeof(text));

    if (ngx_http_sszip_owner_running == NULL) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "sszip: the store can't be started: %s", text);
        return NGX_ERROR;
    }

    /* it may be told to quit while it opens the store */

    ngx_http_sszip_owner_at_exit(&registered);

    return NGX_OK;
}


static void *
ngx_http_sszip_owner_open(ngx_http_sszip_main_conf_t *smcf)
{
    void        *dl;
    sszip_str    own;
    const char  *version;

    dl = dlopen((char *) smcf->library.data, RTLD_NOW|RTLD_LOCAL);

    if (dl == NULL) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "sszip: there is no store: %s", dlerror());
        return NULL;
    }

    ngx_http_sszip_owner_abi_f = ngx_http_sszip_owner_symbol(dl,
                                                        "sszip_owner_abi");

    if (ngx_http_sszip_owner_abi_f == NULL) {
        return NULL;
    }

    if (ngx_http_sszip_owner_abi_f() != SSZIP_OWNER_ABI) {

        *(void **) &ngx_http_sszip_owner_version_f =
                                             dlsym(dl, "sszip_owner_version");

        version = ngx_http_sszip_owner_version_f
                  ? ngx_http_sszip_owner_version_f() : "an older version";
        own = sszip_version();

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "sszip: there is no store: \"%V\" is of another build "
                      "than the module, %s (interface %ui) where the module is "
                      "%*s (interface %ui): install both files of one build",
                      &smcf->library, version,
                      (ngx_uint_t) ngx_http_sszip_owner_abi_f(),
                      own.len, own.data,
                      (ngx_uint_t) SSZIP_OWNER_ABI);
        return NULL;
    }

    ngx_http_sszip_owner_poll_f = ngx_http_sszip_owner_symbol(dl,
                                                       "sszip_owner_poll");
    ngx_http_sszip_owner_log_f = ngx_http_sszip_owner_symbol(dl,
                                                       "sszip_owner_log");
    ngx_http_sszip_owner_stop_f = ngx_http_sszip_owner_symbol(dl,
                                                       "sszip_owner_stop");
    ngx_http_sszip_owner_start_f = ngx_http_sszip_owner_symbol(dl,
                                                       "sszip_owner_start");

    if (ngx_http_sszip_owner_poll_f == NULL
        || ngx_http_sszip_owner_log_f == NULL
        || ngx_http_sszip_owner_stop_f == NULL)
    {
        ngx_http_sszip_owner_start_f = NULL;
    }

    return ngx_http_sszip_owner_start_f ? dl : NULL;
}


static void *
ngx_http_sszip_owner_symbol(void *dl, const char *name)
{
    void  *symbol;

    symbol = dlsym(dl, name);

    if (symbol == NULL) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "sszip: there is no store: %s", dlerror());
    }

    return symbol;
}


static void
ngx_http_sszip_owner_log(void)
{
    char               line[NGX_HTTP_SSZIP_OWNER_LINE];
    ngx_uint_t         n;
    sszip_owner_level  said;

    while (ngx_http_sszip_owner_log_f(ngx_http_sszip_owner_running, &said,
                                      line, sizeof(line)))
    {
        n = (said == SSZIP_OWNER_ERROR) ? NGX_LOG_ERR : NGX_LOG_NOTICE;

        ngx_log_error(n, ngx_cycle->log, 0, "sszip: %s", line);
    }
}


/*
 * Told to quit, the cache manager exits at once.  The handler has to run before
 * RocksDB's own static objects are destroyed, so it is registered after them:
 * once at the start, for an owner without a store, and once it has one.
 */

static void
ngx_http_sszip_owner_at_exit(ngx_uint_t *registered)
{
    if (!*registered) {
        *registered = 1;
        (void) atexit(ngx_http_sszip_owner_exit);
    }
}


static void
ngx_http_sszip_owner_exit(void)
{
    sszip_owner  *owner;

    owner = ngx_http_sszip_owner_running;

    if (owner != NULL) {
        ngx_http_sszip_owner_log();
        ngx_http_sszip_owner_running = NULL;

        if (!ngx_http_sszip_owner_stop_f(owner, NGX_HTTP_SSZIP_OWNER_STOP)) {

            /*
             * The disk is slow, and threads still write to the store: what
             * they use must not be destroyed under them.  What is not on the
             * disk by now is lost as in a crash, and nothing else is.
             */

            _exit(0);
        }
    }
}
