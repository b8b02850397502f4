/*
 * sszip's core for hosts written in C.
 *
 * A function that can fail returns a sszip_status; its results come last and
 * are written only on SSZIP_STATUS_OK.  Objects are opaque: _new makes them,
 * _free ends them, _free(NULL) does nothing.  const means that nothing
 * changes.  Strings are pointer and length, never NUL-terminated.  An object
 * is used by one thread at a time, any thread.  No failure inside the library
 * unwinds into the host: where an answer can be saved the exchange gives up
 * and the original is sent; otherwise the call returns SSZIP_STATUS_PANIC.
 * A host that gets any other status than SSZIP_STATUS_OK before it has sent
 * the head passes the original on; after that it must cut the answer off
 * visibly.
 *
 * docs/exchange.md has the order of calls and a diagram.
 */

#ifndef SSZIP_H
#define SSZIP_H

/* Made from shared-core/src/ffi by the test `header`; do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 What became of a call. Values are never reused.
 */
typedef enum {
    /*
     Done; the results are written.
     */
    SSZIP_STATUS_OK = 0,
    /*
     A pointer that must not be NULL was.
     */
    SSZIP_STATUS_NULL = 1,
    /*
     The library failed inside. The object is only good for `_free`.
     */
    SSZIP_STATUS_PANIC = 2,
    /*
     The call is not allowed in the object's present state.
     */
    SSZIP_STATUS_MISUSE = 3,
    /*
     A directive's name or value was not accepted; a text says why.
     */
    SSZIP_STATUS_INVALID = 4,
    /*
     The stream encoder failed: the answer must be cut off visibly.
     */
    SSZIP_STATUS_ENCODER = 5,
    /*
     The body ended short of the length that the node gave: the answer must
     be cut off visibly.
     */
    SSZIP_STATUS_SHORT = 6,
    /*
     Memory was refused. Of `sszip_exchange_new`: the request passes without
     one; of others: there is nothing to send, and the answer is a failure.
     */
    SSZIP_STATUS_MEMORY = 7,
} sszip_status;

/*
 A field of a response head that a host knows by more than its name.
 */
typedef enum {
    /*
     None of these.
     */
    SSZIP_FIELD_OTHER = 0,
    /*
     `Accept-Ranges`
     */
    SSZIP_FIELD_ACCEPT_RANGES,
    /*
     `Cache-Control`
     */
    SSZIP_FIELD_CACHE_CONTROL,
    /*
     `Content-Encoding`
     */
    SSZIP_FIELD_CONTENT_ENCODING,
    /*
     `Content-Length`
     */
    SSZIP_FIELD_CONTENT_LENGTH,
    /*
     `Content-Type`
     */
    SSZIP_FIELD_CONTENT_TYPE,
    /*
     `ETag`
     */
    SSZIP_FIELD_ETAG,
    /*
     `Expires`
     */
    SSZIP_FIELD_EXPIRES,
    /*
     `Last-Modified`
     */
    SSZIP_FIELD_LAST_MODIFIED,
    /*
     `Location`
     */
    SSZIP_FIELD_LOCATION,
    /*
     `Vary`
     */
    SSZIP_FIELD_VARY,
    /*
     `WWW-Authenticate`
     */
    SSZIP_FIELD_WWW_AUTHENTICATE,
} sszip_known_field;

/*
 What a host is to do next.
 */
typedef enum {
    /*
     Nothing, until something happens: what was shown was taken.
     */
    SSZIP_DO_AWAIT = 0,
    /*
     Send the request to the node.
     */
    SSZIP_DO_FORWARD = 1,
    /*
     The same, with `sszip_exchange_request_body` as its body.
     */
    SSZIP_DO_FORWARD_REWRITTEN = 2,
    /*
     Send a stored answer: `sszip_exchange_status`, the head edits as the
     whole head, and `sszip_exchange_body`.
     */
    SSZIP_DO_RESPOND = 3,
    /*
     Look up again once `sszip_next_woken` names it, or after
     `sszip_exchange_next_timer`; perhaps to wait again.
     */
    SSZIP_DO_WAIT = 4,
    /*
     Make the head edits, send the head, let the body through.
     */
    SSZIP_DO_PASS = 5,
    /*
     The same, and show each piece of the body to `sszip_exchange_piece`.
     */
    SSZIP_DO_SHOW = 6,
    /*
     Keep the head back, and show the body to `sszip_exchange_piece`.
     */
    SSZIP_DO_HOLD = 7,
    /*
     Make the head edits, send the head, and the body through
     `sszip_exchange_stream`, with the piece that was shown last.
     */
    SSZIP_DO_STREAM = 8,
    /*
     Make the head edits, send the head and `sszip_exchange_body`, which is
     all of it.
     */
    SSZIP_DO_SEND = 9,
    /*
     The same, then the piece that was shown last, and the rest as it comes.
     */
    SSZIP_DO_SEND_THEN_PASS = 10,
    /*
     Run `job` on a thread that serves no connections, then
     `sszip_exchange_done`.
     */
    SSZIP_DO_RUN = 11,
    /*
     Nothing was sent, and there is nothing to send: answer 502. `why` says
     why.
     */
    SSZIP_DO_FAIL = 12,
} sszip_do;

/*
 What a look-up needs of the host.
 */
typedef enum {
    /*
     There will be none: send the request to the node.
     */
    SSZIP_NEED_NOTHING = 0,
    /*
     Nothing more: call `sszip_exchange_look_up`.
     */
    SSZIP_NEED_LOOK_UP = 1,
    /*
     The request's body: read it, then call `sszip_exchange_look_up`.
     */
    SSZIP_NEED_BODY = 2,
    /*
     The same, wherever the host keeps it: in a file, too.
     */
    SSZIP_NEED_WHOLE_BODY = 3,
} sszip_need;

/*
 What others of the host's filters make of an answer.
 */
typedef enum {
    /*
     Nothing.
     */
    SSZIP_BESIDE_NOTHING = 0,
    /*
     They change its body.
     */
    SSZIP_BESIDE_CHANGED = 1,
    /*
     The same, and all that the node sends of it is to be in memory when it is
     shown to `sszip_exchange_node_piece`.
     */
    SSZIP_BESIDE_APART = 2,
} sszip_beside;

/*
 What to do with a connection to the cache's owner.
 */
typedef enum {
    /*
     Nothing, with none of them.
     */
    SSZIP_LINK_NOTHING = 0,
    /*
     Open it, then `sszip_link_connected`.
     */
    SSZIP_LINK_CONNECT = 1,
    /*
     Write `sszip_link_output`, each time with `sszip_link_written`, until
     there is none.
     */
    SSZIP_LINK_WRITE = 2,
    /*
     Close it.
     */
    SSZIP_LINK_CLOSE = 3,
    /*
     Call `sszip_link_tick`.
     */
    SSZIP_LINK_TICK = 4,
} sszip_link_need;

/*
 How far `sszip_exchange_stream` is to bring a piece.
 */
typedef enum {
    /*
     It may keep some, to code it better with what follows.
     */
    SSZIP_FLUSH_NONE = 0,
    /*
     All that was given can be decoded from what is written.
     */
    SSZIP_FLUSH_SYNC = 1,
    /*
     It is the last piece.
     */
    SSZIP_FLUSH_FINISH = 2,
} sszip_flush;

/*
 How the node failed a request.
 */
typedef enum {
    /*
     By the status of its answer.
     */
    SSZIP_FAILURE_STATUS = 0,
    /*
     It went away before its answer's head.
     */
    SSZIP_FAILURE_ERROR = 1,
    /*
     It took too long.
     */
    SSZIP_FAILURE_TIMEOUT = 2,
    /*
     What it answered is not HTTP.
     */
    SSZIP_FAILURE_INVALID_HEADER = 3,
    /*
     No connection to it could be opened.
     */
    SSZIP_FAILURE_CONNECT = 4,
} sszip_failure;

/*
 What came of opening a connection to the cache's owner.
 */
typedef enum {
    /*
     It is open, or will be.
     */
    SSZIP_LINK_OPEN = 0,
    /*
     It could not be opened.
     */
    SSZIP_LINK_FAILED = 1,
    /*
     Nobody listens where the owner would: it was refused, or there is no
     socket.
     */
    SSZIP_LINK_ABSENT = 2,
} sszip_link_opened;

/*
 A request's body, as the host has it at a look-up.
 */
typedef enum {
    /*
     All of it is in memory, or there is none and none is needed.
     */
    SSZIP_BODY_WHOLE = 0,
    /*
     The host has not read it, and could.
     */
    SSZIP_BODY_UNREAD = 1,
    /*
     It could not be kept in memory, or read.
     */
    SSZIP_BODY_UNAVAILABLE = 2,
} sszip_request_body;

/*
 The settings of a place, ready for exchanges. Immutable.
 */
typedef struct sszip_config sszip_config;

/*
 One HTTP exchange: one a request. docs/exchange.md has the order of calls.
 */
typedef struct sszip_exchange sszip_exchange;

/*
 Work that takes too long for an event loop. It belongs to nobody but who has
 it, and can go to any thread.
 */
typedef struct sszip_job sszip_job;

/*
 A whole configuration: what each block of it says, and what each place has
 inherited.
 */
typedef struct sszip_plan sszip_plan;

/*
 Bytes that somebody else owns.
 */
typedef struct {
    /*
     NULL only if `len` is 0.
     */
    const uint8_t *data;
    /*
     Bytes.
     */
    size_t len;
} sszip_str;

/*
 A directive.
 */
typedef struct {
    /*
     `sizeof(sszip_directive)`, so that the struct may grow.
     */
    size_t size;
    /*
     As docs/directives.md has it.
     */
    sszip_str name;
    /*
     Its arguments.
     */
    const sszip_str *values;
    /*
     How many.
     */
    size_t nvalues;
    /*
     The file that it is in.
     */
    sszip_str file;
    /*
     The line there.
     */
    size_t line;
} sszip_directive;

/*
 A place, once all of it was read.
 */
typedef struct {
    /*
     `sizeof(sszip_place)`, so that the struct may grow.
     */
    size_t size;
    /*
     What people know it by.
     */
    sszip_str name;
    /*
     The text of its `sszip_cache_namespace`; NULL `data`: there is none.
     */
    sszip_str name_space;
    /*
     That has variables, whatever its text.
     */
    bool per_request;
    /*
     Requests end there.
     */
    bool answers;
    /*
     It purges.
     */
    bool purges;
    /*
     Which node its requests go to, as the configuration names it; NULL `data`:
     to none, or that is another one for each request.
     */
    sszip_str url;
    /*
     Fields of the node's answers that the host's own configuration hides from
     clients there. Places inside do not inherit them.
     */
    const sszip_str *hidden;
    /*
     How many.
     */
    size_t nhidden;
    /*
     How long a request body may be that the host keeps in memory, in bytes; 0: as long as
     its other limits allow.
     */
    uint64_t body_buffer;
    /*
     The node is asked by HTTP/1.0.
     */
    bool is_http_1_0;
} sszip_place;

/*
 What a host has to know of a place's settings.
 */
typedef struct {
    /*
     For `sszip_exchange_new`; the plan's, and freed with it.
     */
    const sszip_config *config;
    /*
     sszip acts there.
     */
    bool enable;
    /*
     Answers are cached there.
     */
    bool caches;
    /*
     Requests may be [needed](super::cache::sszip_exchange_need) before they are
     sent.
     */
    bool reads;
    /*
     No request with a body goes on there unless it was looked up.
     */
    bool judges;
    /*
     Requests may have [something to ask](super::cache::sszip_exchange_take_inquiry).
     */
    bool inquires;
    /*
     How many buffers a stream has at most.
     */
    size_t buffers;
    /*
     Bytes of each.
     */
    size_t buffer_size;
} sszip_rules;

/*
 A store of the host's own. Where a number is 0 the owner has its default.
 The strings are ended by NUL.
 */
typedef struct {
    /*
     Its folder, an absolute path. The owner of a store is to have it to itself.
     */
    sszip_str folder;
    /*
     The owner's socket in it.
     */
    sszip_str socket;
    /*
     Where the data are in it.
     */
    sszip_str data;
    /*
     What it may take on disk, in bytes.
     */
    uint64_t max_size;
    /*
     What entries may take in the owner's memory, in bytes.
     */
    uint64_t memory;
    /*
     The longest entry, in bytes.
     */
    uint64_t max_entry;
    /*
     For how long what nobody asks for is kept, in milliseconds.
     */
    uint64_t inactive;
    /*
     Entries are not made smaller before they go to the disk.
     */
    bool no_recompress;
    /*
     The heads that are to be followed, as the owner takes them. There are
     secrets in it.
     */
    sszip_str heads;
} sszip_store;

/*
 A header field.
 */
typedef struct {
    /*
     As it came, in any case.
     */
    sszip_str name;
    /*
     Without the white space around it.
     */
    sszip_str value;
} sszip_field;

/*
 A request head as the host saw it.
 */
typedef struct {
    /*
     `sizeof(sszip_request_head)`, so that the struct may grow.
     */
    size_t size;
    /*
     The method.
     */
    sszip_str method;
    /*
     Path and query, as the client sent them or, where the proxy has rewritten
     them, as that came out.
     */
    sszip_str target;
    /*
     All header fields, `Host` among them.
     */
    const sszip_field *fields;
    /*
     How many.
     */
    size_t nfields;
} sszip_request_head;

/*
 A change to a message head: the field shall have this value and no other.
 `value.data` NULL: the field shall go.
 */
typedef struct {
    /*
     As it is to be written.
     */
    sszip_str name;
    /*
     NULL `data` removes the field.
     */
    sszip_str value;
    /*
     Which field that is.
     */
    sszip_known_field field;
} sszip_edit;

/*
 A response head as the host saw it.
 */
typedef struct {
    /*
     `sizeof(sszip_response_head)`, so that the struct may grow.
     */
    size_t size;
    /*
     All header fields. `Content-Length` may be among them or not.
     */
    const sszip_field *fields;
    /*
     How many.
     */
    size_t nfields;
    /*
     Length of the body in bytes, or negative where the head does not give
     it.
     */
    int64_t content_length;
    /*
     The wall clock, in seconds since 1970.
     */
    uint64_t now;
    /*
     The status code.
     */
    uint16_t status;
    /*
     A body without a length ends visibly (chunked, HTTP/2), not with its
     connection.
     */
    bool delimited;
    /*
     The operator wants pieces to go through as they come.
     */
    bool unbuffered;
    /*
     The answer becomes a part of another one.
     */
    bool subrequest;
    /*
     The host's own rules allow a content coding here.
     */
    bool coding_allowed;
    /*
     The host writes `Vary: Accept-Encoding` itself.
     */
    bool host_writes_vary;
} sszip_response_head;

/*
 What a host is to do next, and with what.
 */
typedef struct {
    /*
     What to do.
     */
    sszip_do act;
    /*
     The host's own from here on; NULL unless it is to be run.
     */
    sszip_job *job;
    /*
     For logs, ended by NUL; static. NULL unless the answer fails.
     */
    const char *why;
} sszip_step;

/*
 What a call of `sszip_exchange_stream` did.
 */
typedef struct {
    /*
     Bytes of the piece that were taken.
     */
    size_t consumed;
    /*
     Bytes that were written.
     */
    size_t written;
    /*
     All was taken, and flushed as asked. If not, there was no room: call
     again with what is left and the same flush.
     */
    bool complete;
} sszip_progress;

/*
 A look-up of stored answers.
 */
typedef struct {
    /*
     `sizeof(sszip_asked)`, so that the struct may grow.
     */
    size_t size;
    /*
     What keeps answers of one chain apart from those of another; NULL
     `data`: which node the place passes requests to, `port`, `host` and the
     request's target.
     */
    sszip_str name_space;
    /*
     Which node that is, as the configuration names it, if each request has its
     own; NULL `data`: the place's.
     */
    sszip_str url;
    /*
     The host that is asked, as the proxy itself reads it.
     */
    sszip_str host;
    /*
     The port on which the proxy was asked.
     */
    uint16_t port;
    /*
     The request's body, if it is whole; else as much of its beginning as is in memory.
     */
    sszip_str body;
    /*
     What the host has of it: one of `sszip_request_body`.
     */
    uint32_t body_is;
    /*
     Milliseconds of `CLOCK_MONOTONIC`, read for this event, here and
     wherever else there is a `now` of this type.
     */
    uint64_t now;
    /*
     What is stored is not to be sent; the node's answer replaces it.
     */
    bool bypass;
    /*
     By what `sszip_next_woken` is to name this request; 0: it will not
     wait.
     */
    size_t waiter;
    /*
     The host's own rules allow a content coding here.
     */
    bool coding_allowed;
    /*
     Of a batch the node is to be asked for all or nothing.
     */
    bool whole;
    /*
     The host has other filters, which may change bodies, and calls
     `sszip_exchange_beside`.
     */
    bool filters;
    /*
     The host writes `Vary: Accept-Encoding` itself.
     */
    bool host_writes_vary;
    /*
     The host's configuration tells the node which codings the client accepts,
     whatever the upstream edits say.
     */
    bool forwards_codings;
    /*
     Nothing tells the place from others that pass the same requests elsewhere: without
     a `name_space` it is not looked up.
     */
    bool unnamed;
} sszip_asked;

/*
 Where the workers of a host count.
 */
typedef struct {
    /*
     `sizeof(sszip_board)`, so that the struct may grow.
     */
    size_t size;
    /*
     `sszip_board_length()` bytes that all of them share.
     */
    void *memory;
    /*
     Which of them this one is: no other that lives at that time has the same number.
     */
    size_t worker;
    /*
     The host and its version: "nginx/1.22.1".
     */
    sszip_str host;
} sszip_board;

/*
 Which SSZ type; what is empty was not said.
 */
typedef struct {
    /*
     As the specs write it; or a method of JSON-RPC, or the path of a route of the
     Beacon API, for what that gives.
     */
    sszip_str name;
    /*
     Of which fork.
     */
    sszip_str fork;
    /*
     Of which preset.
     */
    sszip_str preset;
    /*
     Of JSON, what it is: "value", "answer" or "auto".
     */
    sszip_str form;
    /*
     Of SSZ, which part is meant.
     */
    sszip_str path;
} sszip_what;

/*
 A call of a request. What it points at lies in the request's body.
 */
typedef struct {
    /*
     The method's name.
     */
    sszip_str method;
    /*
     The id, raw JSON; NULL `data`: there is none.
     */
    sszip_str id;
    /*
     The same of the params.
     */
    sszip_str params;
} sszip_call;

/*
 Something that was counted.
 */
typedef struct {
    /*
     What it is.
     */
    sszip_str name;
    /*
     How many.
     */
    uint64_t number;
} sszip_figure;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The version that this is. Static.
 */
sszip_str sszip_version(void);

/*
 What compresses on this machine, for logs. To be called after any fork.
 Static.
 */
sszip_str sszip_coders(void);

/*
 Nothing yet. A folder that is not absolute is one in `prefix`, other files are
 in `file_prefix`.

 # Safety
 The strings are valid; `out` points at memory of its type.
 */
sszip_status sszip_plan_new(sszip_str prefix,
                            sszip_str file_prefix,
                            sszip_plan **out);

/*
 Takes a directive for the block `*block`; 0: that has said nothing yet, and gets
 its number.

 On `SSZIP_STATUS_INVALID` `said` goes on from the directive's name and says
 what is allowed, for the operator; nothing has changed then. On
 `SSZIP_STATUS_OK` it says what the operator should know of the directive all
 the same, and is empty where there is nothing. Valid until the next call.

 # Safety
 `plan` is NULL or from `sszip_plan_new` and not freed; `block` points at a
 number of that plan or 0; `directive` is NULL or valid with all that it points
 at; `said` points at memory of its type.
 */
sszip_status sszip_plan_set(sszip_plan *plan,
                            size_t *block,
                            const sszip_directive *directive,
                            sszip_str *said);

/*
 Adds the place that the block `*block` makes, inside of the block `outer`, and
 says what is to be known of it. 0: a block that says nothing; `*block` gets a
 number then.

 On `SSZIP_STATUS_INVALID` `said` is what is wrong, for the operator, with
 the place in the configuration; on `SSZIP_STATUS_OK` what the operator should
 know all the same, or empty. Valid until the next call.

 # Safety
 `plan` is NULL or from `sszip_plan_new` and not freed; `block` points at a
 number of that plan or 0, which `outer` is, too; `place` is NULL or valid with
 all that it points at; the results point at memory of their type.
 */
sszip_status sszip_plan_add(sszip_plan *plan,
                            size_t *block,
                            size_t outer,
                            const sszip_place *place,
                            sszip_rules *rules,
                            sszip_str *said);

/*
 Adds servers that the configuration names together, and `url`s of places by
 that name.

 # Safety
 `plan` is NULL or from `sszip_plan_new` and not freed; `servers` are `nservers`
 valid strings, and `name` is one.
 */
sszip_status sszip_plan_add_upstream(sszip_plan *plan,
                                     sszip_str name,
                                     const sszip_str *servers,
                                     size_t nservers);

/*
 Whether all of it goes together, once all was added. `said` is as of
 `sszip_plan_add`.

 # Safety
 `plan` is NULL or from `sszip_plan_new` and not freed; `said` points at
 memory of its type.
 */
sszip_status sszip_plan_check(sszip_plan *plan, sszip_str *said);

/*
 After `sszip_plan_check`: where the owner of a store listens, "unix:" and a path,
 ended by NUL; empty: there is none. Valid as long as the plan.

 # Safety
 `plan` is NULL or from `sszip_plan_new` and not freed.
 */
sszip_str sszip_plan_owner(const sszip_plan *plan);

/*
 Prepares the process that will serve, one of `processes`, after any fork:
 makes the hot tier, with its share of `cache_memory`, if there is a cache,
 opens what would else be opened when it is needed first, and there may be no
 memory, sets how the C library keeps what is freed, and joins the owner of a
 store, to which `sszip_link_tick` opens the connections. A second call changes
 nothing. Without it nothing is cached.

 # Safety
 `plan` is NULL or from `sszip_plan_new` and not freed.
 */
sszip_status sszip_plan_start(const sszip_plan *plan,
                              size_t processes);

/*
 After `sszip_plan_check`: the host's own store, and all that its owner is to
 know, valid as long as the plan. `SSZIP_STATUS_MISUSE`: there is none.

 # Safety
 `plan` is NULL or from `sszip_plan_new` and not freed; `out` points at
 memory of its type.
 */
sszip_status sszip_plan_store(const sszip_plan *plan,
                              sszip_store *out);

/*
 What was made from it goes on.

 # Safety
 `plan` is NULL or from `sszip_plan_new` and not freed.
 */
void sszip_plan_free(sszip_plan *plan);

/*
 A new exchange at a place with these settings. `SSZIP_STATUS_MEMORY` while
 the process is short of memory.

 # Safety
 `config` is NULL or from `sszip_config_new` and not freed.
 */
sszip_status sszip_exchange_new(const sszip_config *config,
                                sszip_exchange **out);

/*
 Ends an exchange; what its functions gave out ends with it.

 # Safety
 `exchange` is NULL or from `sszip_exchange_new` and not freed.
 */
void sszip_exchange_free(sszip_exchange *exchange);

/*
 The client's request head. Copies what it needs.

 # Safety
 `exchange` is NULL or valid; `head` is NULL or valid with all that it
 points at.
 */
sszip_status sszip_exchange_request_head(sszip_exchange *exchange,
                                         const sszip_request_head *head);

/*
 Changes to the head that the node gets. The list is valid until the next
 call of an `_edits` function, its strings until `sszip_exchange_free`.

 # Safety
 `exchange` is NULL or valid; the results point at memory of their type.
 */
sszip_status sszip_exchange_upstream_edits(sszip_exchange *exchange,
                                           const sszip_edit **edits,
                                           size_t *nedits);

/*
 The response head. Copies what it needs. If the library fails inside, the
 response passes without an edit, or, if it is to a part of a batch, is held
 for a 502; to a request that takes SSZ only, where JSON could be made that, it
 is `SSZIP_DO_FAIL`.

 # Safety
 `exchange` is NULL or valid; `head` is NULL or valid with all that it
 points at; `step` points at memory of its type.
 */
sszip_status sszip_exchange_response_head(sszip_exchange *exchange,
                                          const sszip_response_head *head,
                                          sszip_step *step);

/*
 The host has no memory to show the response head. What comes of it is as if
 the library had failed inside.

 # Safety
 `exchange` is NULL or valid; `step` points at memory of its type.
 */
sszip_status sszip_exchange_no_response_head(sszip_exchange *exchange,
                                             sszip_step *step);

/*
 A piece of the body, after `SSZIP_DO_HOLD` and `SSZIP_DO_SHOW`. Copies it.
 If the library fails inside, the exchange gives up.

 # Safety
 `exchange` is NULL or valid, `piece` a valid string; `step` points at
 memory of its type.
 */
sszip_status sszip_exchange_piece(sszip_exchange *exchange,
                                  sszip_str piece,
                                  sszip_step *step);

/*
 The time to hold a head is over, or the node flushes. On `SSZIP_DO_AWAIT`
 the host goes on holding.

 # Safety
 `exchange` is NULL or valid; `step` points at memory of its type.
 */
sszip_status sszip_exchange_release(sszip_exchange *exchange,
                                    sszip_step *step);

/*
 After `SSZIP_DO_HOLD`, how many bytes of the body it is best to read at once; 0:
 as many as the host reads by itself.

 # Safety
 `exchange` is NULL or valid.
 */
size_t sszip_exchange_read_size(const sszip_exchange *exchange);

/*
 In how many milliseconds the host is to call `sszip_exchange_release`, or to
 flush a stream that has been given all there is, or, after `SSZIP_DO_WAIT`, to
 look up again, or to drop what was to be asked; negative: it may wait for what comes.

 # Safety
 `exchange` is NULL or valid.
 */
int64_t sszip_exchange_next_timer(const sszip_exchange *exchange);

/*
 Codes what was held, then `piece`, into `output`, as much as there is room
 for. `flush` is an `sszip_flush`. On any status but `SSZIP_STATUS_OK` the
 answer must be cut off visibly.

 # Safety
 `exchange` is NULL or valid, `piece` a valid string; `output` has room for
 `room` bytes; `progress` points at memory of its type.
 */
sszip_status sszip_exchange_stream(sszip_exchange *exchange,
                                   sszip_str piece,
                                   uint32_t flush,
                                   uint8_t *output,
                                   size_t room,
                                   sszip_progress *progress);

/*
 The host saw the end of a held body. If the library fails inside, the
 exchange gives up, or fails if the body is known not to be whole.

 # Safety
 `exchange` is NULL or valid; `step` points at memory of its type.
 */
sszip_status sszip_exchange_end(sszip_exchange *exchange, sszip_step *step);

/*
 The node has broken its response off while the head is held: what can be sent all the
 same.

 # Safety
 `exchange` is NULL or valid; `step` points at memory of its type.
 */
sszip_status sszip_exchange_end_early(sszip_exchange *exchange,
                                      sszip_step *step);

/*
 The node went away while the head is held or the body streams.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_status sszip_exchange_cut_short(sszip_exchange *exchange);

/*
 Changes to the head that the client gets. The list is valid until the next
 call of an `_edits` function, its strings until `sszip_exchange_free`.

 # Safety
 `exchange` is NULL or valid; the results point at memory of their type.
 */
sszip_status sszip_exchange_head_edits(sszip_exchange *exchange,
                                       const sszip_edit **edits,
                                       size_t *nedits);

/*
 Whether the answer depends on `Accept-Encoding`: a host that writes that
 `Vary` itself is to do so.

 # Safety
 `exchange` is NULL or valid.
 */
bool sszip_exchange_varies(const sszip_exchange *exchange);

/*
 What a cache between the exchange and the node should tell answers apart
 by: the node's `Vary` value without the fields that the upstream edits make
 the same for every request. Valid until the next call or
 `sszip_exchange_free`.

 # Safety
 `exchange` is NULL or valid, `vary` a valid string; `out` points at memory
 of its type.
 */
sszip_status sszip_exchange_upstream_vary(sszip_exchange *exchange,
                                          sszip_str vary,
                                          sszip_str *out);

/*
 Bytes to send right after the head, in pieces. The list is valid until the
 next call, the bytes until `sszip_exchange_free`.

 # Safety
 `exchange` is NULL or valid; the results point at memory of their type.
 */
sszip_status sszip_exchange_body(sszip_exchange *exchange,
                                 const sszip_str **pieces,
                                 size_t *npieces);

/*
 What a look-up needs, of a request with a body of `length` bytes; 0: it has
 none; negative: that will be known at its end. Asked again after
 `SSZIP_NEED_BODY` or `SSZIP_NEED_WHOLE_BODY`, it has been read; after the look-up nothing is needed,
 unless it is to be made again.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_need sszip_exchange_need(sszip_exchange *exchange,
                               int64_t length);

/*
 Takes the memory for a copy of the request's body, of so many bytes, which the host
 has in several places and makes for the look-up: it is given back when that has been
 done. `false`: there is not enough, and the look-up is without a body.

 # Safety
 `exchange` is NULL or valid.
 */
bool sszip_exchange_take_room(sszip_exchange *exchange,
                              size_t bytes);

/*
 Looks for stored answers to the request. If the library fails inside, the
 request goes to the node.

 # Safety
 `exchange` is NULL or valid; `asked` is NULL or valid with all that it
 points at; `step` points at memory of its type.
 */
sszip_status sszip_exchange_look_up(sszip_exchange *exchange,
                                    const sszip_asked *asked,
                                    sszip_step *step);

/*
 Purges what `query` says (docs/caching.md, Purging), instead of a look-up, and
 with steps of one. `method` is the request's; of `asked`, `name_space` is where
 the query does not say it, and `waiter` must not be 0.

 # Safety
 `exchange` is NULL or valid, `method` and `query` are valid strings; `asked` is
 NULL or valid with all that it points at; `step` points at memory of its type.
 */
sszip_status sszip_exchange_purge(sszip_exchange *exchange,
                                  sszip_str method,
                                  sszip_str query,
                                  const sszip_asked *asked,
                                  sszip_step *step);

/*
 After a look-up that found something: an exchange that awaits the response
 head of a request like this one, which the host is to make in the background;
 NULL: none is to be made. It is freed like any other.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_exchange *sszip_exchange_take_update(sszip_exchange *exchange);

/*
 Before anything else becomes of the request: an exchange that awaits the response
 head of a GET without a body, which the host is to make in the background, to
 `sszip_exchange_path_of_inquiry` of this request's path; NULL: none is to be made.
 To be called until then. `url` is where the request goes, if each has its own; NULL
 `data`: the place's. If `sszip_exchange_next_timer` is over before there is an answer,
 the host drops it. It is freed like any other.

 # Safety
 `exchange` is NULL or valid, `url` a valid string.
 */
sszip_exchange *sszip_exchange_take_inquiry(sszip_exchange *exchange,
                                            sszip_str url,
                                            uint64_t now);

/*
 Of an exchange of `sszip_exchange_take_inquiry`: the path that is to be asked in
 place of `path`, which is the request's. Valid until the next call, or
 `sszip_exchange_free`. `SSZIP_STATUS_MISUSE`: there is none.

 # Safety
 `exchange` is NULL or valid, `path` a valid string; `out` points at memory of its
 type.
 */
sszip_status sszip_exchange_path_of_inquiry(sszip_exchange *exchange,
                                            sszip_str path,
                                            sszip_str *out);

/*
 The node fails the request: to be said before the head of what the client
 would get, of which `status` is the status. `failure` is an `sszip_failure`.
 Whether a stored answer will be sent in its place.

 # Safety
 `exchange` is NULL or valid; `stands_in` points at memory of its type.
 */
sszip_status sszip_exchange_fails(sszip_exchange *exchange,
                                  uint32_t failure,
                                  uint16_t status,
                                  uint64_t now,
                                  bool *stands_in);

/*
 The same as `sszip_exchange_fails` would say; nothing is said.

 # Safety
 `exchange` is NULL or valid; `stands_in` points at memory of its type.
 */
sszip_status sszip_exchange_would_stand_in(sszip_exchange *exchange,
                                           uint32_t failure,
                                           uint16_t status,
                                           uint64_t now,
                                           bool *stands_in);

/*
 The body of the request that goes to the node, after
 `SSZIP_DO_FORWARD_REWRITTEN`. Valid until `sszip_exchange_free`.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_str sszip_exchange_request_body(const sszip_exchange *exchange);

/*
 Path and query of what the node is to be asked for, after
 `SSZIP_DO_FORWARD_REWRITTEN`; none: those that were shown. Valid until
 `sszip_exchange_free`.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_str sszip_exchange_request_target(const sszip_exchange *exchange);

/*
 The status of a stored answer; 0: there is none.

 # Safety
 `exchange` is NULL or valid.
 */
uint16_t sszip_exchange_status(const sszip_exchange *exchange);

/*
 Nothing of the answer is to be stored: the operator says so
 (`sszip_no_cache`).

 # Safety
 `exchange` is NULL or valid.
 */
sszip_status sszip_exchange_no_store(sszip_exchange *exchange);

/*
 The host has rewritten where the node's answer points to, for this client:
 it is not stored.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_status sszip_exchange_redirected(sszip_exchange *exchange);

/*
 All of the answer is with the host: what is to be stored of it is, or a job
 is to be run for that, and ends with `sszip_job_store`; NULL: nothing is left
 to do. `sszip_next_woken` may have something to say then.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_job *sszip_exchange_sent(sszip_exchange *exchange,
                               uint64_t now);

/*
 The response head as the node sent it, before the host has hidden, added or
 changed anything; before `sszip_exchange_response_head`, where the host can
 tell. If its status says that the node fails, and `sszip_exchange_fails` was
 not called, `failure`, an `sszip_failure`, says how. `replaced`: a stored answer
 takes the place of the node's, with `sszip_exchange_status` and the head edits
 as the whole head.

 # Safety
 `exchange` is NULL or valid; `head` is NULL or valid with all that it
 points at; `replaced` points at memory of its type.
 */
sszip_status sszip_exchange_node_head(sszip_exchange *exchange,
                                      const sszip_response_head *head,
                                      uint32_t failure,
                                      uint64_t now,
                                      bool *replaced);

/*
 Of an answer whose head is about to be shown to
 `sszip_exchange_response_head`, or of a stored one that is about to be sent:
 whether others of the host's filters change the body, as it seems, whether
 they code it, and whether its head gives its length.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_beside sszip_exchange_beside(sszip_exchange *exchange,
                                   bool changes,
                                   bool codes,
                                   bool has_length);

/*
 Whether it was seen, and not known before, that others change bodies at this
 place: the operator should know. To be asked after `sszip_exchange_beside` and
 `sszip_exchange_sent`; it is said once.

 # Safety
 `exchange` is NULL or valid.
 */
bool sszip_exchange_is_news(sszip_exchange *exchange);

/*
 So many bytes of the body as the node sent it, after
 `sszip_exchange_node_head`, and before anybody has changed it; `data` is NULL
 where they are not in memory. `last`: that is its end. What comes of it is as of
 `sszip_exchange_sent`.

 # Safety
 `exchange` is NULL or valid; `data` points at `len` bytes or is NULL.
 */
sszip_job *sszip_exchange_node_piece(sszip_exchange *exchange,
                                     const uint8_t *data,
                                     size_t len,
                                     bool last,
                                     uint64_t now);

/*
 The fields of a stored answer's head as they have become on their way to the
 client; if others change its body it is sent in identity after all. Asks for
 the head edits and the body anew. `SSZIP_STATUS_MEMORY`: it can't be sent.

 # Safety
 `exchange` is NULL or valid; `fields` are `nfields` fields of valid strings.
 */
sszip_status sszip_exchange_stored_head(sszip_exchange *exchange,
                                        const sszip_field *fields,
                                        size_t nfields);

/*
 Whether an answer of that media type and length (negative: not known) would
 be coded, or is a stored one that is, or a part of a batch: until then it is
 not for other coders. `false` for NULL.

 # Safety
 `exchange` is NULL or valid, `content_type` a valid string.
 */
bool sszip_exchange_would_code(const sszip_exchange *exchange,
                               sszip_str content_type,
                               int64_t length);

/*
 Whether something is to be stored of the answer that is awaited: it is
 worth having even when the client has gone. `false` for NULL.

 # Safety
 `exchange` is NULL or valid.
 */
bool sszip_exchange_is_filling(const sszip_exchange *exchange);

/*
 Nothing more comes of the exchange, and nobody waits for it; what it gave out
 is valid until `sszip_exchange_free`.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_status sszip_exchange_abandon(sszip_exchange *exchange);

/*
 A line for the error log, about hits that were verified: as much of it as there is
 room for is written to `text`, and its length is given back; 0: there is none. To be
 asked until then after something was stored.

 # Safety
 `text` is NULL, or `size` bytes can be written there.
 */
size_t sszip_next_line(uint8_t *text,
                       size_t size);

/*
 Writes what others have said for a line of a log, without what would begin another line
 or steer a terminal: as much of it as there is room for. Its length is given back.

 # Safety
 `said` is a valid string; `text` is NULL, or `size` bytes can be written there.
 */
size_t sszip_log_text(sszip_str said,
                      uint8_t *text,
                      size_t size);

/*
 A request that waits and is to be looked up again: its `waiter`, or 0. To
 be asked until 0 after something was stored and after an exchange was freed.
 */
size_t sszip_next_woken(void);

/*
 How many jobs a process should run at once, at most; the others wait. To be asked
 after any fork, once the process is bound to its processors.
 */
size_t sszip_jobs_at_once(void);

/*
 Runs it, milliseconds for each megabyte. If the library fails inside, the
 answer is the original, or nothing is stored.

 # Safety
 `job` is NULL or valid, and no other thread uses it now.
 */
sszip_status sszip_job_run(sszip_job *job);

/*
 Whether it is worth running when its client has gone. `false` for NULL.

 # Safety
 `job` is NULL or valid, and no other thread uses it now.
 */
bool sszip_job_is_to_be_stored(const sszip_job *job);

/*
 Of a job that no exchange waits for, once it has run: stores what it has
 made, and frees it. `sszip_next_woken` may have something to say then.

 # Safety
 `job` is NULL or valid; it is not to be used any more.
 */
sszip_status sszip_job_store(sszip_job *job, uint64_t now);

/*
 To be called before `sszip_exchange_free`, once nothing more is used that the
 exchange gave out: a job that forgets a long answer, since that takes a tenth of a
 millisecond for each megabyte, or NULL. It ends with `sszip_job_store`.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_job *sszip_exchange_last_job(sszip_exchange *exchange);

/*
 The job that the exchange asked for with `SSZIP_DO_RUN` has run. Frees it.

 # Safety
 `exchange` and `job` are NULL or valid, and the job is of that exchange; it
 is not to be used any more. `step` points at memory of its type.
 */
sszip_status sszip_exchange_done(sszip_exchange *exchange,
                                 sszip_job *job,
                                 sszip_step *step);

/*
 The bytes of memory that tell all workers of a host which heads are over.
 */
size_t sszip_heads_length(void);

/*
 Shares that memory with the host's other workers: to be called after the process is
 configured, and before it serves.

 # Safety
 `memory` is NULL or `sszip_heads_length()` bytes that were zeroed before any process had
 them, aligned for `uint64_t`, and that stay until the process ends.
 */
sszip_status sszip_heads_share(void *memory);

/*
 What the host is to do with the connection `slot`, a small number. To be
 asked until `SSZIP_LINK_NOTHING` after each call that changes something:
 look-ups, fills, frees and the other functions of the link.

 # Safety
 `slot` points at memory of its type.
 */
sszip_link_need sszip_link_next(size_t *slot);

/*
 The connection was tried at `now`; `opened`, an `sszip_link_opened`, says what
 came of it.
 */
sszip_status sszip_link_connected(size_t slot,
                                  uint32_t opened,
                                  uint64_t now);

/*
 What is to be written to the connection: up to `room` pieces, one after the
 other, and in `count` how many there are; 0: nothing is. Valid until the next
 call of a function of the link.

 # Safety
 `out` points at memory for `room` of its type, `count` at memory of its type.
 */
sszip_status sszip_link_output(size_t slot,
                               sszip_str *out,
                               size_t room,
                               size_t *count);

/*
 So many bytes of it are written.
 */
sszip_status sszip_link_written(size_t slot, size_t bytes);

/*
 Room for bytes from the connection, until the next call of a function of
 the link.

 # Errors
 `SSZIP_STATUS_MISUSE`: there is none; close it.

 # Safety
 The results point at memory of their type.
 */
sszip_status sszip_link_room(size_t slot, uint8_t **data, size_t *len);

/*
 So many bytes came into the room.

 # Safety
 They are written, and no other function of the link was called since
 `sszip_link_room`.
 */
sszip_status sszip_link_filled(size_t slot, size_t bytes, uint64_t now);

/*
 The connection is closed, by the owner or by the host.
 */
sszip_status sszip_link_closed(size_t slot, uint64_t now);

/*
 Sends what was asked, ends what took too long, and says after how many
 milliseconds it is to be called again at the latest; 0: never.
 */
uint64_t sszip_link_tick(uint64_t now);

/*
 What the operator should know of the owner: once when it has not answered for
 some seconds (`is_bad`), and when it answers again. To be asked after
 `sszip_link_tick`; empty: nothing. Static; it goes on from the owner's name.

 # Safety
 `is_bad` points at memory of its type.
 */
sszip_str sszip_link_news(uint64_t now,
                          bool *is_bad);

/*
 The bytes that counters take.
 */
size_t sszip_board_length(void);

/*
 Before anything is counted in memory that is zeroed, or has counters already: those
 stay if they are this version's.

 # Safety
 `memory` is NULL or that of [`sszip_board`], aligned for `uint64_t`, and used for
 nothing else from here on.
 */
sszip_status sszip_board_begin(void *memory);

/*
 Counts an exchange of which no more comes, once.

 # Safety
 `exchange` is NULL or valid; `board` is NULL or valid, and what it points at was begun.
 */
sszip_status sszip_exchange_count(sszip_exchange *exchange,
                                  const sszip_board *board);

/*
 Counts the verified hits and upstream errors of the process since the last call, and the last
 exchange that was counted, and shows what its requests take of memory and how many wait: no
 client may come to this worker after that for long. To be called whenever the host's loop has handled an event that an exchange
 may have ended with, and when a request begins to wait.

 # Safety
 `board` is as of `sszip_exchange_count`.
 */
sszip_status sszip_board_refresh(const sszip_board *board);

/*
 Shows that a worker has nothing in memory: to be called when it begins, since another one may
 have died in its place, and when it ends. What it counted stays.

 # Safety
 `board` is as of `sszip_exchange_count`.
 */
sszip_status sszip_board_clear(const sszip_board *board);

/*
 Answers a request to see how it all goes, instead of a look-up, and with steps of one.
 `method` is the request's, and of `asked` `waiter` must not be 0.

 # Safety
 `exchange` is NULL or valid, `method` and `query` are valid strings; `asked` is NULL or
 valid with all that it points at; `board` is as of `sszip_exchange_count`; `step` points
 at memory of its type.
 */
sszip_status sszip_exchange_tell_status(sszip_exchange *exchange,
                                        sszip_str method,
                                        sszip_str query,
                                        const sszip_asked *asked,
                                        const sszip_board *board,
                                        sszip_step *step);

/*
 Frees what this thread was given last.
 */
void sszip_given_free(void);

/*
 The value that a program keeps under a name in this process's memory; NULL `data`:
 there is none.

 # Safety
 `name` is a valid string; `out` points at memory of its type.
 */
sszip_status sszip_kept_get(sszip_str name,
                            uint64_t now,
                            sszip_str *out);

/*
 Keeps a value for `ttl` milliseconds. `out` is the request to the owner of a store, to
 be sent as it is, that gives it the value; NULL `data`: there is no owner.

 # Safety
 `name` and `value` are valid strings; `out` points at memory of its type.
 */
sszip_status sszip_kept_set(sszip_str name,
                            sszip_str value,
                            uint64_t ttl,
                            uint64_t now,
                            sszip_str *out);

/*
 Forgets a value. `out` is the request to the owner that purges it everywhere; NULL
 `data`: there is no owner.

 # Safety
 `name` is a valid string; `out` points at memory of its type.
 */
sszip_status sszip_kept_delete(sszip_str name,
                               sszip_str *out);

/*
 The request that looks a value up with the owner, and the `generation` that
 `sszip_kept_take` has to know; NULL `data`: there is no owner.

 # Safety
 `name` is a valid string; the results point at memory of their type.
 */
sszip_status sszip_kept_look_up(sszip_str name,
                                sszip_str *out,
                                uint64_t *generation);

/*
 What the owner has answered to that, head and body: the value, as `sszip_kept_get`
 gives it.

 # Safety
 The strings are valid; `out` points at memory of its type.
 */
sszip_status sszip_kept_take(sszip_str name,
                             sszip_str head,
                             sszip_str body,
                             uint64_t generation,
                             uint64_t now,
                             sszip_str *out);

/*
 The answer of a node that is stored in this process's memory under `key`, 64 hex digits,
 to a call under `id`, raw JSON; NULL `data`: there is none.

 # Safety
 The strings are valid; `out` points at memory of its type.
 */
sszip_status sszip_stored_get(sszip_str key,
                              sszip_str id,
                              uint64_t now,
                              sszip_str *out);

/*
 The request to the owner that purges what `query` says (docs/caching.md, Purging); NULL
 `data`: there is no owner.

 # Safety
 `query` is a valid string; `out` points at memory of its type.
 */
sszip_status sszip_purge_request(sszip_str query,
                                 sszip_str *out);

/*
 The head of an answer of the owner's, up to its empty line: its status, and how many
 bytes the body has.

 # Safety
 `head` is a valid string; the results point at memory of their type.
 */
sszip_status sszip_owner_head(sszip_str head,
                              uint16_t *status,
                              size_t *length);

/*
 `data` as one gzip member, by a level of 0 to 12.

 # Safety
 `data` is a valid string; `out` points at memory of its type.
 */
sszip_status sszip_gzip(sszip_str data, uint8_t level, sszip_str *out);

/*
 What gzip members were made of, at most `most` bytes.

 # Safety
 `data` is a valid string; `out` points at memory of its type.
 */
sszip_status sszip_gunzip(sszip_str data, size_t most, sszip_str *out);

/*
 SSZ of JSON.

 # Safety
 `what` is NULL or valid with all that it points at, `json` a valid string; `out` points at
 memory of its type.
 */
sszip_status sszip_json_to_ssz(const sszip_what *what,
                               sszip_str json,
                               sszip_str *out);

/*
 JSON of SSZ.

 # Safety
 As of `sszip_json_to_ssz`.
 */
sszip_status sszip_ssz_to_json(const sszip_what *what,
                               sszip_str ssz,
                               sszip_str *out);

/*
 Whether SSZ is a value of the type, by each rule: `out` is empty then.

 # Safety
 As of `sszip_json_to_ssz`.
 */
sszip_status sszip_ssz_check(const sszip_what *what,
                             sszip_str ssz,
                             sszip_str *out);

/*
 The root of SSZ, `0x` and 64 hex digits.

 # Safety
 As of `sszip_json_to_ssz`.
 */
sszip_status sszip_ssz_root(const sszip_what *what,
                            sszip_str ssz,
                            sszip_str *out);

/*
 Memory for a body of `length` bytes, which the host writes there for
 `sszip_calls_read`; NULL: there is not enough.
 */
uint8_t *sszip_calls_room(size_t length);

/*
 The calls of a request, of whose head these are the fields: at most `most_calls`, in a
 body of at most `most_bytes`, which is decoded if it is coded. It is anywhere, or in the
 memory of `sszip_calls_room`; what is given out points at it, or at what was decoded.
 `out` is where it says why not, in a word.

 # Safety
 `fields` are `nfields` valid fields, and `body` is a valid string; the results point at
 memory of their type.
 */
sszip_status sszip_calls_read(const sszip_field *fields,
                              size_t nfields,
                              sszip_str body,
                              size_t most_bytes,
                              size_t most_calls,
                              const sszip_call **read,
                              size_t *nread,
                              bool *is_batch,
                              sszip_str *out);

/*
 What the workers of the host have counted.

 # Safety
 `board` is as of `sszip_exchange_count`; the results point at memory of their type.
 */
sszip_status sszip_board_figures(const sszip_board *board,
                                 const sszip_figure **read,
                                 size_t *nread);

/*
 The name of the variable `number`, counted from 0. Static; empty for a
 number that is none.
 */
sszip_str sszip_variable_name(size_t number);

/*
 What that variable says of the exchange; NULL: of a request without one.
 `data` NULL: it says nothing. Valid until the next call or
 `sszip_exchange_free`.

 # Safety
 `exchange` is NULL or valid; `out` points at memory of its type.
 */
sszip_status sszip_exchange_variable(sszip_exchange *exchange,
                                     size_t number,
                                     sszip_str *out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SSZIP_H */
