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


static const sszip_str  none;


static sszip_status
set_all(sszip_plan *plan, size_t *block, const char *name,
    const sszip_str *values, size_t n, sszip_str *said)
{
    sszip_directive  directive;

    memset(&directive, 0, sizeof(directive));
    directive.size = sizeof(directive);
    directive.name = str(name);
    directive.values = values;
    directive.nvalues = n;
    directive.file = str("f");
    directive.line = 1;

    return sszip_plan_set(plan, block, &directive, said);
}


static sszip_status
set_said(sszip_plan *plan, size_t *block, const char *name, const char *value,
    sszip_str *said)
{
    sszip_str  argument = str(value);

    return set_all(plan, block, name, &argument, 1, said);
}


static void
set(sszip_plan *plan, size_t *block, const char *name, const char *value)
{
    sszip_str  said;

    ok(set_said(plan, block, name, value, &said));
    check(said.len == 0 && *block != 0);
}


static int
has(sszip_str said, const char *text)
{
    size_t  i;

    for (i = 0; i + strlen(text) <= said.len; i++) {
        if (memcmp(said.data + i, text, strlen(text)) == 0) {
            return 1;
        }
    }

    return 0;
}


static void
check_directive_errors(void)
{
    size_t        block;
    sszip_str     said, arguments[2];
    sszip_plan   *plan;
    sszip_store   store;

    ok(sszip_plan_new(none, str("/no-such-folder/"), &plan));
    block = 0;

    check(set_said(plan, &block, "sszip_comp_level", "13", &said)
          == SSZIP_STATUS_INVALID);
    check(has(said, "from 0 to 12"));
    check(set_said(plan, &block, "comp_level", "1", &said)
          == SSZIP_STATUS_INVALID);
    check(has(said, "no such directive"));
    check(set_said(plan, &block, "sszip_comp_level", "1", NULL)
          == SSZIP_STATUS_NULL);
    check(set_said(NULL, &block, "sszip_comp_level", "1", &said)
          == SSZIP_STATUS_NULL);
    check(set_said(plan, NULL, "sszip_comp_level", "1", &said)
          == SSZIP_STATUS_NULL);
    check(sszip_plan_set(plan, &block, NULL, &said) == SSZIP_STATUS_NULL);

    /* a block that is none */
    block = 99;
    check(set_said(plan, &block, "sszip", "on", &said)
          == SSZIP_STATUS_INVALID);
    check(block == 99);
    block = 0;

    /* a file is looked for where it is said to be */
    arguments[0] = str("https://node");
    arguments[1] = str("ca=no-such-file");
    check(set_all(plan, &block, "sszip_cache_head", arguments, 2, &said)
          == SSZIP_STATUS_INVALID);
    check(has(said, "\"/no-such-folder/no-such-file\", that can't be read (2"));

    /* taken, and worth a word */
    arguments[0] = str("eth_gasPrise");
    arguments[1] = str("1s");
    ok(set_all(plan, &block, "sszip_cache_valid", arguments, 2, &said));
    check(has(said, "\"eth_gasPrise\""));

    /* a store's folder is looked into, and it has one owner */
    check(set_said(plan, &block, "sszip_cache_path", "/dev/null", &said)
          == SSZIP_STATUS_INVALID);
    check(has(said, "must be a folder of its own, and this is none"));
    ok(set_said(plan, &block, "sszip_cache_owner", "unix:/s", &said));
    check(set_said(plan, &block, "sszip_cache_owner", "unix:/t", &said)
          == SSZIP_STATUS_INVALID);
    check(has(said, "is duplicate"));
    check(sszip_plan_owner(plan).len == 0);
    ok(sszip_plan_check(plan, &said));
    check(memcmp(sszip_plan_owner(plan).data, "unix:/s", 8) == 0);
    check(sszip_plan_store(plan, &store) == SSZIP_STATUS_MISUSE);
    check(sszip_plan_store(NULL, &store) == SSZIP_STATUS_NULL);
    check(sszip_plan_owner(NULL).len == 0);

    sszip_plan_free(plan);
}


/* what the places of a configuration come to */

static void
check_plan(void)
{
    size_t        block, of_another;
    sszip_str     said, servers[2];
    sszip_plan   *plan;
    sszip_place   place;
    sszip_rules   rules;

    ok(sszip_plan_new(none, none, &plan));
    block = 0;
    of_another = 99;

    set(plan, &block, "sszip", "on");
    set(plan, &block, "sszip_cache", "on");
    set(plan, &block, "sszip_cache_head", "http://node");

    memset(&place, 0, sizeof(place));
    check(sszip_plan_add(plan, &block, 0, &place, &rules, &said)
          == SSZIP_STATUS_MISUSE);
    place.size = sizeof(place);
    place.name = str("/p");
    place.answers = true;
    check(sszip_plan_add(plan, &block, of_another, &place, &rules, &said)
          == SSZIP_STATUS_MISUSE);
    check(sszip_plan_add(plan, &of_another, block, &place, &rules, &said)
          == SSZIP_STATUS_MISUSE);
    check(sszip_plan_add(plan, &block, 0, &place, &rules, &said)
          == SSZIP_STATUS_INVALID);
    check(has(said, "\"sszip_cache_head\" directive, in location \"/p\""));
    check(has(said, "\"namespace=NAME\" in f:1"));
    place.name_space = str("main");
    place.per_request = true;
    check(sszip_plan_add(plan, &block, 0, &place, &rules, &said)
          == SSZIP_STATUS_INVALID);
    check(has(said, "\"sszip_cache_namespace\" has variables"));
    place.per_request = false;
    ok(sszip_plan_add(plan, &block, 0, &place, &rules, &said));
    check(said.len == 0);

    servers[0] = str("10.0.0.1:8545");
    servers[1] = str("10.0.0.2:8545");
    ok(sszip_plan_add_upstream(plan, str("nodes"), servers, 2));
    ok(sszip_plan_add_upstream(plan, str("nobody"), NULL, 0));

    check(sszip_plan_check(plan, &said) == SSZIP_STATUS_INVALID);
    check(has(said, "needs \"sszip_cache_path\""));
    check(sszip_plan_owner(plan).len == 0);

    check(sszip_plan_add(NULL, &block, 0, &place, &rules, &said)
          == SSZIP_STATUS_NULL);
    check(sszip_plan_add(plan, NULL, 0, &place, &rules, &said)
          == SSZIP_STATUS_NULL);
    check(sszip_plan_add(plan, &block, 0, NULL, &rules, &said)
          == SSZIP_STATUS_NULL);
    check(sszip_plan_add(plan, &block, 0, &place, NULL, &said)
          == SSZIP_STATUS_NULL);
    check(sszip_plan_add_upstream(NULL, none, NULL, 0) == SSZIP_STATUS_NULL);
    check(sszip_plan_check(plan, NULL) == SSZIP_STATUS_NULL);
    check(sszip_plan_start(NULL, 1) == SSZIP_STATUS_NULL);
    check(sszip_plan_new(none, none, NULL) == SSZIP_STATUS_NULL);

    sszip_plan_free(plan);
    sszip_plan_free(NULL);
}


/* the number of a variable */

static size_t
variable(const char *name)
{
    size_t     i;
    sszip_str  text;

    for (i = 0; /* void */ ; i++) {
        text = sszip_variable_name(i);
        check(text.len != 0);

        if (text.len == strlen(name)
            && memcmp(text.data, name, text.len) == 0)
        {
            return i;
        }
    }
}


/* what it says; NULL: nothing is wanted */

static void
check_variable(sszip_exchange *exchange, const char *name, const char *wanted)
{
    sszip_str  text;

    ok(sszip_exchange_variable(exchange, variable(name), &text));

    if (wanted == NULL) {
        check(text.data == NULL);
        return;
    }

    check(text.len == strlen(wanted)
          && memcmp(text.data, wanted, text.len) == 0);
}


static void
check_misuse(const sszip_config *config)
{
    size_t                n;
    sszip_str             text;
    const sszip_str      *body;
    sszip_exchange       *exchange;
    const sszip_edit     *edits;
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
    check(sszip_exchange_done(exchange, NULL, &step) == SSZIP_STATUS_NULL);
    check(sszip_exchange_no_response_head(exchange, &step)
          == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_cut_short(exchange) == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_release(exchange, &step) == SSZIP_STATUS_MISUSE);
    check(sszip_exchange_need(exchange, 1) == SSZIP_NEED_NOTHING);
    check(sszip_exchange_stream(exchange, str("x"), SSZIP_FLUSH_NONE, NULL, 0,
                                &progress)
          == SSZIP_STATUS_MISUSE);

    /* a struct of another size is of another version */
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


/* the head of a JSON-RPC call */

static sszip_request_head
call_head(sszip_field fields[2])
{
    sszip_request_head  request;

    fields[0].name = str("Content-Type");
    fields[0].value = str("application/json");
    fields[1].name = str("Accept-Encoding");
    fields[1].value = str("gzip");

    memset(&request, 0, sizeof(request));
    request.size = sizeof(request);
    request.method = str("POST");
    request.target = str("/");
    request.fields = fields;
    request.nfields = 2;

    return request;
}


/* an exchange of a JSON-RPC call, up to the look-up */

static sszip_exchange *
ask(const sszip_config *config, const char *body, uintptr_t waiter,
    sszip_do *found)
{
    sszip_step           step;
    sszip_asked          asked;
    sszip_field          fields[2];
    sszip_exchange      *exchange;
    sszip_request_head   request;

    request = call_head(fields);

    memset(&asked, 0, sizeof(asked));
    asked.size = sizeof(asked);
    asked.name_space = str("chain");
    asked.body = str(body);
    asked.has_body = true;
    asked.now = 1000;
    asked.coding_allowed = true;
    asked.waiter = waiter;

    ok(sszip_exchange_new(config, &exchange));
    check(sszip_exchange_look_up(exchange, &asked, &step)
          == SSZIP_STATUS_MISUSE);
    ok(sszip_exchange_request_head(exchange, &request));
    check(sszip_exchange_need(exchange, -1) == SSZIP_NEED_BODY);
    check(sszip_exchange_need(exchange, (int64_t) strlen(body))
          == SSZIP_NEED_LOOK_UP);

    asked.size--;
    check(sszip_exchange_look_up(exchange, &asked, &step)
          == SSZIP_STATUS_MISUSE);
    asked.size++;
    check(sszip_exchange_look_up(exchange, NULL, &step)
          == SSZIP_STATUS_NULL);
    check(sszip_exchange_look_up(NULL, &asked, &step) == SSZIP_STATUS_NULL);
    ok(sszip_exchange_look_up(exchange, &asked, &step));
    check(sszip_exchange_need(exchange, -1)
          == (step.act == SSZIP_DO_WAIT ? SSZIP_NEED_LOOK_UP
                                        : SSZIP_NEED_NOTHING));

    *found = step.act;

    return exchange;
}


/* the node's answer to it, up to where it is sent on */

static void
answer(sszip_exchange *exchange, const char *body)
{
    uint8_t              *copy;
    sszip_str             piece;
    sszip_step            step;
    sszip_field           field;
    sszip_response_head   head;

    field.name = str("Content-Type");
    field.value = str("application/json");

    memset(&head, 0, sizeof(head));
    head.size = sizeof(head);
    head.fields = &field;
    head.nfields = 1;
    head.content_length = (int64_t) strlen(body);
    head.delimited = true;
    head.status = 200;
    head.coding_allowed = true;
    ok(sszip_exchange_response_head(exchange, &head, &step));

    copy = malloc(strlen(body));
    check(copy != NULL);
    memcpy(copy, body, strlen(body));

    piece.data = copy;
    piece.len = strlen(body);

    if (step.act == SSZIP_DO_SHOW) {
        ok(sszip_exchange_piece(exchange, piece, &step));
        check(step.act == SSZIP_DO_AWAIT);

    } else {
        check(step.act == SSZIP_DO_HOLD);
        ok(sszip_exchange_piece(exchange, piece, &step));
        check(step.act == SSZIP_DO_AWAIT);
        ok(sszip_exchange_end(exchange, &step));
        check(step.act == SSZIP_DO_SEND);
    }

    free(copy);
}


/* it is sent: what is to be stored is */

static void
sent(sszip_exchange *exchange)
{
    check(sszip_exchange_sent(exchange, 1000) == NULL);
}


static void
check_status(sszip_exchange *exchange, const char *wanted)
{
    check_variable(exchange, "sszip_cache_status", wanted);
}


static void
check_body(sszip_exchange *exchange, const char *wanted)
{
    size_t            i, n;
    const sszip_str  *body;

    ok(sszip_exchange_body(exchange, &body, &n));

    for (i = 0; i < n; i++) {
        check(body[i].len <= strlen(wanted)
              && memcmp(body[i].data, wanted, body[i].len) == 0);
        wanted += body[i].len;
    }

    check(*wanted == '\0');
}


#define CALL(id, method)                                                      \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\",\"params\":[]}"
#define ANSWER(id, result)                                                    \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"result\":" result "}"


static void
check_cache(const sszip_config *config)
{
    sszip_str            str1;
    sszip_do             found;
    sszip_step           step;
    sszip_field          fields[2];
    sszip_exchange      *first, *second, *third;
    sszip_request_head   post;

    check(sszip_next_woken() == 0);

    /* one asks, another waits for it, and both have the answer */

    first = ask(config, CALL("1", "eth_chainId"), 11, &found);
    check(found == SSZIP_DO_FORWARD);
    check_status(first, "MISS");
    second = ask(config, CALL("2", "eth_chainId"), 12, &found);
    check(found == SSZIP_DO_WAIT);
    third = ask(config, CALL("3", "eth_chainId"), 13, &found);
    check(found == SSZIP_DO_WAIT);
    sszip_exchange_free(third);

    answer(first, ANSWER("1", "\"0x1\""));
    check(sszip_next_woken() == 0);
    sent(first);
    sszip_exchange_free(first);
    check(sszip_next_woken() == 12);
    check(sszip_next_woken() == 0);
    sszip_exchange_free(second);
    check(sszip_next_woken() == 0);

    second = ask(config, CALL("\"x\"", "eth_chainId"), 12, &found);
    check(found == SSZIP_DO_RESPOND);
    check(sszip_exchange_status(second) == 200);
    check_status(second, "HIT");
    check_body(second, ANSWER("\"x\"", "\"0x1\""));
    check_variable(second, "sszip_rpc_method", "eth_chainId");
    check_variable(second, "sszip_batch_size", NULL);
    check_variable(second, "sszip_batch_hits", NULL);
    sszip_exchange_free(second);

    /* an exchange that is freed makes way for the next, sent or not */

    first = ask(config, CALL("1", "eth_blockNumber"), 21, &found);
    second = ask(config, CALL("2", "eth_blockNumber"), 22, &found);
    third = ask(config, CALL("3", "eth_blockNumber"), 23, &found);
    answer(first, ANSWER("1", "\"0x1\""));
    check(sszip_next_woken() == 0);
    sszip_exchange_free(first);
    check(sszip_next_woken() == 22);
    sszip_exchange_free(second);
    check(sszip_next_woken() == 23);
    check(sszip_next_woken() == 0);
    sszip_exchange_free(third);
    check(sszip_next_woken() == 0);

    /* a batch of which one answer is there */

    first = ask(config, "[" CALL("1", "eth_syncing") "," CALL("2", "eth_chainId")
                "]", 31, &found);
    check(found == SSZIP_DO_FORWARD_REWRITTEN);
    str1 = sszip_exchange_request_body(first);
    check(str1.len == strlen("[" CALL("1", "eth_syncing") "]")
          && memcmp(str1.data, "[" CALL("1", "eth_syncing") "]", str1.len) == 0);
    check_variable(first, "sszip_rpc_method", NULL);
    check_variable(first, "sszip_cache_key", NULL);
    check_variable(first, "sszip_batch_size", "2");
    check_variable(first, "sszip_batch_hits", "1");
    answer(first, "[" ANSWER("1", "false") "]");
    check_body(first, "[" ANSWER("1", "false") "," ANSWER("2", "\"0x1\"") "]");
    sent(first);
    sszip_exchange_free(first);

    /* nothing of it is to be stored */

    first = ask(config, CALL("1", "eth_gasPrice"), 41, &found);
    second = ask(config, CALL("2", "eth_gasPrice"), 42, &found);
    ok(sszip_exchange_no_store(first));
    check(sszip_next_woken() == 42);
    sszip_exchange_free(second);
    sszip_exchange_free(first);
    check(sszip_next_woken() == 0);

    check(sszip_exchange_need(NULL, 0) == SSZIP_NEED_NOTHING);

    /* what is too long is so for good */

    post = call_head(fields);
    ok(sszip_exchange_new(config, &first));
    ok(sszip_exchange_request_head(first, &post));
    check(sszip_exchange_need(first, INT64_MAX) == SSZIP_NEED_NOTHING);
    check(sszip_exchange_need(first, 10) == SSZIP_NEED_NOTHING);
    sszip_exchange_free(first);

    check(sszip_exchange_request_body(NULL).data == NULL);
    check(sszip_exchange_status(NULL) == 0);
    check(sszip_exchange_next_timer(NULL) < 0);
    check(!sszip_exchange_varies(NULL));
    check(sszip_exchange_beside(NULL, true, false, true)
          == SSZIP_BESIDE_NOTHING);
    check(!sszip_exchange_is_news(NULL));
    check(sszip_exchange_node_piece(NULL, NULL, 1, true, 0) == NULL);
    check(sszip_exchange_take_update(NULL) == NULL);
    check(sszip_exchange_piece(NULL, str("x"), &step) == SSZIP_STATUS_NULL);
    check(sszip_exchange_no_store(NULL) == SSZIP_STATUS_NULL);
    check(sszip_exchange_sent(NULL, 0) == NULL);
    check(sszip_job_run(NULL) == SSZIP_STATUS_NULL);
    check(sszip_job_store(NULL, 0) == SSZIP_STATUS_NULL);
    check(!sszip_job_is_to_be_stored(NULL));

    /* a result that nobody takes is not lost memory */

    first = ask(config, CALL("1", "eth_gasPrice"), 51, &found);
    answer(first, ANSWER("1", "\"0x1\""));
    sszip_exchange_free(first);
}


static void
print_mode_and_head(sszip_exchange *exchange)
{
    size_t             i, n;
    sszip_str          name;
    const sszip_edit  *edits;

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
    sszip_str             ratio;
    int64_t               hold_ms;
    uint8_t              *copy;
    const sszip_str      *body;
    sszip_str             piece;
    sszip_field           field;
    sszip_exchange       *exchange;
    sszip_do              state;
    sszip_step            step;
    const sszip_edit     *edits;
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
    ok(sszip_exchange_response_head(exchange, &head, &step));
    state = step.act;

    if (state != SSZIP_DO_HOLD) {
        print_mode_and_head(exchange);
    }

    hold_ms = sszip_exchange_next_timer(exchange);
    check((hold_ms >= 0)
          == (state == SSZIP_DO_STREAM
              || (state == SSZIP_DO_HOLD && chunked)));

    for (at = 0; at < body_length; at += len) {
        len = body_length - at < piece_length ? body_length - at : piece_length;

        /* a copy of its own: reading a byte too many would show */
        copy = malloc(len);
        check(copy != NULL);
        memset(copy, 'a', len);

        piece.data = copy;
        piece.len = len;

        if (state == SSZIP_DO_HOLD) {
            ok(sszip_exchange_piece(exchange, piece, &step));

            if (step.act == SSZIP_DO_SEND_THEN_PASS) {
                print_mode_and_head(exchange);
                write_body(exchange);
                state = SSZIP_DO_PASS;

            } else if (step.act == SSZIP_DO_STREAM) {
                print_mode_and_head(exchange);
                state = SSZIP_DO_STREAM;
            }
        }

        if (state == SSZIP_DO_STREAM) {
            stream(exchange, piece, at % 3 ? SSZIP_FLUSH_NONE
                                           : SSZIP_FLUSH_SYNC);
        }

        if (state == SSZIP_DO_PASS) {
            write_bytes(copy, len);
        }

        free(copy);
    }

    if (state == SSZIP_DO_HOLD) {
        ok(sszip_exchange_end(exchange, &step));
        check((step.act == SSZIP_DO_RUN) == (body_length > 262144));

        if (step.act == SSZIP_DO_RUN) {
            /* whoever asks meanwhile is told nothing */
            ok(sszip_exchange_body(exchange, &body, &n));
            check(n == 0);
            check_variable(exchange, "sszip_mode", "off");
            check(sszip_exchange_end(exchange, &step) == SSZIP_STATUS_MISUSE);
            ok(sszip_job_run(step.job));
            ok(sszip_exchange_done(exchange, step.job, &step));
        }

        check(step.act == SSZIP_DO_SEND);
        print_mode_and_head(exchange);
        write_body(exchange);
    }

    if (state == SSZIP_DO_STREAM) {
        stream(exchange, str(""), SSZIP_FLUSH_FINISH);
        ok(sszip_exchange_variable(exchange, variable("sszip_ratio"), &ratio));
        check(ratio.len >= 4 && ratio.data[ratio.len - 3] == '.');
    }

    sszip_exchange_free(exchange);
}


int
main(int argc, char **argv)
{
    size_t               inner, outer;
    sszip_str            said;
    sszip_plan          *plan;
    sszip_place          place;
    sszip_rules          rules;
    const sszip_config  *config;

    check(argc == 5);

    check_directive_errors();
    check_plan();

    ok(sszip_plan_new(none, none, &plan));
    inner = 0;
    outer = 0;
    set(plan, &outer, "sszip", "on");
    set(plan, &inner, "sszip_min_length", "100");
    set(plan, &inner, "sszip_cache", "on");
    memset(&place, 0, sizeof(place));
    place.size = sizeof(place);
    ok(sszip_plan_add(plan, &inner, outer, &place, &rules, &said));
    check(rules.enable && rules.caches && rules.reads);
    check(rules.buffers == 2 && rules.buffer_size == 6144);
    config = rules.config;

    check_misuse(config);

    if (getenv("SSZIP_FAULT") == NULL || *getenv("SSZIP_FAULT") == 0) {
        /* what it expects is what happens when nothing fails */
        ok(sszip_plan_start(plan, 1));
        ok(sszip_plan_start(plan, 1));
        check_cache(config);
    }

    run(config, (size_t) atol(argv[1]), (size_t) atol(argv[2]), argv[3],
        strcmp(argv[4], "chunked") == 0);

    sszip_plan_free(plan);

    return 0;
}
