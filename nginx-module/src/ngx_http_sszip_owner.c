
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"

#include <dirent.h>
#include <dlfcn.h>

#include <sszip_owner.h>


/*
 * One process holds the store: nginx's cache manager, which the master starts
 * anew whenever it dies.  The library that does it is opened there, after the
 * fork, and nowhere else: a store does not survive a fork, and workers have no
 * use for it.  Without a master the only process does it itself.
 */


#define NGX_HTTP_SSZIP_OWNER_LIB   "libsszip_owner.so"

/* in the folder of sszip_cache_path */
#define NGX_HTTP_SSZIP_OWNER_SOCK  "/owner.sock"
#define NGX_HTTP_SSZIP_OWNER_DIR   "/store"

/* folders that are made above it are for all to pass, as others' there are */
#define NGX_HTTP_SSZIP_OWNER_ABOVE  0755
#define NGX_HTTP_SSZIP_OWNER_OWN    0700

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


typedef struct {
    ngx_str_t                    lib;
    ngx_str_t                    socket;
    ngx_str_t                    store;
    off_t                        max_size;
    ssize_t                      memory;
    ngx_int_t                    inactive;
    ngx_flag_t                   no_recompress;
    ngx_http_sszip_main_conf_t  *smcf;
} ngx_http_sszip_owner_t;


static ngx_int_t ngx_http_sszip_owner_lib(ngx_conf_t *cf, ngx_str_t *lib);
static ngx_int_t ngx_http_sszip_owner_args(ngx_conf_t *cf,
    ngx_http_sszip_owner_t *owner);
static ngx_int_t ngx_http_sszip_owner_folder(ngx_conf_t *cf,
    ngx_str_t *path);
static ngx_int_t ngx_http_sszip_owner_make_folder(ngx_conf_t *cf,
    ngx_str_t *path);
static ngx_int_t ngx_http_sszip_owner_look_into(ngx_conf_t *cf,
    ngx_str_t *path);
static ngx_uint_t ngx_http_sszip_owner_is_ours(ngx_str_t *path,
    const char *name);
static ngx_msec_t ngx_http_sszip_owner_manager(void *data);
static void ngx_http_sszip_owner_run(ngx_log_t *log,
    ngx_http_sszip_owner_t *owner);
static ngx_int_t ngx_http_sszip_owner_start(ngx_http_sszip_owner_t *owner);
static void *ngx_http_sszip_owner_open(ngx_http_sszip_owner_t *owner);
static void *ngx_http_sszip_owner_symbol(void *dl, const char *name);
static void ngx_http_sszip_owner_log(void);
static void ngx_http_sszip_owner_at_exit(ngx_uint_t *registered);
static void ngx_http_sszip_owner_exit(void);
static ngx_msec_t ngx_http_sszip_owner_poll(ngx_http_sszip_owner_t *owner);
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
 */

char *
ngx_http_sszip_cache_path(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sszip_main_conf_t  *smcf = conf;

    u_char                  *p;
    ngx_url_t                u;
    ngx_path_t              *path;
    ngx_str_t               *value;
    ngx_http_sszip_owner_t  *owner;

    if (smcf->owner != NULL) {
        return "is duplicate, or there is an \"sszip_cache_owner\"";
    }

    value = cf->args->elts;

    path = ngx_pcalloc(cf->pool, sizeof(ngx_path_t));
    owner = ngx_pcalloc(cf->pool, sizeof(ngx_http_sszip_owner_t));

    if (path == NULL || owner == NULL) {
        return NGX_CONF_ERROR;
    }

    path->name.len = value[1].len;

    while (path->name.len && value[1].data[path->name.len - 1] == '/') {
        path->name.len--;
    }

    if (path->name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" directive has an invalid value \"%V\": it "
                           "must be a folder of its own", &cmd->name,
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    path->name.data = ngx_pnalloc(cf->pool, path->name.len + 1);
    if (path->name.data == NULL) {
        return NGX_CONF_ERROR;
    }

    (void) ngx_cpystrn(path->name.data, value[1].data, path->name.len + 1);

    if (ngx_conf_full_name(cf->cycle, &path->name, 0) != NGX_OK
        || ngx_http_sszip_owner_args(cf, owner) != NGX_OK
        || ngx_http_sszip_owner_lib(cf, &owner->lib) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    p = ngx_pnalloc(cf->pool, 2 * path->name.len
                              + sizeof("unix:" NGX_HTTP_SSZIP_OWNER_SOCK)
                              + sizeof(NGX_HTTP_SSZIP_OWNER_DIR));
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    owner->store.data = p;
    owner->store.len = ngx_sprintf(p, "%V" NGX_HTTP_SSZIP_OWNER_DIR,
                                   &path->name)
                       - p;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.no_resolve = 1;
    u.url.data = p + owner->store.len;
    u.url.len = ngx_sprintf(u.url.data, "unix:%V" NGX_HTTP_SSZIP_OWNER_SOCK,
                            &path->name)
                - u.url.data;

    owner->socket.data = u.url.data + sizeof("unix:") - 1;
    owner->socket.len = u.url.len - (sizeof("unix:") - 1);

    if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs != 1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" directive has an invalid value \"%V\": %s "
                           "for the path of its socket, \"%V\"", &cmd->name,
                           &value[1], u.err ? u.err : "no address",
                           &owner->socket);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_sszip_owner_folder(cf, &path->name) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    path->manager = ngx_http_sszip_owner_manager;
    path->data = owner;
    path->conf_file = cf->conf_file->file.name.data;
    path->line = cf->conf_file->line;

    if (ngx_add_path(cf, &path) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    owner->smcf = smcf;

    smcf->owner = u.addrs;
    smcf->store = owner;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_sszip_owner_args(ngx_conf_t *cf, ngx_http_sszip_owner_t *owner)
{
    size_t       len;
    u_char      *p;
    ngx_str_t   *value, s;
    ngx_uint_t   i, n;

    value = cf->args->elts;

    for (i = 2; i < cf->args->nelts; i++) {

        p = (u_char *) ngx_strchr(value[i].data, '=');
        len = p ? p - value[i].data + 1 : 0;

        for (n = 2; len && n < i; n++) {

            if (ngx_strncmp(value[n].data, value[i].data, len) == 0) {
                s.data = value[i].data;
                s.len = len;

                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "parameter \"%V\" is duplicate", &s);
                return NGX_ERROR;
            }
        }
    }

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "max_size=", 9) == 0) {
            s.data = value[i].data + 9;
            s.len = value[i].len - 9;

            owner->max_size = ngx_parse_offset(&s);

            if (owner->max_size >= 64 * 1024 * 1024) {
                continue;
            }

            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid max_size value \"%V\": it must be a "
                               "size of at least 64m", &value[i]);
            return NGX_ERROR;
        }

        if (ngx_strncmp(value[i].data, "memory=", 7) == 0) {
            s.data = value[i].data + 7;
            s.len = value[i].len - 7;

            owner->memory = ngx_parse_size(&s);

            if (owner->memory >= 1024 * 1024) {
                continue;
            }

            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid memory value \"%V\": it must be a "
                               "size of at least 1m", &value[i]);
            return NGX_ERROR;
        }

        if (ngx_strncmp(value[i].data, "inactive=", 9) == 0) {
            s.data = value[i].data + 9;
            s.len = value[i].len - 9;

            owner->inactive = ngx_parse_time(&s, 0);

            if (owner->inactive > 0) {
                continue;
            }

            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid inactive value \"%V\": it must be a "
                               "time of at least 1ms", &value[i]);
            return NGX_ERROR;
        }

        if (ngx_strncmp(value[i].data, "recompress=", 11) == 0) {

            if (ngx_strcmp(&value[i].data[11], "on") == 0) {
                owner->no_recompress = 0;
                continue;
            }

            if (ngx_strcmp(&value[i].data[11], "off") == 0) {
                owner->no_recompress = 1;
                continue;
            }

            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid recompress value \"%V\": it must be "
                               "\"on\" or \"off\"", &value[i]);
            return NGX_ERROR;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\": \"max_size=\", "
                           "\"memory=\", \"inactive=\" and \"recompress=\" "
                           "are known", &value[i]);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * nginx makes the folder once the configuration is read, and gives it to the
 * workers' user, with "-t" too, whatever it is: what is not ours must not get
 * that far.
 */

static ngx_int_t
ngx_http_sszip_owner_folder(ngx_conf_t *cf, ngx_str_t *path)
{
    ngx_file_info_t  fi;

    if (ngx_file_info(path->data, &fi) == NGX_FILE_ERROR) {

        if (ngx_errno == NGX_ENOENT) {
            return ngx_http_sszip_owner_make_folder(cf, path);
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "\"sszip_cache_path\" can't use \"%V\"", path);
        return NGX_ERROR;
    }

    if (!ngx_is_dir(&fi)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sszip_cache_path\" directive has an invalid "
                           "value \"%V\": it must be a folder of its own, and "
                           "this is none", path);
        return NGX_ERROR;
    }

    return ngx_http_sszip_owner_look_into(cf, path);
}


/* ... with those above it, whatever the umask is */

static ngx_int_t
ngx_http_sszip_owner_make_folder(ngx_conf_t *cf, ngx_str_t *path)
{
    u_char     *p, *last, saved;
    mode_t      mode;
    ngx_err_t   err;

    last = path->data + path->len;

    for (p = path->data + 1; p <= last; p++) {

        if (p < last && *p != '/') {
            continue;
        }

        mode = (p == last) ? NGX_HTTP_SSZIP_OWNER_OWN
                           : NGX_HTTP_SSZIP_OWNER_ABOVE;
        saved = *p;
        *p = '\0';

        err = 0;

        if (mkdir((char *) path->data, mode) == -1) {
            err = (ngx_errno == NGX_EEXIST && p < last) ? 0 : ngx_errno;

        } else if (chmod((char *) path->data, mode) == -1) {
            err = ngx_errno;
        }

        if (err) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, err,
                               "\"sszip_cache_path\" can't make the folder "
                               "\"%s\"", path->data);
        }

        *p = saved;

        if (err) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sszip_owner_look_into(ngx_conf_t *cf, ngx_str_t *path)
{
    DIR            *dir;
    ngx_int_t       rc;
    struct dirent  *entry;

    dir = opendir((char *) path->data);

    if (dir == NULL) {

        /* nor can whoever may not look into it give it away */

        if (ngx_errno == NGX_EACCES) {
            return NGX_OK;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "\"sszip_cache_path\" can't use \"%V\"", path);
        return NGX_ERROR;
    }

    rc = NGX_OK;

    while ((entry = readdir(dir)) != NULL) {

        if (ngx_http_sszip_owner_is_ours(path, entry->d_name)) {
            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"sszip_cache_path\" directive has an invalid "
                           "value \"%V\": it must be a folder of its own, and "
                           "\"%s\" in it is none of the store's", path,
                           entry->d_name);
        rc = NGX_ERROR;
        break;
    }

    (void) closedir(dir);

    return rc;
}


static ngx_uint_t
ngx_http_sszip_owner_is_ours(ngx_str_t *path, const char *name)
{
    size_t           len;
    u_char          *p, full[NGX_MAX_PATH];
    ngx_file_info_t  fi;

    /* the last one is of the file system, where it is mounted here */

    if (ngx_strcmp(name, ".") == 0
        || ngx_strcmp(name, "..") == 0
        || ngx_strcmp(name, "lost+found") == 0)
    {
        return 1;
    }

    p = ngx_snprintf(full, NGX_MAX_PATH - 1, "%V/%s", path, name);
    *p = '\0';

    if (ngx_link_info(full, &fi) == NGX_FILE_ERROR) {

        /* a socket that was just replaced */
        return ngx_errno == NGX_ENOENT;
    }

    if (ngx_strcmp(name, &NGX_HTTP_SSZIP_OWNER_DIR[1]) == 0) {
        return ngx_is_dir(&fi) || ngx_is_link(&fi);
    }

    /* while it is bound it has another name, which begins with this one */

    len = sizeof(NGX_HTTP_SSZIP_OWNER_SOCK) - 2;

    return ngx_strncmp(name, &NGX_HTTP_SSZIP_OWNER_SOCK[1], len) == 0
           && S_ISSOCK(fi.st_mode);
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
ngx_http_sszip_owner_run(ngx_log_t *log, ngx_http_sszip_owner_t *owner)
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

    dumb.data = owner;

    if (!ev.timer_set) {
        ngx_http_sszip_owner_timer_handler(&ev);
    }
}


/* in how many milliseconds it is to be called again */

static ngx_msec_t
ngx_http_sszip_owner_poll(ngx_http_sszip_owner_t *owner)
{
    ngx_msec_t         limit;
    sszip_owner_state  state;
    static ngx_uint_t  registered;

    if (ngx_http_sszip_owner_running == NULL
        && ngx_http_sszip_owner_start(owner) != NGX_OK)
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
    if (smcf->store != NULL && ngx_process == NGX_PROCESS_SINGLE) {
        ngx_http_sszip_owner_run(cycle->log, smcf->store);
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
ngx_http_sszip_owner_start(ngx_http_sszip_owner_t *owner)
{
    char                 text[NGX_HTTP_SSZIP_OWNER_LINE];
    sszip_str            heads;
    static ngx_uint_t    registered;
    sszip_owner_config   config;

    if (ngx_http_sszip_owner_start_f == NULL
        && ngx_http_sszip_owner_open(owner) == NULL)
    {
        return NGX_ERROR;
    }

    ngx_memzero(&config, sizeof(sszip_owner_config));

    config.size = sizeof(sszip_owner_config);
    config.socket = (char *) owner->socket.data;
    config.socket_len = owner->socket.len;
    config.path = (char *) owner->store.data;
    config.path_len = owner->store.len;
    config.max_size = owner->max_size;
    config.memory = owner->memory;
    config.max_entry = owner->smcf->max_entry;
    config.inactive = owner->inactive;
    config.no_recompress = (uint8_t) owner->no_recompress;

    if (owner->smcf->heads != NULL
        && sszip_heads_json(owner->smcf->heads, &heads) == SSZIP_STATUS_OK)
    {
        config.heads = (char *) heads.data;
        config.heads_len = heads.len;
    }

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
ngx_http_sszip_owner_open(ngx_http_sszip_owner_t *owner)
{
    void        *dl;
    sszip_str    own;
    const char  *version;

    dl = dlopen((char *) owner->lib.data, RTLD_NOW|RTLD_LOCAL);

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
                      &owner->lib, version,
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
