/*
 * A host in C: drives one exchange through sszip.h and writes to standard
 * output what a client would get.  tests/ffi.rs compiles it with
 * AddressSanitizer, links the static library and reads the output.
 *
 *     host BODY_LENGTH PIECE_LENGTH ACCEPT_ENCODING length|chunked
 *
 * The body is BODY_LENGTH times 'a'.  The first line is the mode, then come
 * the head edits, an empty line, and the body.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sszip.h>


#define check(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);   \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

#define ok(call)  check((call) == SSZIP_STATUS_OK)


static sszip_str
str(const char *s)
{
    sszip_str  result;

    result.data = (const uint8_t *) s;
    result.len = strlen(s);

    return result;
}


static void
set(sszip_directives *directives, const char *name, const char *value)
{
    size_t     len;
    uint8_t    text[200];
    sszip_str  argument = str(value);

    ok(sszip_directives_set(directives, str(name), &argument, 1, text,
                            sizeof(text), &len));
}


static void
check_directive_errors(void)
{
    size_t             len;
    uint8_t            text[200];
    sszip_str          argument = str("13");
    sszip_directives  *directives;

    ok(sszip_directives_new(&directives));

    check(sszip_directives_set(directives, str("comp_level"), &argument, 1,
                               text, sizeof(text), &len)
          == SSZIP_STATUS_INVALID);
    check(len < sizeof(text));
    text[len] = '\0';
    check(strstr((char *) text, "from 0 to 12") != NULL);

    /* cut to the room there is, and to none */
    check(sszip_directives_set(directives, str("comp_level"), &argument, 1,
                               text, 3, &len)
          == SSZIP_STATUS_INVALID);
    check(len == 3);
    check(sszip_directives_set(directives, str("comp_level"), NULL, 0, NULL, 0,
                               NULL)
          == SSZIP_STATUS_INVALID);
    check(sszip_directives_set(NULL, str("comp_level"), &argument, 1, text,
                               sizeof(text), &len)
          == SSZIP_STATUS_NULL);

    sszip_directives_free(directives);
    sszip_directives_free(NULL);
}


static void
check_misuse(const sszip_config *config)
{
    size_t                n;
    uint8_t               mode;
    sszip_str             body;
    sszip_exchange       *exchange;
    const sszip_edit     *edits;
    sszip_progress        progress;
    sszip_end_action      end;
    sszip_piece_action    piece;
    sszip_head_action     action;
    sszip_response_head   head;

    memset(&head, 0, sizeof(head));

    check(sszip_exchange_new(NULL, &exchange) == SSZIP_STATUS_NULL);
    check(sszip_exchange_new(config, NULL) == SSZIP_STATUS_NULL);

    ok(sszip_exchange_new(config, &exchange));

    check(sszip_exchange_piece(exchange, str("x"), &piece)
          == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_end(exchange, &end) == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_code(exchange) == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_cut_short(exchange) == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_release(exchange, &piece) == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_stream(exchange, str("x"), SSZIP_FLUSH_NONE, NULL, 0,
                                &progress)
          == SSZIP_STATUS_MISUSE);

    /* a struct of another size is of another version */
    ok(sszip_exchange_request_head(exchange, str("GET"), NULL, 0));
    check(sszip_exchange_response_head(exchange, &head, &action)
          == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_response_head(exchange, NULL, &action)
          == SSZIP_STATUS_NULL);

    ok(sszip_exchange_body(exchange, &body));
    check(body.len == 0);
    ok(sszip_exchange_head_edits(exchange, &edits, &n));
    check(n == 0);
    ok(sszip_exchange_mode(exchange, &mode));
    check(sszip_mode_name(mode).len == 3);
    check(sszip_mode_name(255).len == 0);
    check(sszip_exchange_mode(NULL, &mode) == SSZIP_STATUS_NULL);

    sszip_exchange_free(exchange);
    sszip_exchange_free(NULL);
}


static void
print_mode_and_head(sszip_exchange *exchange)
{
    size_t             i, n;
    uint8_t            mode;
    sszip_str          name;
    const sszip_edit  *edits;

    ok(sszip_exchange_mode(exchange, &mode));
    name = sszip_mode_name(mode);
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


/* one piece through the encoder, with a buffer as small as it may be */

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


static void
run(const sszip_config *config, size_t body_length, size_t piece_length,
    const char *accept_encoding, int chunked)
{
    size_t                n, at, len;
    int64_t               hold_ms;
    uint8_t              *copy;
    uint64_t              received, sent;
    sszip_str             piece, body;
    sszip_field           field;
    sszip_exchange       *exchange;
    const sszip_edit     *edits;
    sszip_end_action      end;
    sszip_head_action     action;
    sszip_piece_action    taken;
    sszip_response_head   head;

    ok(sszip_exchange_new(config, &exchange));

    field.name = str("accept-encoding");
    field.value = str(accept_encoding);
    ok(sszip_exchange_request_head(exchange, str("GET"), &field, 1));
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
    ok(sszip_exchange_response_head(exchange, &head, &action));

    if (action != SSZIP_HEAD_HOLD) {
        print_mode_and_head(exchange);
    }

    ok(sszip_exchange_hold_ms(exchange, &hold_ms));
    check((hold_ms >= 0)
          == (action == SSZIP_HEAD_STREAM
              || (action == SSZIP_HEAD_HOLD && chunked)));

    for (at = 0; at < body_length; at += len) {
        len = body_length - at < piece_length ? body_length - at : piece_length;

        /* a copy of its own: reading a byte too many would show */
        copy = malloc(len);
        check(copy != NULL);
        memset(copy, 'a', len);

        piece.data = copy;
        piece.len = len;

        if (action == SSZIP_HEAD_HOLD) {
            ok(sszip_exchange_piece(exchange, piece, &taken));

            if (taken == SSZIP_PIECE_GIVE_UP) {
                print_mode_and_head(exchange);
                ok(sszip_exchange_body(exchange, &body));
                write_bytes(body.data, body.len);
                action = SSZIP_HEAD_PASS;

            } else if (taken == SSZIP_PIECE_STREAM) {
                print_mode_and_head(exchange);
                action = SSZIP_HEAD_STREAM;
            }
        }

        if (action == SSZIP_HEAD_STREAM) {
            stream(exchange, piece, at % 3 ? SSZIP_FLUSH_NONE
                                           : SSZIP_FLUSH_SYNC);
        }

        if (action == SSZIP_HEAD_PASS) {
            write_bytes(copy, len);
        }

        free(copy);
    }

    if (action == SSZIP_HEAD_HOLD) {
        ok(sszip_exchange_end(exchange, &end));
        check(end == (body_length > 262144 ? SSZIP_END_CODE_OFF_LOOP
                                           : SSZIP_END_CODE));
        ok(sszip_exchange_code(exchange));
        print_mode_and_head(exchange);
        ok(sszip_exchange_body(exchange, &body));
        write_bytes(body.data, body.len);
    }

    if (action == SSZIP_HEAD_STREAM) {
        stream(exchange, str(""), SSZIP_FLUSH_FINISH);
        ok(sszip_exchange_sizes(exchange, &received, &sent));
        check(received == body_length && sent > 0);
    }

    sszip_exchange_free(exchange);
}


int
main(int argc, char **argv)
{
    sszip_config      *config;
    sszip_directives  *inner, *outer;

    check(argc == 5);

    check_directive_errors();

    ok(sszip_directives_new(&outer));
    ok(sszip_directives_new(&inner));
    set(outer, "enable", "on");
    set(inner, "min_length", "100");
    ok(sszip_directives_inherit(inner, outer));
    ok(sszip_config_new(inner, &config));
    check(sszip_config_enabled(config));
    check(!sszip_config_enabled(NULL));
    sszip_directives_free(inner);
    sszip_directives_free(outer);

    check_misuse(config);
    run(config, (size_t) atol(argv[1]), (size_t) atol(argv[2]), argv[3],
        strcmp(argv[4], "chunked") == 0);

    sszip_config_free(config);
    sszip_config_free(NULL);

    return 0;
}
