/* the script API */

#include "host.h"


static int is(sszip_str text, const char *wanted);
static void check_script_values(void);
static void check_calls(void);
static void check_coders(void);


static const uint64_t  now = 1000;


/* before there is a cache */

void
check_script_without_cache(void)
{
    uint64_t   generation;
    sszip_str  out;

    check(sszip_value_get(str("a"), now, &out) == SSZIP_STATUS_INVALID);
    check(is(out, "the cache is off: no location has \"sszip_cache on\""));
    check(sszip_value_set(str("a"), str("b"), 5, now, &out)
          == SSZIP_STATUS_INVALID);
    check(sszip_value_delete(str("a"), &out) == SSZIP_STATUS_INVALID);
    ok(sszip_value_lookup_request(str("a"), &out, &generation));
    check(out.data == NULL);
}


void
check_script(void)
{
    sszip_result_free();
    check_script_values();
    check_calls();
    check_coders();
    sszip_result_free();
    sszip_result_free();
}


static int
is(sszip_str text, const char *wanted)
{
    return text.data != NULL
           && text.len == strlen(wanted)
           && memcmp(text.data, wanted, text.len) == 0;
}


static void
check_script_values(void)
{
    size_t     length;
    uint16_t   status;
    uint64_t   generation;
    sszip_str  out;

    ok(sszip_value_get(str("a"), now, &out));
    check(out.data == NULL);

    /* without an owner there is no request to send */
    ok(sszip_value_set(str("a"), str("value"), 500, now, &out));
    check(out.data == NULL);
    ok(sszip_value_get(str("a"), now + 499, &out));
    check(is(out, "value"));

    /* a borrowed value outlives its entry */
    ok(sszip_value_set(none, none, 500, now, &out));
    ok(sszip_value_get(none, now, &out));
    check(out.data != NULL && out.len == 0);
    ok(sszip_value_get(str("a"), now + 500, &out));
    check(out.data == NULL);
    ok(sszip_value_delete(str("a"), &out));
    check(out.data == NULL);
    ok(sszip_value_lookup_request(str("a"), &out, &generation));
    check(out.data == NULL && generation == 0);
    check(sszip_value_decode_reply(str("a"), str("no head"), none, 0, now, &out)
          == SSZIP_STATUS_INVALID);
    check(sszip_value_get(str("a"), now, NULL) == SSZIP_STATUS_NULL);

    check(sszip_cached_response_get(str("12"), str("1"), now, &out)
          == SSZIP_STATUS_INVALID);
    check(is(out, "the key must be 64 hexadecimal digits"));

    ok(sszip_purge_request(str("everything"), &out));
    check(out.data == NULL);
    check(sszip_purge_request(str("nothing"), &out) == SSZIP_STATUS_INVALID);

    ok(sszip_owner_reply_head(str("HTTP/1.1 409 No\r\ncontent-length: 7\r\n\r\n"),
                        &status, &length));
    check(status == 409 && length == 7);
    check(sszip_owner_reply_head(str("HTTP/1.1 200 OK\r\n\r\n"), &status, &length)
          == SSZIP_STATUS_INVALID);
}


static void
check_calls(void)
{
    bool               batch;
    char              *p;
    size_t             n;
    sszip_str          body, out;
    sszip_header        field;
    const sszip_call  *calls;

    static const char  text[] =
        "[{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"b\",\"params\":[1]},"
        "{\"jsonrpc\":\"2.0\",\"method\":\"c\"}]";

    body.len = strlen(text);
    p = (char *) sszip_calls_buffer(body.len);
    check(p != NULL);
    memcpy(p, text, body.len);
    body.data = (uint8_t *) p;

    ok(sszip_calls_parse(NULL, 0, body, 1000, 10, &calls, &n, &batch, &out));
    check(n == 2 && batch);
    check(is(calls[0].method, "b") && is(calls[0].id, "\"a\""));
    check(is(calls[0].params, "[1]"));
    check(is(calls[1].method, "c") && calls[1].id.data == NULL);
    check(calls[1].params.data == NULL);

    check(sszip_calls_parse(NULL, 0, body, 1000, 1, &calls, &n, &batch, &out)
          == SSZIP_STATUS_INVALID);
    check(is(out, "long-batch"));

    ok(sszip_gzip(str(text), 1, &out));
    p = malloc(out.len);
    check(p != NULL);
    memcpy(p, out.data, out.len);
    body.data = (uint8_t *) p;
    body.len = out.len;
    field.name = str("Content-Encoding");
    field.value = str("gzip");
    ok(sszip_calls_parse(&field, 1, body, 1000, 10, &calls, &n, &batch, &out));
    free(p);
    check(n == 2 && is(calls[1].method, "c"));
}


static void
check_coders(void)
{
    sszip_str   out, coded;
    uint8_t     bytes[64];
    sszip_ssz_type  type;

    check(sszip_gzip(str("a"), 13, &out) == SSZIP_STATUS_INVALID);
    check(is(out, "the level must be from 0 to 12"));
    check(sszip_gunzip(str("a"), 10, &out) == SSZIP_STATUS_INVALID);

    check(sszip_zstd(str("a"), 0, &out) == SSZIP_STATUS_INVALID);
    check(sszip_zstd(str("a"), 20, &out) == SSZIP_STATUS_INVALID);
    check(is(out, "the level must be from 1 to 19"));
    ok(sszip_zstd(str("abc"), 19, &out));
    check(out.len <= sizeof(bytes));
    memcpy(bytes, out.data, out.len);
    coded.data = bytes;
    coded.len = out.len;
    ok(sszip_unzstd(coded, 3, &out));
    check(is(out, "abc"));
    check(sszip_unzstd(coded, 2, &out) == SSZIP_STATUS_INVALID);
    check(is(out, "the decompressed data is longer than the limit"));
    check(sszip_unzstd(str("a"), 10, &out) == SSZIP_STATUS_INVALID);
    check(is(out, "the data is not zstd, or is damaged"));

    memset(&type, 0, sizeof(type));
    type.name = str("ByteString");
    ok(sszip_json_to_ssz(&type, str("{\"result\":\"0x6162\"}"), &out));
    check(is(out, "ab"));
    ok(sszip_ssz_to_json(&type, str("ab"), &out));
    check(is(out, "\"0x6162\""));
    ok(sszip_ssz_check(&type, str("ab"), &out));
    check(out.data != NULL && out.len == 0);
    ok(sszip_ssz_root(&type, str("ab"), &out));
    check(out.len == 66);
    type.name = str("\xff");
    check(sszip_ssz_root(&type, none, &out) == SSZIP_STATUS_INVALID);
    check(sszip_ssz_root(NULL, none, &out) == SSZIP_STATUS_NULL);
}
