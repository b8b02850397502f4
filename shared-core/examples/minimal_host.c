/* A minimal host: writes the compressed response of one exchange to stdout. */

#include <assert.h>
#include <stdio.h>
#include <sszip.h>

#define STR(text)  { (const uint8_t *) text, sizeof(text) - 1 }
#define CALL(call) if ((call) != SSZIP_STATUS_OK) return 1

static uint8_t zeros[10000];
static sszip_str none, on = STR("on"), body = { zeros, sizeof(zeros) };
static sszip_header accept = { STR("Accept-Encoding"), STR("gzip") };
static sszip_header type = { STR("Content-Type"), STR("text/plain") };
static sszip_route route = { .size = sizeof(route) };
static sszip_directive enable = { .size = sizeof(enable), .name = STR("sszip"),
    .values = &on, .nvalues = 1 };
static sszip_request_head request = { .size = sizeof(request),
    .method = STR("GET"), .target = STR("/"), .fields = &accept, .nfields = 1 };
static sszip_response_head response = { .size = sizeof(response), .status = 200,
    .fields = &type, .nfields = 1, .content_length = sizeof(zeros),
    .delimited = true, .coding_allowed = true };

int
main(void)
{
    size_t                   i, n, block = 0;
    sszip_str                text;
    sszip_step               step;
    sszip_exchange          *exchange;
    const sszip_str         *pieces;
    sszip_route_settings     settings;
    sszip_validated_config  *config;

    assert(sszip_abi() == SSZIP_ABI);
    CALL(sszip_validated_config_new(none, none, &config));
    CALL(sszip_validated_config_set(config, &block, &enable, &text));
    CALL(sszip_validated_config_add_route(config, &block, 0, &route,
                                          &settings, &text));
    CALL(sszip_validated_config_check(config, &text));
    CALL(sszip_validated_config_start(config, 1));

    /* the action of each step is the next thing to do */
    CALL(sszip_exchange_new(settings.config, &exchange));
    CALL(sszip_exchange_request_head(exchange, &request));
    CALL(sszip_exchange_response_head(exchange, &response, &step));
    assert(step.action == SSZIP_ACTION_BUFFER);
    CALL(sszip_exchange_piece(exchange, body, &step));
    assert(step.action == SSZIP_ACTION_AWAIT);
    CALL(sszip_exchange_end(exchange, &step));
    assert(step.action == SSZIP_ACTION_SEND);
    CALL(sszip_exchange_body(exchange, &pieces, &n));

    for (i = 0; i < n; i++) {
        fwrite(pieces[i].data, 1, pieces[i].len, stdout);
    }

    sszip_exchange_free(exchange);
    sszip_validated_config_free(config);
}
