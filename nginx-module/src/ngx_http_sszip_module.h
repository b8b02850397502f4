
/*
 * Copyright (C) the sszip authors
 */


#ifndef _NGX_HTTP_SSZIP_MODULE_H_INCLUDED_
#define _NGX_HTTP_SSZIP_MODULE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <sszip.h>


/* what Lua asks for */
#define NGX_HTTP_SSZIP_BYPASS_LOOK_UP  1
#define NGX_HTTP_SSZIP_BYPASS_STORE    2

/* variables that give the length of a request's body */
#define NGX_HTTP_SSZIP_LENGTHS  2

/* bytes of others' text in a line of the log */
#define NGX_HTTP_SSZIP_LOG_TEXT  512


typedef struct {
    ngx_flag_t                   used;             /* a directive of ours */
    ngx_flag_t                   enable;           /* somewhere */
    ngx_int_t                    accept_encoding;  /* index of a variable */
    ngx_int_t                    lengths[NGX_HTTP_SSZIP_LENGTHS];
    ngx_int_t                    request_uri;      /* the same */
    ngx_int_t                    bypass;           /* ... what Lua has said */
    ngx_array_t                  caching;          /* location confs */
    ngx_shm_zone_t              *zone;             /* of counters, or NULL */
    ngx_shm_zone_t              *heads;            /* that are over, or NULL */
    ngx_addr_t                  *owner;            /* of the store, or NULL */
    ngx_flag_t                   store;            /* ours to start */
    ngx_str_t                    library;          /* that does it */
    sszip_plan                  *plan;             /* of all locations */
} ngx_http_sszip_main_conf_t;


typedef struct {
    size_t                       block;            /* its number in the plan */
    const sszip_config          *config;
    ngx_flag_t                   enable;
    ngx_bufs_t                   bufs;

    const char                  *pass;             /* the module, or NULL */
    ngx_http_complex_value_t    *url;              /* where it passes to */
    ngx_str_t                    location;
    ngx_flag_t                   answers;          /* it has a handler */
    ngx_uint_t                   http_version;     /* of the proxy, or 0 */
    ngx_flag_t                   sets_fields;      /* proxy_set_header */
    ngx_flag_t                   sets_length;      /* ... Content-Length */
    ngx_flag_t                   sets_codings;     /* ... Accept-Encoding */

    ngx_flag_t                   caches;
    ngx_flag_t                   reads;            /* requests */
    ngx_flag_t                   judges;           /* ... or refuses them */
    ngx_flag_t                   inquires;         /* of the node */
    ngx_http_complex_value_t    *cache_namespace;
    ngx_array_t                 *cache_bypass;     /* complex values */
    ngx_array_t                 *no_cache;         /* complex values */
    ngx_flag_t                   purges;
    ngx_flag_t                   tells;            /* how it all goes */

#if (NGX_THREADS)
    ngx_flag_t                   threads;
    ngx_thread_pool_t           *thread_pool;
#endif
} ngx_http_sszip_loc_conf_t;


typedef struct {
    sszip_exchange              *exchange;
    sszip_step                   step;           /* what it has said last */
    unsigned                     done:1;         /* its job is, by a thread */
    unsigned                     keepalive:1;    /* before the head was held */
    unsigned                     upstream_failed:1;
    unsigned                     pending:1;      /* a piece is not done */
    unsigned                     stored:1;       /* its head is set */
    unsigned                     changed:1;      /* the body, by others */
    unsigned                     node_coded:1;
    unsigned                     whole_body:1;   /* of the request */
    unsigned                     looked_up:1;    /* it may go on */
    unsigned                     own:1;          /* made by no upstream */
    unsigned                     orphan:1;       /* the client has gone */
    unsigned                     headless:1;     /* its head has failed */

    sszip_edit                   coding;         /* of a stored answer */
    off_t                        node_length;    /* before other filters */

    size_t                       turn;           /* taken of a held body */
    ngx_event_t                 *timer;          /* ends holding, or flushes */
    ngx_chain_t                 *mark;           /* that it flushes with */

    /* a stream's buffers, as in the gzip filter */
    ngx_chain_t                 *in;
    ngx_chain_t                 *free;
    ngx_chain_t                 *busy;
    ngx_chain_t                 *out;
    ngx_chain_t                **last_out;
    ngx_buf_t                   *in_buf;         /* NULL once it is taken */
    ngx_buf_t                   *out_buf;
    sszip_flush                  flush;          /* what its piece asks for */
    ngx_int_t                    bufs;

    ngx_event_t                  wake;
    ngx_http_request_t          *request;

    /* of a subrequest that fetches for the cache alone */
    ngx_connection_t            *nobody;         /* in the client's place */
    ngx_int_t                  (*input_filter_init)(void *data);

    /* what the node gets in place of the client's body, or NULL */
    ngx_chain_t                 *request_bufs;
    off_t                        request_length;

    /* where the node has it, escaped and with a query, and not; or empty */
    ngx_str_t                    request_target;
    ngx_str_t                    request_path;

    /* the upstream module's, while ours stand in their place */
    ngx_int_t                  (*create_request)(ngx_http_request_t *r);
    void                       (*finalize_request)(ngx_http_request_t *r,
                                     ngx_int_t rc);
    ngx_int_t                  (*rewrite_redirect)(ngx_http_request_t *r,
                                                   ngx_table_elt_t *h,
                                                   size_t prefix);

} ngx_http_sszip_ctx_t;


/* the exchange of a request, made on first use; NULL: pass everything */
ngx_http_sszip_ctx_t *ngx_http_sszip_get_ctx(ngx_http_request_t *r);

/* takes the exchange, even if it returns NULL */
ngx_http_sszip_ctx_t *ngx_http_sszip_create_ctx(ngx_http_request_t *r,
    sszip_exchange *exchange);

/* nothing more comes of a context */
void ngx_http_sszip_abandon(ngx_http_sszip_ctx_t *ctx);

/* the cleanup of a context */
void ngx_http_sszip_free_exchange(void *data);

ngx_int_t ngx_http_sszip_add_variables(ngx_conf_t *cf);
ngx_int_t ngx_http_sszip_index_bypass(ngx_conf_t *cf,
    ngx_http_sszip_main_conf_t *smcf);

/* what a program has said of this request, wherever it was redirected to */
ngx_int_t ngx_http_sszip_set_bypass(ngx_http_request_t *r, ngx_uint_t what);
ngx_uint_t ngx_http_sszip_bypass(ngx_http_request_t *r);

/* as the core reads them; NULL: there is no memory */
sszip_str *ngx_http_sszip_strs(ngx_pool_t *pool, ngx_str_t *strs, size_t n);

/* heads */
sszip_field *ngx_http_sszip_fields(ngx_http_request_t *r, ngx_list_t *list,
    ngx_str_t *content_type, size_t *n);
void ngx_http_sszip_head(ngx_http_request_t *r, sszip_response_head *head,
    ngx_http_upstream_t *u);
ngx_int_t ngx_http_sszip_edit_head_out(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
ngx_int_t ngx_http_sszip_judge(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* a stored answer's head, in place of what there is */
ngx_int_t ngx_http_sszip_set_stored_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* how it is coded: once all others have had their say */
ngx_int_t ngx_http_sszip_code_stored_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* gzip_proxied, gzip_disable and gzip_http_version */
ngx_uint_t ngx_http_sszip_coding_allowed(ngx_http_request_t *r);

/* the filters */
void ngx_http_sszip_filter_init(void);
ngx_int_t ngx_http_sszip_send_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
ngx_int_t ngx_http_sszip_send_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
ngx_int_t ngx_http_sszip_pass_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* says so when another module is found to change bodies */
void ngx_http_sszip_note_filters(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* others were held off from coding a body */
void ngx_http_sszip_let_code(ngx_http_request_t *r);

/* while a head is held: what came of the body, and what is to become of both */
ngx_int_t ngx_http_sszip_collect(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
ngx_int_t ngx_http_sszip_bad_gateway(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, const char *why);
ngx_int_t ngx_http_sszip_drop(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
ngx_int_t ngx_http_sszip_go(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    ngx_chain_t *rest);

/* the body, coded as it comes */
ngx_int_t ngx_http_sszip_stream_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
ngx_int_t ngx_http_sszip_stream(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
void ngx_http_sszip_set_timer(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* buffers; NULL: there is no memory */
ngx_chain_t *ngx_http_sszip_chain(ngx_http_request_t *r, sszip_str piece);
ngx_chain_t *ngx_http_sszip_mark(ngx_http_request_t *r, ngx_uint_t last);

/* what the exchange has to send, and the rest; NULL: that is all of it */
ngx_int_t ngx_http_sszip_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *rest, ngx_chain_t **out);

/* to the exchange; whether that is the end of the body */
ngx_uint_t ngx_http_sszip_show(ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);

/* what a chain has, and a copy of it, which is as long */
size_t ngx_http_sszip_chain_size(ngx_chain_t *cl);
ngx_int_t ngx_http_sszip_copy_chain(ngx_chain_t *cl, u_char *p);

/* nobody is to have it */
void ngx_http_sszip_drop_body(ngx_chain_t *in);

/* bytes for the client, who may have gone while they are worth having */
ngx_int_t ngx_http_sszip_pass_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);

/* a connection that can always be written to, and leads nowhere */
ngx_connection_t *ngx_http_sszip_nobody(ngx_http_request_t *r);

/* stored answers */
ngx_int_t ngx_http_sszip_cache_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_sszip_rewrite_body(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
ngx_int_t ngx_http_sszip_looked_up(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* what it comes to; NULL: nothing */
ngx_int_t ngx_http_sszip_value(ngx_http_request_t *r,
    ngx_http_complex_value_t *cv, sszip_str *str);
void ngx_http_sszip_store(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx);

/* what is fetched for the cache alone */
void ngx_http_sszip_update(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx);
void ngx_http_sszip_update_begins(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
void ngx_http_sszip_update_body(ngx_http_sszip_ctx_t *ctx, ngx_chain_t *in);
ngx_http_request_t *ngx_http_sszip_background(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx, ngx_str_t *uri, ngx_str_t *args);

/* NULL: it is another request */
ngx_http_sszip_ctx_t *ngx_http_sszip_update_ctx(ngx_http_request_t *r);

/* what the core has to know of the node */
void ngx_http_sszip_inquire(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx);

/* the cache's owner */
void ngx_http_sszip_link_start(ngx_addr_t *owner);
void ngx_http_sszip_wake(void);
uint64_t ngx_http_sszip_now(void);
char *ngx_http_sszip_cache_purge(ngx_conf_t *cf, void *post, void *data);

/* heads that are over */
ngx_int_t ngx_http_sszip_add_heads(ngx_conf_t *cf,
    ngx_http_sszip_main_conf_t *smcf);
void ngx_http_sszip_share_heads(ngx_http_sszip_main_conf_t *smcf);

/* what workers count, before a context is freed, and whom it is told */
char *ngx_http_sszip_tell_status(ngx_conf_t *cf, void *post, void *data);
void ngx_http_sszip_count(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx);
void ngx_http_sszip_refresh_board(void);
void ngx_http_sszip_clear_board(void);
ngx_uint_t ngx_http_sszip_board(sszip_board *board);

ngx_int_t ngx_http_sszip_find_owner(ngx_conf_t *cf,
    ngx_http_sszip_main_conf_t *smcf);
void ngx_http_sszip_owner_single(ngx_http_sszip_main_conf_t *smcf);
void ngx_http_sszip_owner_exit_process(ngx_cycle_t *cycle);

/* of no connection */
void ngx_http_sszip_own_timer(ngx_event_t *ev, ngx_event_handler_pt handler);

/* what chose an answer */
void ngx_http_sszip_wrap_directives(ngx_conf_t *cf);
ngx_int_t ngx_http_sszip_add_upstreams(ngx_conf_t *cf, sszip_plan *plan);
ngx_int_t ngx_http_sszip_place(ngx_http_request_t *r, sszip_asked *asked);

ngx_uint_t ngx_http_sszip_asks_by_http_1_0(ngx_http_sszip_loc_conf_t *slcf);

/* what proxy_hide_header and the like hide, on hits as on misses */
ngx_int_t ngx_http_sszip_hidden(ngx_conf_t *cf,
    ngx_http_sszip_loc_conf_t *slcf, sszip_place *place);

/* the request that goes to the node */
ngx_int_t ngx_http_sszip_pass_on(ngx_http_request_t *r,
    ngx_http_handler_pt handler);
void ngx_http_sszip_close_window(ngx_http_request_t *r);
void ngx_http_sszip_edit_cache_vary(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);

/* what comes of it */
void ngx_http_sszip_watch_upstream(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
sszip_failure ngx_http_sszip_failure(ngx_http_request_t *r, ngx_uint_t status);

/* long work */
ngx_int_t ngx_http_sszip_run(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx);
void ngx_http_sszip_own_job(ngx_http_request_t *r, sszip_job *job);
#if (NGX_THREADS)
void ngx_http_sszip_thread_init(void);
#endif


/* a module that is nothing but a place among the filters */

#define ngx_http_sszip_filter_place(module, init)                             \
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


/* what others have said, for a line of the log */

static ngx_inline ngx_str_t
ngx_http_sszip_log_text(ngx_str_t *said, u_char *text)
{
    ngx_str_t  s;

    s.data = text;
    s.len = sszip_log_text(ngx_http_sszip_str(said), text,
                           NGX_HTTP_SSZIP_LOG_TEXT);

    return s;
}


/* what a buffer has in memory */

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
ngx_http_sszip_is_field(ngx_table_elt_t *header, const sszip_edit *edit)
{
    return header->key.len == edit->name.len
           && ngx_strncasecmp(header->key.data, (u_char *) edit->name.data,
                              edit->name.len)
              == 0;
}


#endif /* _NGX_HTTP_SSZIP_MODULE_H_INCLUDED_ */
