
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


static ngx_int_t ngx_http_sszip_set_head_out(ngx_http_request_t *r,
    const sszip_edit *edit);
static ngx_uint_t ngx_http_sszip_delimited(ngx_http_request_t *r);
static ngx_uint_t ngx_http_sszip_unbuffered(ngx_http_request_t *r);


/* fields of the response head that nginx also knows by a pointer */

typedef struct {
    ngx_str_t                    name;
    size_t                       offset;
} ngx_http_sszip_known_field_t;


static ngx_http_sszip_known_field_t  ngx_http_sszip_known_fields[] = {
    { ngx_string("Content-Encoding"),
      offsetof(ngx_http_headers_out_t, content_encoding) },
    { ngx_string("ETag"), offsetof(ngx_http_headers_out_t, etag) },
    { ngx_string("Accept-Ranges"),
      offsetof(ngx_http_headers_out_t, accept_ranges) },
    { ngx_null_string, 0 }
};


/* the fields of a head as the core reads them; NULL if there is no memory */

sszip_field *
ngx_http_sszip_fields(ngx_http_request_t *r, ngx_list_t *list,
    ngx_str_t *content_type, size_t *n)
{
    size_t            count;
    ngx_uint_t        i;
    sszip_field      *fields, *field;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    count = 1;

    for (part = &list->part; part; part = part->next) {
        count += part->nelts;
    }

    fields = ngx_palloc(r->pool, count * sizeof(sszip_field));
    if (fields == NULL) {
        return NULL;
    }

    field = fields;

    if (content_type != NULL && content_type->len) {
        field->name.data = (u_char *) "Content-Type";
        field->name.len = sizeof("Content-Type") - 1;
        field->value = ngx_http_sszip_str(content_type);
        field++;
    }

    for (part = &list->part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (header[i].hash == 0) {
                continue;
            }

            field->name = ngx_http_sszip_str(&header[i].key);
            field->value = ngx_http_sszip_str(&header[i].value);
            field++;
        }
    }

    *n = field - fields;

    return fields;
}


ngx_int_t
ngx_http_sszip_edit_head_out(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    size_t             i, n;
    const sszip_edit  *edits;

    if (sszip_exchange_head_edits(ctx->exchange, &edits, &n)
        != SSZIP_STATUS_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        if (ngx_http_sszip_set_head_out(r, &edits[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sszip_set_head_out(ngx_http_request_t *r, const sszip_edit *edit)
{
    ngx_str_t                      name, value;
    ngx_uint_t                     i;
    ngx_list_part_t               *part;
    ngx_table_elt_t               *header, **known;
    ngx_http_sszip_known_field_t  *field;

    name.data = (u_char *) edit->name.data;
    name.len = edit->name.len;

    value.data = (u_char *) edit->value.data;
    value.len = edit->value.len;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip edit \"%V: %V\"", &name, &value);

    if (name.len == sizeof("Content-Length") - 1
        && ngx_strncasecmp(name.data, (u_char *) "Content-Length", name.len)
           == 0)
    {
        ngx_http_clear_content_length(r);

        if (value.data != NULL) {
            r->headers_out.content_length_n = ngx_atoof(value.data, value.len);
        }

        return NGX_OK;
    }

    if (name.len == sizeof("Content-Type") - 1
        && ngx_strncasecmp(name.data, (u_char *) "Content-Type", name.len)
           == 0)
    {
        r->headers_out.content_type = value;
        r->headers_out.content_type_len = value.len;
        r->headers_out.content_type_lowcase = NULL;

        return NGX_OK;
    }

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (header[i].hash != 0
                && header[i].key.len == name.len
                && ngx_strncasecmp(header[i].key.data, name.data, name.len)
                   == 0)
            {
                header[i].hash = 0;
            }
        }
    }

    header = NULL;

    if (value.data != NULL) {
        header = ngx_list_push(&r->headers_out.headers);
        if (header == NULL) {
            return NGX_ERROR;
        }

        header->hash = 1;
        header->key = name;
        header->value = value;
        header->lowcase_key = NULL;
#if (nginx_version >= 1023000)
        header->next = NULL;
#endif
    }

    for (field = ngx_http_sszip_known_fields; field->name.len; field++) {

        if (field->name.len == name.len
            && ngx_strncasecmp(field->name.data, name.data, name.len) == 0)
        {
            known = (ngx_table_elt_t **) ((char *) &r->headers_out
                                          + field->offset);
            *known = header;
        }
    }

    return NGX_OK;
}


/* what the core makes of a response; on an error the head goes out as it is */

ngx_int_t
ngx_http_sszip_judge(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx,
    sszip_head_action *action)
{
    bool                       varies;
    size_t                     n;
    sszip_response_head        head;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    ngx_memzero(&head, sizeof(sszip_response_head));

    head.size = sizeof(sszip_response_head);
    head.now = ngx_time();
    head.status = (uint16_t) r->headers_out.status;
    head.content_length = r->headers_out.content_length_n;
    head.delimited = ngx_http_sszip_delimited(r);
    head.unbuffered = ngx_http_sszip_unbuffered(r);
    head.subrequest = (r != r->main);
    head.coding_allowed = ngx_http_sszip_coding_allowed(r);
#if (NGX_HTTP_GZIP)
    head.host_writes_vary = clcf->gzip_vary;
#endif

    head.fields = ngx_http_sszip_fields(r, &r->headers_out.headers,
                                        &r->headers_out.content_type, &n);
    if (head.fields == NULL) {
        return NGX_DECLINED;
    }

    head.nfields = n;

    if (sszip_exchange_response_head(ctx->exchange, &head, action)
        != SSZIP_STATUS_OK)
    {
        return NGX_DECLINED;
    }

    ngx_http_sszip_edit_cache_vary(r, ctx);

#if (NGX_HTTP_GZIP)

    if (clcf->gzip_vary
        && sszip_exchange_varies(ctx->exchange, &varies) == SSZIP_STATUS_OK
        && varies)
    {
        r->gzip_vary = 1;
    }

#endif

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip head action:%d length:%O", (int) *action,
                   r->headers_out.content_length_n);

    if (*action == SSZIP_HEAD_HOLD) {
        return NGX_OK;
    }

    return ngx_http_sszip_edit_head_out(r, ctx);
}


/* a body without a length that ends with its connection may be cut short */

static ngx_uint_t
ngx_http_sszip_delimited(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

#if (NGX_HTTP_CACHE)
    if (r->cached) {
        return 1;
    }
#endif

    return u == NULL || u->headers_in.chunked
           || u->headers_in.content_length_n >= 0;
}


static ngx_uint_t
ngx_http_sszip_unbuffered(ngx_http_request_t *r)
{
#if (NGX_HTTP_CACHE)
    if (r->cached) {
        return 0;
    }
#endif

    return r->upstream != NULL && !r->upstream->buffering;
}


/*
 * gzip_proxied, gzip_disable and gzip_http_version.  The test's first step
 * is to look for "gzip" in Accept-Encoding: that is the core's affair, so the
 * rest is asked as if it were there.  What is remembered of the test is not
 * ours to set: the gzip module may run after us.
 */

ngx_uint_t
ngx_http_sszip_coding_allowed(ngx_http_request_t *r)
{
#if (NGX_HTTP_GZIP)

    ngx_str_t         value;
    ngx_uint_t        tested, ok, allowed;
    ngx_table_elt_t  *ae;

    ae = r->headers_in.accept_encoding;

    if (ae == NULL || r != r->main) {
        return 0;
    }

    tested = r->gzip_tested;
    ok = r->gzip_ok;
    value = ae->value;

    ngx_str_set(&ae->value, "gzip");

    allowed = (ngx_http_gzip_ok(r) == NGX_OK);

    ae->value = value;
    r->gzip_tested = tested;
    r->gzip_ok = ok;

    return allowed;

#else

    return 1;

#endif
}
