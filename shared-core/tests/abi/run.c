/* one response, compressed or unchanged, to standard output */

#include "host.h"


static void
print_mode_and_head(sszip_exchange *exchange)
{
    size_t             i, n;
    sszip_str          name;
    const sszip_head_edit  *edits;

    ok(sszip_exchange_variable(exchange, variable("sszip_mode"), &name));
    printf("%.*s\n", (int) name.len, (const char *) name.data);

    ok(sszip_exchange_head_edits(exchange, &edits, &n));

    for (i = 0; i < n; i++) {
        printf("%.*s: %.*s\n",
               (int) edits[i].name.len, (const char *) edits[i].name.data,
               (int) edits[i].value.len,
               edits[i].value.data ? (const char *) edits[i].value.data : "");
    }

    printf("\n");
}


static void
write_bytes(const uint8_t *data, size_t len)
{
    check(fwrite(data, 1, len, stdout) == len);
}


static void
write_body(sszip_exchange *exchange)
{
    size_t            i, n;
    const sszip_str  *body;

    ok(sszip_exchange_body(exchange, &body, &n));

    for (i = 0; i < n; i++) {
        write_bytes(body[i].data, body[i].len);
    }
}


/* streams one piece into buffers of the smallest size */

static void
stream(sszip_exchange *exchange, sszip_str piece, sszip_flush flush)
{
    uint8_t         *output;
    sszip_progress   progress;

    do {
        output = malloc(100);
        check(output != NULL);

        ok(sszip_exchange_stream(exchange, piece, flush, output, 100,
                                 &progress));
        check(progress.consumed <= piece.len && progress.written <= 100);

        write_bytes(output, progress.written);
        free(output);

        piece.data += progress.consumed;
        piece.len -= progress.consumed;

    } while (!progress.complete);

    check(piece.len == 0);
}


void
run(const sszip_config *config, size_t body_length, size_t piece_length,
    const char *accept_encoding, int chunked)
{
    size_t                n, at, len;
    sszip_str             ratio;
    int64_t               hold_ms;
    uint8_t              *copy;
    const sszip_str      *body;
    sszip_str             piece;
    sszip_header           field;
    sszip_exchange       *exchange;
    sszip_action              state;
    sszip_step            step;
    const sszip_head_edit     *edits;
    sszip_request_head    request;
    sszip_response_head   head;

    ok(sszip_exchange_new(config, &exchange));

    field.name = str("accept-encoding");
    field.value = str(accept_encoding);
    memset(&request, 0, sizeof(request));
    request.size = sizeof(request);
    request.method = str("GET");
    request.target = str("/");
    request.fields = &field;
    request.nfields = 1;
    ok(sszip_exchange_request_head(exchange, &request));
    ok(sszip_exchange_upstream_edits(exchange, &edits, &n));
    check(n == 1 && edits[0].value.len == strlen("identity"));

    memset(&head, 0, sizeof(head));
    field.name = str("Content-Type");
    field.value = str("application/json");
    head.size = sizeof(head);
    head.fields = &field;
    head.nfields = 1;
    head.content_length = chunked ? -1 : (int64_t) body_length;
    head.delimited = true;
    head.status = 200;
    head.coding_allowed = true;

    /* without memory for the action the head is not read */
    check(sszip_exchange_response_head(exchange, &head, NULL)
          == SSZIP_STATUS_NULL);
    ok(sszip_exchange_response_head(exchange, &head, &step));
    state = step.action;

    if (state != SSZIP_ACTION_BUFFER) {
        print_mode_and_head(exchange);
    }

    hold_ms = sszip_exchange_next_timer(exchange);
    check((hold_ms >= 0)
          == (state == SSZIP_ACTION_STREAM
              || (state == SSZIP_ACTION_BUFFER && chunked)));

    for (at = 0; at < body_length; at += len) {
        len = body_length - at < piece_length ? body_length - at : piece_length;

        /* a copy of its own, so that AddressSanitizer detects a read beyond it */
        copy = malloc(len);
        check(copy != NULL);
        memset(copy, 'a', len);

        piece.data = copy;
        piece.len = len;

        if (state == SSZIP_ACTION_BUFFER) {
            ok(sszip_exchange_piece(exchange, piece, &step));

            if (step.action == SSZIP_ACTION_SEND_THEN_PASS) {
                print_mode_and_head(exchange);
                write_body(exchange);
                state = SSZIP_ACTION_PASS;

            } else if (step.action == SSZIP_ACTION_STREAM) {
                print_mode_and_head(exchange);
                state = SSZIP_ACTION_STREAM;
            }
        }

        if (state == SSZIP_ACTION_STREAM) {
            stream(exchange, piece, at % 3 ? SSZIP_FLUSH_NONE
                                           : SSZIP_FLUSH_SYNC);
        }

        if (state == SSZIP_ACTION_PASS) {
            write_bytes(copy, len);
        }

        free(copy);
    }

    if (state == SSZIP_ACTION_BUFFER) {
        check(sszip_exchange_end(exchange, NULL) == SSZIP_STATUS_NULL);
        ok(sszip_exchange_end(exchange, &step));
        check((step.action == SSZIP_ACTION_RUN_JOB) == (body_length > 262144));

        if (step.action == SSZIP_ACTION_RUN_JOB) {
            /* until the job is done the exchange has no body and no mode */
            ok(sszip_exchange_body(exchange, &body, &n));
            check(n == 0);
            check_variable(exchange, "sszip_mode", "off");
            check(sszip_exchange_end(exchange, &step) == SSZIP_STATUS_MISUSE);
            ok(sszip_job_run(step.job));
            check(sszip_exchange_job_done(exchange, step.job, NULL)
                  == SSZIP_STATUS_NULL);
            ok(sszip_exchange_job_done(exchange, step.job, &step));
        }

        check(step.action == SSZIP_ACTION_SEND);
        print_mode_and_head(exchange);
        write_body(exchange);
    }

    if (state == SSZIP_ACTION_STREAM) {
        stream(exchange, str(""), SSZIP_FLUSH_FINISH);
        ok(sszip_exchange_variable(exchange, variable("sszip_ratio"), &ratio));
        check(ratio.len >= 4 && ratio.data[ratio.len - 3] == '.');
    }

    sszip_exchange_free(exchange);
}
