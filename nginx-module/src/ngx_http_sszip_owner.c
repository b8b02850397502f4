
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"

#include <dlfcn.h>

#include <sszip_owner.h>


/*
 * One process owns the store: nginx's cache manager, which the master
 * restarts whenever it dies.  The owner library is loaded there, after the
 * fork, and nowhere else: a store does not survive a fork, and workers do not
 * need it.  Without a master, the only process is the owner.
 *
 * The master keeps the library's file open.  It runs the module that it has
 * loaded also after a reload, when an upgrade has replaced both files: a new
 * cache manager must load the library that fits this module.  The new binary
 * of an upgrade on the fly (USR2) opens the new files.
 */


#define NGX_HTTP_SSZIP_OWNER_LIB   "libsszip_owner.so"

/* interval that nginx's own managers return if they have no work */
#define NGX_HTTP_SSZIP_OWNER_NEVER  (60 * 60 * 1000)

/* delay before the next attempt if the library is missing */
#define NGX_HTTP_SSZIP_OWNER_FAIL  60000


typedef uint32_t (*ngx_http_sszip_owner_abi_pt)(void);
typedef const char *(*ngx_http_sszip_owner_version_pt)(void);


static ngx_int_t ngx_http_sszip_owner_lib(ngx_conf_t *cf, ngx_str_t *lib);
static ngx_msec_t ngx_http_sszip_owner_manager(void *data);
static void ngx_http_sszip_owner_start(ngx_http_sszip_main_conf_t *smcf);
static void ngx_http_sszip_owner_timer_handler(ngx_event_t *ev);
static ngx_msec_t ngx_http_sszip_owner_run(ngx_http_sszip_main_conf_t *smcf);
static ngx_int_t ngx_http_sszip_owner_open(ngx_http_sszip_main_conf_t *smcf);
static void *ngx_http_sszip_owner_dlopen_fd(void);
static void ngx_http_sszip_owner_log(sszip_owner_level severity,
    const char *line);
static void ngx_http_sszip_owner_at_exit(ngx_uint_t *registered);
static void ngx_http_sszip_owner_exit(void);


/* functions of the library, in the process that has loaded it */

static uint64_t  (*ngx_http_sszip_owner_run_f)(
                                            const sszip_owner_config *config,
                                            bool others, sszip_owner_log log,
                                            bool *serves);
static bool      (*ngx_http_sszip_owner_exit_f)(sszip_owner_log log);

static ngx_http_sszip_main_conf_t  *ngx_http_sszip_owner_conf;

/* the library's file, which is open from the first store's configuration on */

static ngx_fd_t                     ngx_http_sszip_owner_fd = NGX_INVALID_FILE;


/*
 * Prepares the owner of a store, if the configuration has a store of its
 * own.  Called after the configuration is read. nginx creates the store's
 * folder after that, and changes its owner to the workers' user, also with
 * "-t": the core has examined the folder before.
 */

ngx_int_t
ngx_http_sszip_init_owner(ngx_conf_t *cf, ngx_http_sszip_main_conf_t *smcf)
{
    ngx_url_t     u;
    ngx_path_t   *path;
    sszip_store   store;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.no_resolve = 1;
    u.url = ngx_http_sszip_ngx_str(
                          sszip_validated_config_owner_socket(smcf->config));

    if (u.url.len == 0) {
        return NGX_OK;
    }

    if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs != 1) {
        return NGX_ERROR;
    }

    smcf->owner = u.addrs;

    if (ngx_http_sszip_add_tip_floor_zone(cf, smcf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (sszip_validated_config_store(smcf->config, &store) != SSZIP_STATUS_OK) {
        return NGX_OK;
    }

    smcf->store = 1;

    path = ngx_pcalloc(cf->pool, sizeof(ngx_path_t));

    if (path == NULL
        || ngx_http_sszip_owner_lib(cf, &smcf->library) != NGX_OK)
    {
        return NGX_ERROR;
    }

    path->name = ngx_http_sszip_ngx_str(store.folder);
    path->manager = ngx_http_sszip_owner_manager;
    path->data = smcf;
    path->conf_file = cf->conf_file->file.name.data;
    path->line = cf->conf_file->line;

    return ngx_add_path(cf, &path);
}


/*
 * Sets the path of the owner library, which is installed next to the module,
 * and opens its file.
 */

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
        ngx_log_error(NGX_LOG_EMERG, cf->log, ngx_errno,
                      "\"sszip_cache_path\" needs the library \"%V\" next to "
                      "the module", lib);
        return NGX_ERROR;
    }

    if (ngx_http_sszip_owner_fd == NGX_INVALID_FILE) {

        /* without a descriptor the library is loaded by its path */

        ngx_http_sszip_owner_fd = open((char *) lib->data,
                                       O_RDONLY|O_CLOEXEC);
    }

    return NGX_OK;
}


/*
 * Starts the owner in the cache manager.  The managers of all paths are
 * called whenever one of them is due, so the owner has a timer of its own.
 */

static ngx_msec_t
ngx_http_sszip_owner_manager(void *data)
{
    ngx_http_sszip_owner_start(data);

    return NGX_HTTP_SSZIP_OWNER_NEVER;
}


/* starts the owner in the worker where there is no cache manager */

void
ngx_http_sszip_owner_single(ngx_http_sszip_main_conf_t *smcf)
{
    if (smcf->store && ngx_process == NGX_PROCESS_SINGLE) {
        ngx_http_sszip_owner_start(smcf);
    }
}


/*
 * Ends the owner when a single process exits, which has no cache manager.  A
 * single process does not wait for the store before it exits.
 */

void
ngx_http_sszip_owner_exit_process(ngx_cycle_t *cycle)
{
    if (ngx_process == NGX_PROCESS_SINGLE) {
        ngx_http_sszip_owner_exit();
    }
}


/* starts the timer on which the owner runs */

static void
ngx_http_sszip_owner_start(ngx_http_sszip_main_conf_t *smcf)
{
    static ngx_event_t  ev;

    ngx_http_sszip_init_timer(&ev, ngx_http_sszip_owner_timer_handler);

    ev.cancelable = 1;

    /*
     * The configuration of the next cycle does not change a running owner,
     * but is used when the owner starts again: the previous one is freed.
     */

    ngx_http_sszip_owner_conf = smcf;

    if (!ev.timer_set) {
        ngx_http_sszip_owner_timer_handler(&ev);
    }
}


/* runs the owner, and schedules the next run */

static void
ngx_http_sszip_owner_timer_handler(ngx_event_t *ev)
{
    ngx_add_timer(ev, ngx_http_sszip_owner_run(ngx_http_sszip_owner_conf));
}


/*
 * Runs the due work of the owner, and starts it if it is not running.
 * Returns the milliseconds after which to call again.
 */

static ngx_msec_t
ngx_http_sszip_owner_run(ngx_http_sszip_main_conf_t *smcf)
{
    bool                serves;
    ngx_msec_t          ms;
    sszip_store         store;
    sszip_owner_config  config;
    static ngx_uint_t   started, served;

    if (sszip_validated_config_store(smcf->config, &store) != SSZIP_STATUS_OK
        || ngx_http_sszip_owner_open(smcf) != NGX_OK)
    {
        return NGX_HTTP_SSZIP_OWNER_FAIL;
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
    config.fleet = (char *) store.fleet.data;
    config.fleet_len = store.fleet.len;

    /* the process may receive the quit signal while it opens the store */

    ngx_http_sszip_owner_at_exit(&started);

    ms = ngx_http_sszip_owner_run_f(&config,
                                    ngx_process == NGX_PROCESS_SINGLE,
                                    ngx_http_sszip_owner_log, &serves);

    if (serves) {
        ngx_http_sszip_owner_at_exit(&served);
    }

    return ms;
}


/* loads the owner library, and checks that it is of the module's version */

static ngx_int_t
ngx_http_sszip_owner_open(ngx_http_sszip_main_conf_t *smcf)
{
    void                            *dl;
    sszip_str                        module_version;
    const char                      *version;
    ngx_http_sszip_owner_abi_pt      abi_f;
    ngx_http_sszip_owner_version_pt  version_f;

    if (ngx_http_sszip_owner_run_f != NULL) {
        return NGX_OK;
    }

    dl = ngx_http_sszip_owner_dlopen_fd();

    if (dl == NULL) {
        dl = dlopen((char *) smcf->library.data, RTLD_NOW|RTLD_LOCAL);
    }

    if (dl == NULL) {
        goto failed;
    }

    *(void **) &abi_f = dlsym(dl, "sszip_owner_abi");

    if (abi_f == NULL) {
        goto failed;
    }

    if (abi_f() != SSZIP_OWNER_ABI) {

        *(void **) &version_f = dlsym(dl, "sszip_owner_version");

        version = version_f ? version_f() : "an older version";
        module_version = sszip_version();

        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "sszip: cannot start the owner of the store: \"%V\" is "
                      "from another build than the module, %s (interface %ui), "
                      "and the module is %*s (interface %ui); install both "
                      "files of one build, and restart nginx",
                      &smcf->library, version, (ngx_uint_t) abi_f(),
                      module_version.len, module_version.data,
                      (ngx_uint_t) SSZIP_OWNER_ABI);

        return NGX_ERROR;
    }

    *(void **) &ngx_http_sszip_owner_exit_f = dlsym(dl, "sszip_owner_exit");

    if (ngx_http_sszip_owner_exit_f == NULL) {
        goto failed;
    }

    *(void **) &ngx_http_sszip_owner_run_f = dlsym(dl, "sszip_owner_run");

    if (ngx_http_sszip_owner_run_f != NULL) {
        return NGX_OK;
    }

failed:

    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                  "sszip: cannot start the owner of the store: %s",
                  dlerror());

    return NGX_ERROR;
}


/*
 * Loads the owner library from the file that the master has opened.  Returns
 * NULL if the file is not accessible, or is of another version than the
 * module: the library at the path may have been replaced by one that fits.
 */

static void *
ngx_http_sszip_owner_dlopen_fd(void)
{
    void                        *dl;
    ngx_http_sszip_owner_abi_pt  abi_f;
    u_char                       name[sizeof("/proc/self/fd/")
                                      + NGX_INT_T_LEN];

    if (ngx_http_sszip_owner_fd == NGX_INVALID_FILE) {
        return NULL;
    }

    ngx_sprintf(name, "/proc/self/fd/%d%Z", ngx_http_sszip_owner_fd);

    dl = dlopen((char *) name, RTLD_NOW|RTLD_LOCAL);

    if (dl == NULL) {
        return NULL;
    }

    *(void **) &abi_f = dlsym(dl, "sszip_owner_abi");

    if (abi_f == NULL || abi_f() != SSZIP_OWNER_ABI) {
        return NULL;
    }

    return dl;
}


/* writes a line of the owner to the error log */

static void
ngx_http_sszip_owner_log(sszip_owner_level severity, const char *line)
{
    ngx_uint_t  level;

    level = (severity == SSZIP_OWNER_ERROR) ? NGX_LOG_ERR : NGX_LOG_NOTICE;

    ngx_log_error(level, ngx_cycle->log, 0, "sszip: %s", line);
}


/*
 * Registers the function that ends the owner when the process exits.  On the
 * quit signal the cache manager exits at once.  The handler must run before
 * RocksDB's static objects are destroyed, so it is registered after them:
 * once at the start, for an owner without a store, and once when the store is
 * open.
 */

static void
ngx_http_sszip_owner_at_exit(ngx_uint_t *registered)
{
    if (!*registered) {
        *registered = 1;
        (void) atexit(ngx_http_sszip_owner_exit);
    }
}


/* ends the owner when the process exits */

static void
ngx_http_sszip_owner_exit(void)
{
    if (ngx_http_sszip_owner_run_f != NULL
        && !ngx_http_sszip_owner_exit_f(ngx_http_sszip_owner_log))
    {
        /*
         * The disk is slow, and threads still write to the store: their
         * objects must not be destroyed meanwhile.  Entries that are not on
         * disk by now are lost, as in a crash; no others are.
         */

        _exit(0);
    }
}
