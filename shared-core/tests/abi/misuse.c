/* calls that an exchange does not permit */

#include "host.h"


void
check_misuse(const sszip_config *config)
{
    size_t                n;
    sszip_str             text;
    const sszip_str      *body;
    sszip_exchange       *exchange;
    const sszip_head_edit     *edits;
    sszip_step            step;
    sszip_progress        progress;
    sszip_request_head    request;
    sszip_response_head   head;

    memset(&head, 0, sizeof(head));

    check(sszip_exchange_new(NULL, &exchange) == SSZIP_STATUS_NULL);
    check(sszip_exchange_new(config, NULL) == SSZIP_STATUS_NULL);

    ok(sszip_exchange_new(config, &exchange));

    check(sszip_exchange_piece(exchange, str("x"), &step)
          == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_end(exchange, &step) == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_job_done(exchange, NULL, &step) == SSZIP_STATUS_NULL);
    check(sszip_exchange_response_head_unavailable(exchange, &step)
          == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_abort(exchange) == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_end_buffering(exchange, &step) == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_required_body(exchange, 1) == SSZIP_NEED_NOTHING);
    check(sszip_exchange_stream(exchange, str("x"), SSZIP_FLUSH_NONE, NULL, 0,
                                &progress)
          == SSZIP_STATUS_MISUSE);

    /* a struct of another size belongs to another version */
    memset(&request, 0, sizeof(request));
    check(sszip_exchange_request_head(exchange, &request)
          == SSZIP_STATUS_MISUSE);
    request.size = sizeof(request);
    request.method = str("GET");
    ok(sszip_exchange_request_head(exchange, &request));
    check(sszip_exchange_response_head(exchange, &head, &step)
          == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_response_head(exchange, NULL, &step)
          == SSZIP_STATUS_NULL);

    ok(sszip_exchange_body(exchange, &body, &n));
    check(n == 0);
    ok(sszip_exchange_head_edits(exchange, &edits, &n));
    check(n == 0);
    check_variable(exchange, "sszip_mode", "off");
    check_variable(NULL, "sszip_mode", "off");
    check_variable(exchange, "sszip_rpc_method", NULL);
    check_variable(NULL, "sszip_rpc_method", NULL);
    check(sszip_variable_name(255).len == 0);
    check(sszip_exchange_variable(exchange, 255, &text)
          == SSZIP_STATUS_INVALID);
    check(sszip_exchange_variable(exchange, 0, NULL) == SSZIP_STATUS_NULL);
    check(sszip_exchange_variable(NULL, 0, NULL) == SSZIP_STATUS_NULL);

    sszip_exchange_free(exchange);
    sszip_exchange_free(NULL);
}
