/*
 * A minimal host: a route, and an exchange on it whose response is one piece
 * of 10000 bytes.  Prints the length of the compressed body.
 *
 *     cargo build --package sszip-nginx
 *     gcc -I shared-core/include shared-core/examples/minimal_host.c \
 *         target/debug/libsszip_nginx.a -lpthread -ldl -lm
 */

#include <stdio.h>
#include <stdlib.h>

#include <sszip.h>

#define STR(text)   { (const uint8_t *) text, sizeof(text) - 1 }
#define CHECK(ok)   if (!(ok)) { fprintf(stderr, "failed: %s\n", #ok); exit(1); }
#define CALL(call)  CHECK((call) == SSZIP_STATUS_OK)

static const uint8_t              zeros[10000];
static const sszip_str            none, on = STR("on");
static const sszip_str            body = { zeros, sizeof(zeros) };
static const sszip_header         accept = { STR("Accept-Encoding"), STR("gzip") };
static const sszip_header         type = { STR("Content-Type"), STR("text/plain") };
static const sszip_directive      enable = { .size = sizeof(sszip_directive),
    .name = STR("sszip"), .values = &on, .nvalues = 1, .file = STR("here") };
static const sszip_route          route = { .size = sizeof(sszip_route) };
static const sszip_request_head   request = { .size = sizeof(sszip_request_head),
    .method = STR("GET"), .target = STR("/"), .fields = &accept, .nfields = 1 };
static const sszip_response_head  response = { .size = sizeof(sszip_response_head),
    .fields = &type, .nfields = 1, .content_length = sizeof(zeros), .status = 200,
    .delimited = true, .coding_allowed = true };

int
main(void)
{
    size_t                   i, n, length = 0, block = 0;
    sszip_str                text;
    sszip_step               step;
    sszip_exchange          *exchange;
    const sszip_str         *pieces;
    sszip_route_settings     settings;
    sszip_validated_config  *config;

    CHECK(sszip_abi() == SSZIP_ABI);

    /* a configuration, with one directive in one block */
    CALL(sszip_validated_config_new(none, none, &config));
    CALL(sszip_validated_config_set(config, &block, &enable, &text));
    CALL(sszip_validated_config_add_route(config, &block, 0, &route, &settings,
                                          &text));
    CALL(sszip_validated_config_check(config, &text));
    CALL(sszip_validated_config_start(config, 1));

    /* an exchange: the action of each step is the next thing to do */
    CALL(sszip_exchange_new(settings.config, &exchange));
    CALL(sszip_exchange_request_head(exchange, &request));
    CALL(sszip_exchange_response_head(exchange, &response, &step));
    CHECK(step.action == SSZIP_ACTION_BUFFER);
    CALL(sszip_exchange_piece(exchange, body, &step));
    CHECK(step.action == SSZIP_ACTION_AWAIT);
    CALL(sszip_exchange_end(exchange, &step));
    CHECK(step.action == SSZIP_ACTION_SEND);

    /* a server would send the edited head, and these pieces */
    CALL(sszip_exchange_body(exchange, &pieces, &n));

    for (i = 0; i < n; i++) {
        length += pieces[i].len;
    }

    printf("%zu bytes, compressed: %zu\n", body.len, length);

    sszip_exchange_free(exchange);
    sszip_validated_config_free(config);

    return 0;
}
