
/*
 * Copyright (C) the sszip authors
 */


#include "ngx_http_sszip_module.h"


static ngx_int_t ngx_http_sszip_set_head_out(ngx_http_request_t *r,
    const sszip_head_edit *edit);
static void ngx_http_sszip_set_status(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);
static ngx_uint_t ngx_http_sszip_has_single_vary(ngx_http_request_t *r);
static void ngx_http_sszip_set_content_type(ngx_http_request_t *r,
    ngx_str_t *value);
static ngx_int_t ngx_http_sszip_set_cache_control(ngx_http_request_t *r,
    ngx_table_elt_t *header);
static ngx_uint_t ngx_http_sszip_is_from_upstream(ngx_http_request_t *r);
static void ngx_http_sszip_set_read_size(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx);


/* members in which nginx also stores known headers; 0: none */

static size_t  ngx_http_sszip_known_fields[] = {
    0,                                  /* SSZIP_FIELD_OTHER */
    offsetof(ngx_http_headers_out_t, accept_ranges),
    0,                                  /* SSZIP_FIELD_CACHE_CONTROL */
    offsetof(ngx_http_headers_out_t, content_encoding),
    0,                                  /* SSZIP_FIELD_CONTENT_LENGTH */
    0,                                  /* SSZIP_FIELD_CONTENT_TYPE */
    offsetof(ngx_http_headers_out_t, date),
    offsetof(ngx_http_headers_out_t, etag),
    offsetof(ngx_http_headers_out_t, expires),
    offsetof(ngx_http_headers_out_t, last_modified),
    offsetof(ngx_http_headers_out_t, location),
    0,                                  /* SSZIP_FIELD_VARY */
    offsetof(ngx_http_headers_out_t, www_authenticate)
};


/* converts the headers of a head for the core; NULL: no memory */

sszip_header *
ngx_http_sszip_read_headers(ngx_http_request_t *r, ngx_list_t *list,
    ngx_str_t *content_type, size_t *n)
{
    size_t            count;
    ngx_uint_t        i;
    sszip_header     *fields, *field;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    count = 1;

    for (part = &list->part; part; part = part->next) {
        count += part->nelts;
    }

    fields = ngx_palloc(r->pool, count * sizeof(sszip_header));
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


/* applies the core's head edits to the response head */

ngx_int_t
ngx_http_sszip_edit_head_out(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    size_t                  i, n;
    const sszip_head_edit  *edits;

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

    /*
     * status of a stored response, if memory was too short to look it up
     * earlier
     */

    ngx_http_sszip_set_status(r, ctx);

    return NGX_OK;
}


/* sets the status of the response head, if the core has changed it */

static void
ngx_http_sszip_set_status(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    uint16_t  status;

    status = sszip_exchange_status(ctx->exchange);

    if (status != 0) {
        r->headers_out.status = status;
        ngx_str_null(&r->headers_out.status_line);
    }
}


/*
 * Sets the headers of a stored response except the content coding and the
 * length: filters that change bodies test them, and would expect another
 * body.  The length is the body's own until then, so that a change of it
 * reveals such a filter.
 */

ngx_int_t
ngx_http_sszip_set_stored_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx)
{
    size_t                  i, n;
    const sszip_head_edit  *edits;

    if (sszip_exchange_head_edits(ctx->exchange, &edits, &n)
        != SSZIP_STATUS_OK)
    {
        return NGX_ERROR;
    }

    ctx->stored = 1;
    ctx->coding.name.data = NULL;

    ngx_http_clear_content_length(r);

    for (i = 0; i < n; i++) {

        if (edits[i].field == SSZIP_FIELD_CONTENT_ENCODING
            && edits[i].value.data != NULL)
        {
            ctx->coding = edits[i];

        } else if (ngx_http_sszip_set_head_out(r, &edits[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_http_sszip_set_status(r, ctx);

    /* the exchange has evaluated the request's conditions */
    r->disable_not_modified = 1;

    ctx->unfiltered_length = r->headers_out.content_length_n;

    return NGX_OK;
}


/*
 * Sets the content coding and the length of a hit after the other header
 * filters have run.
 */

ngx_int_t
ngx_http_sszip_filtered_hit_head(ngx_http_request_t *r,
    ngx_http_sszip_ctx_t *ctx)
{
    size_t                  i, n;
    sszip_header           *fields;
    const sszip_head_edit  *edits;

    if (!ctx->body_changed && ngx_http_sszip_has_single_vary(r)) {

        /* the common case: no other filter changed the head */

        return ctx->coding.name.data
               ? ngx_http_sszip_set_head_out(r, &ctx->coding) : NGX_OK;
    }

    fields = ngx_http_sszip_read_headers(r, &r->headers_out.headers, NULL, &n);

    if (fields == NULL
        || sszip_exchange_filtered_hit_head(ctx->exchange, fields, n)
           != SSZIP_STATUS_OK
        || sszip_exchange_head_edits(ctx->exchange, &edits, &n)
           != SSZIP_STATUS_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {

        /* a body that other filters change has no length yet */

        if ((edits[i].field == SSZIP_FIELD_CONTENT_ENCODING
             || edits[i].field == SSZIP_FIELD_VARY
             || (edits[i].field == SSZIP_FIELD_CONTENT_LENGTH
                 && !ctx->body_changed))
            && ngx_http_sszip_set_head_out(r, &edits[i]) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* whether the response head has at most one Vary line, which is sszip's */

static ngx_uint_t
ngx_http_sszip_has_single_vary(ngx_http_request_t *r)
{
    ngx_uint_t        i, n;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    n = 0;

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (header[i].key.len == 4
                && header[i].hash != 0
                && ngx_strncasecmp(header[i].key.data, (u_char *) "Vary", 4)
                   == 0)
            {
                n++;
            }
        }
    }

    return n <= 1;
}


/*
 * Sets the content type, and separates the charset from it as upstream
 * modules do.
 */

static void
ngx_http_sszip_set_content_type(ngx_http_request_t *r, ngx_str_t *value)
{
    u_char  *p, *q, *last;

    r->headers_out.content_type = *value;
    r->headers_out.content_type_len = value->len;
    r->headers_out.content_type_lowcase = NULL;
    ngx_str_null(&r->headers_out.charset);

    last = value->data + value->len;

    for (q = value->data; (p = ngx_strlchr(q, last, ';')) != NULL; /* void */) {

        for (q = p + 1; q < last && *q == ' '; q++) { /* void */ }

        if (last - q < 8
            || ngx_strncasecmp(q, (u_char *) "charset=", 8) != 0)
        {
            continue;
        }

        r->headers_out.content_type_len = p - value->data;

        q += 8;

        if (q < last && *q == '"') {
            q++;
        }

        if (q < last && *(last - 1) == '"') {
            last--;
        }

        r->headers_out.charset.len = last - q;
        r->headers_out.charset.data = q;

        return;
    }
}


/* sets the Cache-Control line of the response head, or removes all of them */

static ngx_int_t
ngx_http_sszip_set_cache_control(ngx_http_request_t *r,
    ngx_table_elt_t *header)
{
#if (nginx_version >= 1023000)

    r->headers_out.cache_control = header;

#else

    ngx_table_elt_t  **line;

    r->headers_out.cache_control.nelts = 0;

    if (header == NULL) {
        return NGX_OK;
    }

    if (r->headers_out.cache_control.elts == NULL
        && ngx_array_init(&r->headers_out.cache_control, r->pool, 1,
                          sizeof(ngx_table_elt_t *))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    line = ngx_array_push(&r->headers_out.cache_control);
    if (line == NULL) {
        return NGX_ERROR;
    }

    *line = header;

#endif

    return NGX_OK;
}


/*
 * Applies one head edit to the response head; its strings live as long as the
 * request's pool.
 */

static ngx_int_t
ngx_http_sszip_set_head_out(ngx_http_request_t *r, const sszip_head_edit *edit)
{
    size_t             offset;
    ngx_str_t          name, value;
    ngx_uint_t         i;
    ngx_list_part_t   *part;
    ngx_table_elt_t   *header;

    name = ngx_http_sszip_ngx_str(edit->name);
    value = ngx_http_sszip_ngx_str(edit->value);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip edit \"%V: %V\"", &name, &value);

    if (edit->field == SSZIP_FIELD_CONTENT_LENGTH) {
        ngx_http_clear_content_length(r);

        if (value.data != NULL) {
            r->headers_out.content_length_n = ngx_atoof(value.data, value.len);
        }

        return NGX_OK;
    }

    if (edit->field == SSZIP_FIELD_CONTENT_TYPE) {
        ngx_http_sszip_set_content_type(r, &value);

        return NGX_OK;
    }

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (ngx_http_sszip_is_field(&header[i], edit)) {
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

        ngx_memzero(header, sizeof(ngx_table_elt_t));

        header->hash = 1;
        header->key = name;
        header->value = value;
    }

    offset = ngx_http_sszip_known_fields[edit->field];

    if (offset != 0) {
        *(ngx_table_elt_t **) ((char *) &r->headers_out + offset) = header;
    }

    if (edit->field == SSZIP_FIELD_LAST_MODIFIED) {
        r->headers_out.last_modified_time = header
                              ? ngx_parse_http_time(value.data, value.len)
                              : -1;
    }

    if (edit->field == SSZIP_FIELD_CACHE_CONTROL) {
        return ngx_http_sszip_set_cache_control(r, header);
    }

    return NGX_OK;
}


/* passes the response head to the core, and records the core's action */

ngx_int_t
ngx_http_sszip_response_head(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    bool                        serves_stale;
    sszip_failure               failure;
    sszip_response_head         head;
    ngx_http_core_loc_conf_t   *clcf;
    ngx_http_sszip_loc_conf_t  *slcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    ngx_http_sszip_head(r, &head, NULL);

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sszip_module);
    failure = ngx_http_sszip_failure(r, head.status);

    if (!slcf->caches && failure != SSZIP_FAILURE_STATUS) {
        /* counts the failure; routes that cache have reported it before */
        (void) sszip_exchange_upstream_failed(ctx->exchange, failure,
                                              head.status,
                                              ngx_http_sszip_now(),
                                              &serves_stale);
    }

    if (r->subrequest_ranges) {
        /* slices of a response are assembled to a complete one */
        head.status = NGX_HTTP_PARTIAL_CONTENT;
    }

    head.unbuffered = ngx_http_sszip_is_from_upstream(r)
                      && !r->upstream->buffering;
    head.coding_allowed = ngx_http_sszip_encoding_allowed(r);
#if (NGX_HTTP_GZIP)
    head.host_writes_vary = clcf->gzip_vary;
#endif

    if (head.fields == NULL) {
        return (sszip_exchange_response_head_unavailable(ctx->exchange,
                                                         &ctx->step)
                == SSZIP_STATUS_OK) ? NGX_OK : NGX_ERROR;
    }

    if (sszip_exchange_response_head(ctx->exchange, &head, &ctx->step)
        != SSZIP_STATUS_OK)
    {
        /* the head is sent unchanged */
        ctx->step.action = SSZIP_ACTION_PASS;
        return NGX_OK;
    }

    ngx_http_sszip_edit_cache_vary(r, ctx);

#if (NGX_HTTP_GZIP)

    if (clcf->gzip_vary
        && sszip_exchange_varies_on_accept_encoding(ctx->exchange))
    {
        r->gzip_vary = 1;
    }

#endif

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http sszip head step:%d length:%O", (int) ctx->step.action,
                   r->headers_out.content_length_n);

    if (ctx->step.action == SSZIP_ACTION_BUFFER) {
        ngx_http_sszip_set_read_size(r, ctx);
        return NGX_OK;
    }

    return ngx_http_sszip_edit_head_out(r, ctx);
}


/*
 * Sets the sizes of the buffers into which the upstream module reads a body.
 * The upstream module allocates the buffers for the body after the head.  For
 * a long buffered body they have the core's preferred size, within the memory
 * that the configuration allows, or three buffers.  A buffer is sent if it is
 * no longer than the limit of busy buffers.
 */

static void
ngx_http_sszip_set_read_size(ngx_http_request_t *r, ngx_http_sszip_ctx_t *ctx)
{
    size_t                     size, all;
    ngx_http_upstream_t       *u;
    ngx_http_upstream_conf_t  *conf;

    size = sszip_exchange_read_size(ctx->exchange);
    u = r->upstream;

    if (!ngx_http_sszip_is_from_upstream(r)
        || !u->buffering
        || u->conf->bufs.size >= size)
    {
        return;
    }

    conf = ngx_palloc(r->pool, sizeof(ngx_http_upstream_conf_t));
    if (conf == NULL) {
        return;
    }

    *conf = *u->conf;

    all = conf->bufs.num * conf->bufs.size;

    conf->bufs.size = size;
    conf->bufs.num = ngx_max(3, all / size);
    conf->busy_buffers_size = ngx_max(conf->busy_buffers_size, size);

    u->conf = conf;
}


/*
 * Fills a head for the core from the one to be sent or, with u, from the
 * upstream's.
 */

void
ngx_http_sszip_head(ngx_http_request_t *r, sszip_response_head *head,
    ngx_http_upstream_t *u)
{
    ngx_memzero(head, sizeof(sszip_response_head));

    head->size = sizeof(sszip_response_head);
    head->now = ngx_time();
    head->subrequest = (r != r->main);

    /* a body that ends with its connection may be truncated unnoticed */

    head->delimited = !ngx_http_sszip_is_from_upstream(r)
                      || r->upstream->headers_in.chunked
                      || r->upstream->headers_in.content_length_n >= 0;

    if (u != NULL) {
        /* nginx may have converted the response to a 304 for this client */
        head->status = (uint16_t) u->headers_in.status_n;
        head->content_length = u->headers_in.content_length_n;
        head->fields = ngx_http_sszip_read_headers(r, &u->headers_in.headers,
                                                   NULL, &head->nfields);

    } else {
        head->status = (uint16_t) r->headers_out.status;
        head->content_length = r->headers_out.content_length_n;
        head->fields = ngx_http_sszip_read_headers(r, &r->headers_out.headers,
                                                   &r->headers_out.content_type,
                                                   &head->nfields);
    }
}


/*
 * Whether the response comes from the upstream, and not from proxy_cache or
 * another handler.
 */

static ngx_uint_t
ngx_http_sszip_is_from_upstream(ngx_http_request_t *r)
{
#if (NGX_HTTP_CACHE)
    if (r->cached) {
        return 0;
    }
#endif

    return r->upstream != NULL;
}


/*
 * Tests gzip_proxied, gzip_disable and gzip_http_version.  nginx's test
 * begins with a search for "gzip" in Accept-Encoding, which the core
 * evaluates, so the rest is tested as if it were there.  The cached result of
 * nginx's test is restored: the gzip module may run after sszip.
 */

ngx_uint_t
ngx_http_sszip_encoding_allowed(ngx_http_request_t *r)
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
