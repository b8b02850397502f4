
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


/*
 * Functions that lua/resty/sszip.lua calls over LuaJIT's FFI; no other
 * program should call them.  nginx loads modules with global symbols, and Lua
 * resolves these on first use, so that the order of modules does not matter.
 *
 * The functions return NGX_OK; NGX_DECLINED if there is no result; or
 * NGX_ERROR with a text in "out". The bytes of "out" are valid until the next
 * call.
 */


/*
 * version of these functions, for the Lua library: incremented with each
 * change
 */
#define NGX_HTTP_SSZIP_FFI_ABI  2


static int ngx_http_sszip_ffi_result(sszip_status status, sszip_str *out);
static int ngx_http_sszip_ffi_error(sszip_str *out, const char *text);


/* returns the version of the functions for Lua */

int
ngx_http_sszip_ffi_abi(void)
{
    return NGX_HTTP_SSZIP_FFI_ABI;
}


/* frees the results of the last call */

void
ngx_http_sszip_ffi_free(void)
{
    sszip_result_free();
}


/* request */

int
ngx_http_sszip_ffi_variable(ngx_http_request_t *r, const u_char *name,
    size_t len, sszip_str *out)
{
    size_t                 i;
    sszip_str              variable;
    ngx_http_sszip_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sszip_module);

    for (i = 0; /* void */ ; i++) {

        variable = sszip_variable_name(i);

        if (variable.len == 0) {
            return ngx_http_sszip_ffi_error(out, "unknown variable");
        }

        if (variable.len == len && ngx_memcmp(variable.data, name, len) == 0) {
            break;
        }
    }

    return ngx_http_sszip_ffi_result(
               sszip_exchange_variable(ctx ? ctx->exchange : NULL, i, out),
               out);
}


/* sets the conditions under which the present request bypasses the cache */

int
ngx_http_sszip_ffi_bypass(ngx_http_request_t *r, unsigned int bypass,
    sszip_str *out)
{
    if (r != r->main || r->connection->fd == (ngx_socket_t) -1) {
        return ngx_http_sszip_ffi_error(out, "only requests of clients are "
                                             "looked up, not subrequests");
    }

    if (ngx_http_sszip_set_bypass(r, bypass) != NGX_OK) {
        return ngx_http_sszip_ffi_error(out, "sszip is off: no directive of "
                                             "it is used");
    }

    return NGX_OK;
}


int
ngx_http_sszip_ffi_calls(ngx_http_request_t *r, size_t most_bytes,
    size_t most_calls, const sszip_call **calls, size_t *n, int *batch,
    sszip_str *out)
{
    int            rc;
    bool           is_batch;
    size_t         len, nfields;
    u_char        *p;
    sszip_str      body;
    ngx_chain_t   *cl;
    sszip_header  *fields;

    if (r->request_body == NULL) {
        return ngx_http_sszip_ffi_error(out, "the request's body was not "
                                             "read; call ngx.req.read_body()");
    }

    ngx_memzero(&body, sizeof(sszip_str));

    fields = ngx_http_sszip_read_headers(r, &r->headers_in.headers, NULL,
                                         &nfields);
    if (fields == NULL) {
        return ngx_http_sszip_ffi_error(out, "memory");
    }

    cl = r->request_body->bufs;

    if (cl != NULL && cl->next == NULL && ngx_buf_in_memory(cl->buf)) {
        body = ngx_http_sszip_piece(cl->buf);

    } else if (cl != NULL) {

        len = ngx_http_sszip_chain_size(cl);

        if (len > most_bytes) {
            return ngx_http_sszip_ffi_error(out, "length");
        }

        p = sszip_calls_buffer(len);
        if (p == NULL) {
            return ngx_http_sszip_ffi_error(out, "memory");
        }

        if (ngx_http_sszip_copy_chain(cl, p) != NGX_OK) {
            return ngx_http_sszip_ffi_error(out, "cannot read the file with "
                                                 "the request's body");
        }

        body.data = p;
        body.len = len;
    }

    rc = ngx_http_sszip_ffi_result(sszip_calls_parse(fields, nfields, body,
                                                     most_bytes, most_calls,
                                                     calls, n, &is_batch, out),
                                   out);

    if (rc != NGX_ERROR) {
        *batch = is_batch;
        return NGX_OK;
    }

    return rc;
}


/* stored responses, and values of programs */

int
ngx_http_sszip_ffi_get(const u_char *name, size_t len, sszip_str *out)
{
    sszip_str  str;

    str.data = name;
    str.len = len;

    return ngx_http_sszip_ffi_result(
               sszip_value_get(str, ngx_http_sszip_now(), out), out);
}


int
ngx_http_sszip_ffi_set(const sszip_str *name, const sszip_str *value,
    uint64_t ttl, sszip_str *out)
{
    return ngx_http_sszip_ffi_result(
               sszip_value_set(*name, *value, ttl, ngx_http_sszip_now(), out),
               out);
}


int
ngx_http_sszip_ffi_delete(const sszip_str *name, sszip_str *out)
{
    return ngx_http_sszip_ffi_result(sszip_value_delete(*name, out), out);
}


int
ngx_http_sszip_ffi_look_up(const sszip_str *name, sszip_str *out,
    uint64_t *generation)
{
    return ngx_http_sszip_ffi_result(
               sszip_value_lookup_request(*name, out, generation), out);
}


int
ngx_http_sszip_ffi_decode_reply(const sszip_str *name, const sszip_str *head,
    const sszip_str *body, uint64_t generation, sszip_str *out)
{
    return ngx_http_sszip_ffi_result(
               sszip_value_decode_reply(*name, *head, *body, generation,
                                        ngx_http_sszip_now(), out),
               out);
}


int
ngx_http_sszip_ffi_answer(const sszip_str *key, const sszip_str *id,
    sszip_str *out)
{
    return ngx_http_sszip_ffi_result(
               sszip_cached_response_get(*key, *id, ngx_http_sszip_now(), out),
               out);
}


/* the owner, to which Lua sends requests over a socket of its own */

int
ngx_http_sszip_ffi_owner(sszip_str *out)
{
    ngx_http_sszip_main_conf_t  *smcf;

    smcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_sszip_module);

    if (smcf == NULL || smcf->owner == NULL) {
        return NGX_DECLINED;
    }

    *out = ngx_http_sszip_str(&smcf->owner->name);

    return NGX_OK;
}


int
ngx_http_sszip_ffi_owner_head(const sszip_str *head, unsigned int *status,
    size_t *length)
{
    uint16_t  code;

    if (sszip_owner_reply_head(*head, &code, length) != SSZIP_STATUS_OK) {
        return NGX_ERROR;
    }

    *status = code;

    return NGX_OK;
}


int
ngx_http_sszip_ffi_purge(const sszip_str *query, sszip_str *out)
{
    return ngx_http_sszip_ffi_result(sszip_purge_request(*query, out), out);
}


/* compression */

int
ngx_http_sszip_ffi_gzip(const sszip_str *data, unsigned int level,
    sszip_str *out)
{
    return ngx_http_sszip_ffi_result(
               sszip_gzip(*data, ngx_min(level, 255), out), out);
}


int
ngx_http_sszip_ffi_gunzip(const sszip_str *data, size_t most, sszip_str *out)
{
    return ngx_http_sszip_ffi_result(sszip_gunzip(*data, most, out), out);
}


int
ngx_http_sszip_ffi_zstd(const sszip_str *data, unsigned int level,
    sszip_str *out)
{
    return ngx_http_sszip_ffi_result(
               sszip_zstd(*data, ngx_min(level, 255), out), out);
}


int
ngx_http_sszip_ffi_unzstd(const sszip_str *data, size_t most, sszip_str *out)
{
    return ngx_http_sszip_ffi_result(sszip_unzstd(*data, most, out), out);
}


int
ngx_http_sszip_ffi_json_to_ssz(const sszip_ssz_type *type,
    const sszip_str *json, sszip_str *out)
{
    return ngx_http_sszip_ffi_result(sszip_json_to_ssz(type, *json, out), out);
}


int
ngx_http_sszip_ffi_ssz_to_json(const sszip_ssz_type *type, const sszip_str *ssz,
    sszip_str *out)
{
    return ngx_http_sszip_ffi_result(sszip_ssz_to_json(type, *ssz, out), out);
}


int
ngx_http_sszip_ffi_check(const sszip_ssz_type *type, const sszip_str *ssz,
    sszip_str *out)
{
    return ngx_http_sszip_ffi_result(sszip_ssz_check(type, *ssz, out), out);
}


int
ngx_http_sszip_ffi_root(const sszip_ssz_type *type, const sszip_str *ssz,
    sszip_str *out)
{
    return ngx_http_sszip_ffi_result(sszip_ssz_root(type, *ssz, out), out);
}


/* metrics */

int
ngx_http_sszip_ffi_stats(const sszip_metric **figures, size_t *n,
    sszip_str *out)
{
    sszip_metrics_board  board;

    if (!ngx_http_sszip_metrics_board(&board)) {
        return ngx_http_sszip_ffi_error(out, "no metrics: no location has "
                                             "\"sszip_status on\"");
    }

    if (sszip_metrics_board_read(&board, figures, n) != SSZIP_STATUS_OK) {
        return ngx_http_sszip_ffi_error(out, "internal error of sszip");
    }

    return NGX_OK;
}


/* converts a status of the core to the return code of a function for Lua */

static int
ngx_http_sszip_ffi_result(sszip_status status, sszip_str *out)
{
    switch (status) {

    case SSZIP_STATUS_OK:
        return (out->data == NULL) ? NGX_DECLINED : NGX_OK;

    case SSZIP_STATUS_INVALID:
        return NGX_ERROR;

    default:
        return ngx_http_sszip_ffi_error(out, "internal error of sszip");
    }
}


/* returns NGX_ERROR with a text */

static int
ngx_http_sszip_ffi_error(sszip_str *out, const char *text)
{
    out->data = (u_char *) text;
    out->len = ngx_strlen(text);

    return NGX_ERROR;
}
