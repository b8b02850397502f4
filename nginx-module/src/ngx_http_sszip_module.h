
/*
 * Copyright (C) the sszip authors
 */


#ifndef _NGX_HTTP_SSZIP_MODULE_H_INCLUDED_
#define _NGX_HTTP_SSZIP_MODULE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <sszip.h>


/* requests of Lua for the present request */
#define NGX_HTTP_SSZIP_BYPASS_LOOK_UP  1
#define NGX_HTTP_SSZIP_BYPASS_STORE    2

/* variables with the length of a request body */
#define NGX_HTTP_SSZIP_LENGTHS  2

/* variables with the length of a request body whose value is allocated */
#define NGX_HTTP_SSZIP_ALLOCATED_LENGTHS  2

/* maximum length of foreign text in a log line, in bytes */
#define NGX_HTTP_SSZIP_LOG_TEXT  512


/* handler of a variable that sszip's replaces */

typedef struct {
    ngx_http_get_variable_pt     get_handler;
    uintptr_t                    data;
} ngx_http_sszip_variable_handler_t;


typedef struct {
    ngx_flag_t                   used;             /* sszip directives exist */
    ngx_flag_t                   enable;           /* in any location */
    ngx_int_t                    accept_encoding;  /* variable index */
    ngx_int_t                    lengths[NGX_HTTP_SSZIP_LENGTHS];
    ngx_int_t                    request_uri;      /* variable index */
    ngx_int_t                    bypass;           /* variable index, of Lua */
    ngx_array_t                  caching;          /* location confs */
    ngx_shm_zone_t              *zone;             /* counters, or NULL */
    ngx_shm_zone_t              *tip_floors;       /* tip floors, or NULL */
    ngx_addr_t                  *owner;            /* address, or NULL */
    ngx_flag_t                   store;            /* this nginx owns it */
    ngx_str_t                    library;          /* owner library */
    sszip_validated_config      *config;           /* whole configuration */

    ngx_http_sszip_variable_handler_t
                                 length_handlers[
                                     NGX_HTTP_SSZIP_ALLOCATED_LENGTHS];
} ngx_http_sszip_main_conf_t;


typedef struct {
    size_t                       block;            /* number of the block */
    const sszip_config          *config;
    ngx_flag_t                   enable;
    ngx_bufs_t                   bufs;

    const char                  *pass;             /* its upstream module */
    ngx_http_complex_value_t    *url;              /* upstream URL */
    ngx_str_t                    location;
    ngx_flag_t                   has_handler;      /* has a content handler */
    ngx_uint_t                   http_version;     /* to the node, or 0 */
    ngx_flag_t                   sets_headers;     /* proxy_set_header */
    ngx_flag_t                   sets_length;      /* sets Content-Length */
    ngx_flag_t                   sets_codings;     /* sets Accept-Encoding */

    ngx_flag_t                   caches;
    ngx_flag_t                   reads_requests;   /* request bodies */
    ngx_flag_t                   has_policy;       /* under a policy */
    ngx_flag_t                   sends_probes;     /* sends probes */
    ngx_http_complex_value_t    *cache_namespace;
    ngx_array_t                 *cache_bypass;     /* complex values */
    ngx_array_t                 *no_cache;         /* complex values */
    ngx_flag_t                   purges;
    ngx_flag_t                   reports_status;   /* status location */

#if (NGX_THREADS)
    ngx_flag_t                   threads;
    ngx_thread_pool_t           *thread_pool;
#endif
} ngx_http_sszip_loc_conf_t;


typedef struct {
    sszip_exchange              *exchange;
    sszip_step                   step;           /* last action of the core */
    unsigned                     done:1;         /* a thread has run its job */
    unsigned                     keepalive:1;    /* before buffering */
    unsigned                     upstream_failed:1;
    unsigned                     pending:1;      /* a piece is unfinished */
    unsigned                     stored:1;       /* stored head is set */
    unsigned                     body_changed:1; /* body, by other filters */
    unsigned                     upstream_encoded:1;
    unsigned                     whole_body:1;   /* request body required */
    unsigned                     lookup_over:1;  /* the lookup is over */
    unsigned                     local:1;        /* not from an upstream */
    unsigned                     client_gone:1;  /* the client is gone */
    unsigned                     head_failed:1;  /* its head failed */
    unsigned                     updating:1;     /* since the last lookup */

    sszip_head_edit              coding;         /* of a stored response */
    off_t                        unfiltered_length;  /* before other filters */

    size_t                       turn_bytes;     /* bytes of this turn */
    ngx_event_t                 *timer;          /* buffering, or flush */
    ngx_chain_t                 *flush_chain;    /* empty flush buffer */

    /* buffers of a stream, as in the gzip filter */
    ngx_chain_t                 *in;
    ngx_chain_t                 *free;
    ngx_chain_t                 *busy;
    ngx_chain_t                 *out;
    ngx_chain_t                **last_out;
    ngx_buf_t                   *in_buf;         /* NULL when consumed */
    ngx_buf_t                   *out_buf;
    sszip_flush                  flush;          /* flush of its piece */
    ngx_int_t                    bufs;

    ngx_event_t                  wake;
    ngx_http_request_t          *request;

    /* of a background update or a probe */
    ngx_connection_t            *null_connection;  /* replaces the client */
    ngx_int_t                  (*input_filter_init)(void *data);

    /* upstream request body in place of the client's, or NULL */
    ngx_chain_t                 *request_bufs;
    off_t                        request_length;

    /* values of these variables for which the request's pool has no memory */
    u_char                       lengths[NGX_HTTP_SSZIP_ALLOCATED_LENGTHS]
                                        [NGX_OFF_T_LEN];

    /* target at the upstream, escaped with a query, and not; or empty */
    ngx_str_t                    request_target;
    ngx_str_t                    request_path;

    /* handlers of the upstream module that sszip's replace */
    ngx_int_t                  (*create_request)(ngx_http_request_t *r);
    void                       (*finalize_request)(ngx_http_request_t *r,
                                     ngx_int_t rc);
    ngx_int_t                  (*rewrite_redirect)(ngx_http_request_t *r,
                                                   ngx_table_elt_t *h,
                                                   size_t prefix);

} ngx_http_sszip_ctx_t;


/* gets or creates the exchange of a request; NULL: pass everything */
ngx_http_sszip_ctx_t *ngx_http_sszip_get_ctx(ngx_http_request_t *r);

/* takes ownership of the exchange, even if it returns NULL */
ngx_http_sszip_ctx_t *ngx_http_sszip_create_ctx(ngx_http_request_t *r,
    sszip_exchange *exchange);

/* detaches a context that needs no further action */
void ngx_http_sszip_detach(ngx_http_sszip_ctx_t *ctx);

/* cleanup handler of a context */
void ngx_http_sszip_free_exchange(void *data);

ngx_int_t ngx_http_sszip_add_variables(ngx_conf_t *cf);
ngx_int_t ngx_http_sszip_index_bypass(ngx_conf_t *cf,
    ngx_http_sszip_main_conf_t *smcf);

/* bypass that a program requested, preserved by internal redirects */
ngx_int_t ngx_http_sszip_set_bypass(ngx_http_request_t *r, ngx_uint_t bypass);
ngx_uint_t ngx_http_sszip_bypass(ngx_http_request_t *r);

/* converts strings for the core; NULL: no memory */
sszip_str *ngx_http_sszip_strs(ngx_pool_t *pool, ngx_str_t *strs, size_t n);

/* request and response heads */
sszip_header *ngx_http_sszip_read_headers(ngx_http_request_t *r,
    ngx_list_t *list, ngx_str_t *content_type, size_t *n);
void ngx_http_sszip_head(ngx_http_request_t *r, sszip_response_head *head,
    ngx_http_upstream_t *u);
ngx_int_t ngx_http_sszip_edit_head_out(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
ngx_int_t ngx_http_sszip_response_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* replaces the response head by a stored response's */
ngx_int_t ngx_http_sszip_set_stored_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* sets the content coding after all other filters have set their headers */
ngx_int_t ngx_http_sszip_filtered_hit_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* tests gzip_proxied, gzip_disable and gzip_http_version */
ngx_uint_t ngx_http_sszip_encoding_allowed(ngx_http_request_t *r);

/* header and body filters */
void ngx_http_sszip_filter_init(void);
ngx_int_t ngx_http_sszip_send_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
ngx_int_t ngx_http_sszip_send_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
ngx_int_t ngx_http_sszip_pass_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* logs that another module was detected to change bodies */
void ngx_http_sszip_log_body_filters(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* removes the marker that keeps other filters from compressing */
void ngx_http_sszip_allow_encoding(ngx_http_request_t *r);

/* buffering: pieces of the body, and the end of the buffering window */
ngx_int_t ngx_http_sszip_collect(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
ngx_int_t ngx_http_sszip_bad_gateway(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, const char *reason);
ngx_int_t ngx_http_sszip_discard_chain(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
ngx_int_t ngx_http_sszip_resume_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest);

/* streaming compression of the body */
ngx_int_t ngx_http_sszip_stream_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
ngx_int_t ngx_http_sszip_stream(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
void ngx_http_sszip_set_timer(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* buffers; NULL: no memory */
ngx_chain_t *ngx_http_sszip_chain(ngx_http_request_t *r, sszip_str piece);
ngx_chain_t *ngx_http_sszip_empty_buf(ngx_http_request_t *r, ngx_uint_t last);

/* the body of the exchange, followed by rest; NULL: the body is complete */
ngx_int_t ngx_http_sszip_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest, ngx_chain_t **out);

/* feeds a chain to the exchange; returns whether it ends the body */
ngx_uint_t ngx_http_sszip_feed_pieces(ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *in);

/* size of a chain, and a copy of its bytes */
size_t ngx_http_sszip_chain_size(ngx_chain_t *cl);
ngx_int_t ngx_http_sszip_copy_chain(ngx_chain_t *cl, u_char *p);

/* discards the bytes of a chain */
void ngx_http_sszip_drop_body(ngx_chain_t *in);

/* sends bytes to a client that may be gone while they are cached */
ngx_int_t ngx_http_sszip_pass_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);

/* a connection without a client that is always writable */
ngx_connection_t *ngx_http_sszip_null_connection(ngx_http_request_t *r);

/* lookups and stored responses */
ngx_int_t ngx_http_sszip_cache_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_sszip_rewrite_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
ngx_int_t ngx_http_sszip_lookup_done(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* evaluates a complex value; NULL data: none is configured */
ngx_int_t ngx_http_sszip_value(ngx_http_request_t *r,
    ngx_http_complex_value_t *cv, sszip_str *str);
void ngx_http_sszip_store(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx);

/* background updates */
void ngx_http_sszip_update(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx);
void ngx_http_sszip_update_start(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
void ngx_http_sszip_update_body(ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
ngx_http_request_t *ngx_http_sszip_background(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_str_t *uri, ngx_str_t *args);

/* NULL: the request is no background request */
ngx_http_sszip_ctx_t *ngx_http_sszip_update_ctx(ngx_http_request_t *r);

/* probes of the node */
void ngx_http_sszip_start_probe(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* link to the owner */
void ngx_http_sszip_link_start(ngx_addr_t *owner);
void ngx_http_sszip_wake(void);
uint64_t ngx_http_sszip_now(void);
char *ngx_http_sszip_cache_purge(ngx_conf_t *cf, void *post, void *data);

/* content handler of a location that purges or has a status page */
char *ngx_http_sszip_set_handler(ngx_conf_t *cf, ngx_http_handler_pt handler);

/* shared tip floors */
ngx_int_t ngx_http_sszip_add_tip_floor_zone(ngx_conf_t *cf,
    ngx_http_sszip_main_conf_t *smcf);
void ngx_http_sszip_share_tip_floors(ngx_http_sszip_main_conf_t *smcf);

/* metrics, counted before a context is freed, and the status page */
char *ngx_http_sszip_report_status(ngx_conf_t *cf, void *post, void *data);
void ngx_http_sszip_count(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx);
void ngx_http_sszip_update_gauges(void);
void ngx_http_sszip_clear_board(void);
ngx_uint_t ngx_http_sszip_metrics_board(sszip_metrics_board *board);

ngx_int_t ngx_http_sszip_init_owner(ngx_conf_t *cf,
    ngx_http_sszip_main_conf_t *smcf);
void ngx_http_sszip_owner_single(ngx_http_sszip_main_conf_t *smcf);
void ngx_http_sszip_owner_exit_process(ngx_cycle_t *cycle);

/* initializes a timer without a connection */
void ngx_http_sszip_init_timer(ngx_event_t *ev, ngx_event_handler_pt handler);

/* route of a lookup */
void ngx_http_sszip_wrap_directives(ngx_conf_t *cf);
ngx_int_t ngx_http_sszip_add_upstreams(ngx_conf_t *cf,
    sszip_validated_config *config);
ngx_int_t ngx_http_sszip_set_lookup_route(ngx_http_request_t *r,
    sszip_lookup_request *lookup);

ngx_uint_t ngx_http_sszip_upstream_uses_http_1_0(
    ngx_http_sszip_loc_conf_t *slcf);

/* headers that proxy_hide_header and the like hide, on hits as on misses */
ngx_int_t ngx_http_sszip_collect_hidden_headers(ngx_conf_t *cf,
    ngx_http_sszip_loc_conf_t *slcf, sszip_route *route);

/* upstream request */
ngx_int_t ngx_http_sszip_call_handler(ngx_http_request_t *r,
    ngx_http_handler_pt handler);
void ngx_http_sszip_close_window(ngx_http_request_t *r);
void ngx_http_sszip_edit_cache_vary(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* variables with the length of a request body, when memory is refused */
void ngx_http_sszip_wrap_length_variables(ngx_conf_t *cf);
ngx_int_t ngx_http_sszip_reserve_length(ngx_cycle_t *cycle);

/* upstream response */
void ngx_http_sszip_hook_finalize(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
sszip_failure ngx_http_sszip_failure(ngx_http_request_t *r, ngx_uint_t status);

/* jobs */
ngx_int_t ngx_http_sszip_run(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx);
void ngx_http_sszip_run_detached_job(ngx_http_request_t *r, sszip_job *job);
#if (NGX_THREADS)
void ngx_http_sszip_thread_init(void);
#endif


/* defines a module that only registers a filter */

#define ngx_http_sszip_define_filter_module(module, init)                     \
                                                                              \
static ngx_http_module_t  module##_ctx = {                                    \
    NULL,                                  /* preconfiguration */             \
    init,                                  /* postconfiguration */            \
    NULL, NULL, NULL, NULL, NULL, NULL                                        \
};                                                                            \
                                                                              \
ngx_module_t  module = {                                                      \
    NGX_MODULE_V1,                                                            \
    &module##_ctx,                         /* module context */               \
    NULL,                                  /* module directives */            \
    NGX_HTTP_MODULE,                       /* module type */                  \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL,                                 \
    NGX_MODULE_V1_PADDING                                                     \
}


extern ngx_module_t  ngx_http_sszip_module;


static ngx_inline sszip_str
ngx_http_sszip_str(ngx_str_t *s)
{
    sszip_str  str;

    str.data = s->data;
    str.len = s->len;

    return str;
}


static ngx_inline ngx_str_t
ngx_http_sszip_ngx_str(sszip_str str)
{
    ngx_str_t  s;

    s.data = (u_char *) str.data;
    s.len = str.len;

    return s;
}


/* escapes foreign text for a log line */

static ngx_inline ngx_str_t
ngx_http_sszip_log_text(ngx_str_t *input, u_char *text)
{
    ngx_str_t  s;

    s.data = text;
    s.len = sszip_escape_log_text(ngx_http_sszip_str(input), text,
                                  NGX_HTTP_SSZIP_LOG_TEXT);

    return s;
}


/* bytes of a buffer that are in memory */

static ngx_inline sszip_str
ngx_http_sszip_piece(ngx_buf_t *b)
{
    sszip_str  piece;

    piece.data = b->pos;
    piece.len = ngx_buf_in_memory(b) ? (size_t) (b->last - b->pos) : 0;

    return piece;
}


static ngx_inline void
ngx_http_sszip_take_buf(ngx_buf_t *b)
{
    b->pos = b->last;

    if (b->in_file) {
        b->file_pos = b->file_last;
    }
}


static ngx_inline ngx_uint_t
ngx_http_sszip_is_field(ngx_table_elt_t *header, const sszip_head_edit *edit)
{
    return header->key.len == edit->name.len
           && ngx_strncasecmp(header->key.data, (u_char *) edit->name.data,
                              edit->name.len)
              == 0;
}


#endif /* _NGX_HTTP_SSZIP_MODULE_H_INCLUDED_ */
