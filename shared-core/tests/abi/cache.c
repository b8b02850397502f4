/* calls that are coalesced, and the entries of their responses */

#include "host.h"


/* the head of a JSON-RPC call */

static sszip_request_head
call_head(sszip_header fields[2])
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
look_up(const sszip_config *config, const char *body, uintptr_t waiter,
    sszip_action *found)
{
    sszip_step           step;
    sszip_lookup_request          lookup;
    sszip_header          fields[2];
    sszip_exchange      *exchange;
    sszip_request_head   request;

    request = call_head(fields);

    memset(&lookup, 0, sizeof(lookup));
    lookup.size = sizeof(lookup);
    lookup.name_space = str("chain");
    lookup.body = str(body);
    lookup.body_state = SSZIP_BODY_WHOLE;
    lookup.now = 1000;
    lookup.coding_allowed = true;
    lookup.waiter = waiter;

    ok(sszip_exchange_new(config, &exchange));
    check(sszip_exchange_lookup(exchange, &lookup, &step)
          == SSZIP_STATUS_MISUSE);
    ok(sszip_exchange_request_head(exchange, &request));
    check(sszip_exchange_required_body(exchange, -1) == SSZIP_NEED_BODY);
    check(sszip_exchange_required_body(exchange, (int64_t) strlen(body))
          == SSZIP_NEED_LOOK_UP);

    lookup.size--;
    check(sszip_exchange_lookup(exchange, &lookup, &step)
          == SSZIP_STATUS_MISUSE);
    lookup.size++;
    check(sszip_exchange_lookup(exchange, NULL, &step)
          == SSZIP_STATUS_NULL);
    check(sszip_exchange_lookup(NULL, &lookup, &step) == SSZIP_STATUS_NULL);
    ok(sszip_exchange_lookup(exchange, &lookup, &step));
    check(sszip_exchange_required_body(exchange, -1)
          == (step.action == SSZIP_ACTION_WAIT ? SSZIP_NEED_LOOK_UP
                                        : SSZIP_NEED_NOTHING));

    check(!sszip_header_forbids_upstream(&fields[0]));
    fields[0].name = str("cache-control");
    fields[0].value = str("max-age=1, Only-If-Cached");
    check(sszip_header_forbids_upstream(&fields[0]));
    check(!sszip_header_forbids_upstream(NULL));

    *found = step.action;

    return exchange;
}


/* sends the node's response to the exchange, up to the point where it is sent on */

static void
answer(sszip_exchange *exchange, const char *body)
{
    uint8_t              *copy;
    sszip_str             piece;
    sszip_step            step;
    sszip_header           field;
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

    if (step.action == SSZIP_ACTION_OBSERVE) {
        ok(sszip_exchange_piece(exchange, piece, &step));
        check(step.action == SSZIP_ACTION_AWAIT);

    } else {
        check(step.action == SSZIP_ACTION_BUFFER);
        ok(sszip_exchange_piece(exchange, piece, &step));
        check(step.action == SSZIP_ACTION_AWAIT);
        ok(sszip_exchange_end(exchange, &step));
        check(step.action == SSZIP_ACTION_SEND);
    }

    free(copy);
}


/* reports the response as sent, which stores its fill */

static void
sent(sszip_exchange *exchange)
{
    check(sszip_exchange_response_sent(exchange, 1000) == NULL);
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


void
check_cache(const sszip_config *config)
{
    sszip_str            str1;
    sszip_action             found;
    sszip_step           step;
    sszip_header          fields[2];
    sszip_exchange      *first, *second, *third;
    sszip_request_head   post;

    check(sszip_next_wakeup() == 0);

    /* a leader and its follower, which both receive the response */

    first = look_up(config, CALL("1", "eth_chainId"), 11, &found);
    check(found == SSZIP_ACTION_FORWARD);
    check_status(first, "MISS");
    second = look_up(config, CALL("2", "eth_chainId"), 12, &found);
    check(found == SSZIP_ACTION_WAIT);
    third = look_up(config, CALL("3", "eth_chainId"), 13, &found);
    check(found == SSZIP_ACTION_WAIT);
    sszip_exchange_free(third);

    answer(first, ANSWER("1", "\"0x1\""));
    check(sszip_next_wakeup() == 0);
    sent(first);
    sszip_exchange_free(first);
    check(sszip_next_wakeup() == 12);
    check(sszip_next_wakeup() == 0);
    sszip_exchange_free(second);
    check(sszip_next_wakeup() == 0);

    second = look_up(config, CALL("\"x\"", "eth_chainId"), 12, &found);
    check(found == SSZIP_ACTION_RESPOND);
    check(sszip_exchange_status(second) == 200);
    check_status(second, "HIT");
    check_body(second, ANSWER("\"x\"", "\"0x1\""));
    check_variable(second, "sszip_rpc_method", "eth_chainId");
    check_variable(second, "sszip_batch_size", NULL);
    check_variable(second, "sszip_batch_hits", NULL);
    sszip_exchange_free(second);

    /* an exchange that is freed hands over to the next follower, sent or not */

    first = look_up(config, CALL("1", "eth_blockNumber"), 21, &found);
    second = look_up(config, CALL("2", "eth_blockNumber"), 22, &found);
    third = look_up(config, CALL("3", "eth_blockNumber"), 23, &found);
    answer(first, ANSWER("1", "\"0x1\""));
    check(sszip_next_wakeup() == 0);
    sszip_exchange_free(first);
    check(sszip_next_wakeup() == 22);
    sszip_exchange_free(second);
    check(sszip_next_wakeup() == 23);
    check(sszip_next_wakeup() == 0);
    sszip_exchange_free(third);
    check(sszip_next_wakeup() == 0);

    /* a batch with one hit */

    first = look_up(config, "[" CALL("1", "eth_syncing") "," CALL("2", "eth_chainId")
                "]", 31, &found);
    check(found == SSZIP_ACTION_FORWARD_REWRITTEN);
    str1 = sszip_exchange_request_body(first);
    check(str1.len == strlen("[" CALL("1", "eth_syncing") "]")
          && memcmp(str1.data, "[" CALL("1", "eth_syncing") "]", str1.len) == 0);
    check_variable(first, "sszip_rpc_method", "eth_syncing,eth_chainId");
    check_variable(first, "sszip_cache_key", NULL);
    check_variable(first, "sszip_batch_size", "2");
    check_variable(first, "sszip_batch_hits", "1");
    answer(first, "[" ANSWER("1", "false") "]");
    check_body(first, "[" ANSWER("1", "false") "," ANSWER("2", "\"0x1\"") "]");
    sent(first);
    sszip_exchange_free(first);

    /* no part of the response is stored */

    first = look_up(config, CALL("1", "eth_gasPrice"), 41, &found);
    second = look_up(config, CALL("2", "eth_gasPrice"), 42, &found);
    ok(sszip_exchange_no_store(first));
    check(sszip_next_wakeup() == 42);
    sszip_exchange_free(second);
    sszip_exchange_free(first);
    check(sszip_next_wakeup() == 0);

    check(sszip_exchange_required_body(NULL, 0) == SSZIP_NEED_NOTHING);

    /* a request that is too long stays too long */

    post = call_head(fields);
    ok(sszip_exchange_new(config, &first));
    ok(sszip_exchange_request_head(first, &post));
    check(sszip_exchange_required_body(first, INT64_MAX) == SSZIP_NEED_NOTHING);
    check(sszip_exchange_required_body(first, 10) == SSZIP_NEED_NOTHING);
    sszip_exchange_free(first);

    check(sszip_exchange_request_body(NULL).data == NULL);
    check(sszip_exchange_status(NULL) == 0);
    check(sszip_exchange_next_timer(NULL) < 0);
    check(!sszip_exchange_varies_on_accept_encoding(NULL));
    check(sszip_exchange_other_filters(NULL, true, false, true)
          == SSZIP_OTHER_FILTERS_NONE);
    check(!sszip_exchange_is_new_filter_detection(NULL));
    check(sszip_exchange_upstream_piece(NULL, NULL, 1, true, 0) == NULL);
    check(sszip_exchange_take_background_update(NULL) == NULL);
    check(sszip_exchange_piece(NULL, str("x"), &step) == SSZIP_STATUS_NULL);
    check(sszip_exchange_no_store(NULL) == SSZIP_STATUS_NULL);
    check(sszip_exchange_response_sent(NULL, 0) == NULL);
    check(sszip_job_run(NULL) == SSZIP_STATUS_NULL);
    check(sszip_job_store(NULL, 0) == SSZIP_STATUS_NULL);
    check(!sszip_job_has_store(NULL));

    /* a fill that is not taken is freed with its exchange */

    first = look_up(config, CALL("1", "eth_gasPrice"), 51, &found);
    answer(first, ANSWER("1", "\"0x1\""));
    sszip_exchange_free(first);
}
