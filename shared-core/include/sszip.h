/*
 * sszip.h: the library of sszip's core, for hosts written in C.
 *
 * The library performs no network I/O: the host reports events to it and
 * executes the actions that it returns. docs/exchange.md describes the order
 * of calls; shared-core/examples/minimal_host.c is a complete host.
 *
 * Sections: Common, Config, Process, Exchange, Owner link, SSZ, Scripts,
 * Status. The conventions below hold for every function. The description of
 * a function adds the meaning of its parameters, and the lifetime of its
 * results.
 *
 * Version
 *   A host compares sszip_abi() with SSZIP_ABI before any other call. If they
 *   differ, the library is of another build than the header, and must not be
 *   used.
 *
 * Return codes
 *   A function that can fail returns a sszip_status, and writes its results
 *   to memory of the host. Results have a value after SSZIP_STATUS_OK only;
 *   where a function writes an error text, that has a value after
 *   SSZIP_STATUS_INVALID as well. Any other function returns its result; the
 *   result is false, 0, NULL or an empty string, or the value that the
 *   description names, if an object is NULL or the library fails inside.
 *
 * NULL and misuse
 *   A function that returns a sszip_status returns SSZIP_STATUS_NULL if an
 *   object, an input struct or a pointer to memory for a result is NULL,
 *   unless its description gives NULL a meaning; and SSZIP_STATUS_MISUSE if a
 *   struct has another size, or an enum not the number, in this version. In
 *   both cases the call had no effect. Functions that return no sszip_status
 *   accept NULL for objects and for memory of results.
 *
 * Failures
 *   No failure inside the library unwinds into the host. If a response can
 *   still be sent, the exchange stops its work, sends the original and
 *   returns SSZIP_STATUS_OK; otherwise the call returns SSZIP_STATUS_PANIC.
 *   If a function that returns an action or writes a stream returns another
 *   status than SSZIP_STATUS_OK, the host sends the original if it has not
 *   sent the head yet; after the head it must truncate the response visibly.
 *
 * Objects
 *   sszip_validated_config, sszip_config, sszip_exchange and sszip_job are
 *   opaque. The host owns the objects that it receives, and ends each of them
 *   once: a sszip_validated_config with sszip_validated_config_free, a
 *   sszip_exchange with sszip_exchange_free, a sszip_job with
 *   sszip_exchange_job_done or sszip_job_store. A sszip_config belongs to its
 *   sszip_validated_config. An object is valid from the call that returned it
 *   until it is ended.
 *
 * Memory
 *   The library owns the strings, lists and buffers to which its results
 *   point; the host must not free or change them, except that it writes into
 *   the buffers of sszip_link_read_buffer and sszip_calls_buffer. The host
 *   owns its arguments, and the memory into which results are written. The
 *   library uses both during the call only, and copies what it needs later;
 *   exceptions are the memory of sszip_tip_floors_attach, and the body of
 *   sszip_calls_parse, to which its results point.
 *
 * Lifetimes
 *   "Static" results are valid until the process ends. The end of an exchange
 *   is sszip_exchange_free, or a call of sszip_exchange_take_teardown_job that
 *   returns a job. A "thread result" is valid until the same thread calls a
 *   function that returns a thread result, or sszip_result_free.
 *
 * Processes
 *   Stored responses, waiting requests, the link to the owner and the log are
 *   state of the process, not of an object. Before its last fork a host calls
 *   only the functions of the section Config, sszip_abi, sszip_version,
 *   sszip_variable_name, sszip_escape_log_text, sszip_tip_floors_size,
 *   sszip_metrics_board_size and sszip_metrics_board_init.
 *
 * Threads
 *   Any thread may use an object, but one at a time; several threads at a time
 *   may use a sszip_config. An exchange and its job are separate objects.
 *   One thread of a process is its event loop: it alone calls
 *   sszip_validated_config_start, sszip_next_wakeup, sszip_next_log_line, and
 *   the functions of the section Owner link. A host that uses exchanges or
 *   jobs on other threads notifies its event loop, which then calls
 *   sszip_link_next_action and sszip_next_wakeup. Any thread may call the
 *   functions that have no object and are not listed here.
 *
 * const
 *   A const parameter is not changed. State of the process may be, and the
 *   memory of a sszip_metrics_board, to which it has a pointer.
 *
 * Strings and lists
 *   A sszip_str is a pointer and a length in bytes, in no particular
 *   encoding, and not NUL-terminated unless its description states that.
 *   Where a description gives NULL data a meaning, it is different from an
 *   empty string. A list is a pointer to its first element and a number of
 *   elements; the pointer may be NULL if the number is 0.
 *
 * Structs and numbers
 *   In a struct whose first member is size, the host sets it to the sizeof
 *   the struct, so that the struct may grow, and members without a value to
 *   0. The host passes values of an enum as uint32_t. Times are milliseconds
 *   of CLOCK_MONOTONIC, and durations milliseconds, unless their description
 *   specifies another unit.
 *
 * The section "Safety" of a function lists what its caller must guarantee
 * and the library cannot check. A valid string or list points at as many
 * readable bytes or elements as its length says.
 */

#ifndef SSZIP_H
#define SSZIP_H

/* Generated from shared-core/src/ffi by the test `header`; do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ========================================================================
 * Common: version, status codes and strings, which all sections use
 * ======================================================================== */

/*
 The value that `sszip_abi` returns if the library fits this header. It is
 incremented with every change for which a host must be compiled again.
 */
#define SSZIP_ABI 4

/*
 Result of a call. Values are never reused.
 */
typedef enum {
    /*
     The call succeeded; the results are written.
     */
    SSZIP_STATUS_OK = 0,
    /*
     A pointer that must not be NULL is NULL. The call had no effect.
     */
    SSZIP_STATUS_NULL = 1,
    /*
     The library failed inside. The object may only be ended.
     */
    SSZIP_STATUS_PANIC = 2,
    /*
     The call is not allowed in the object's present state; or the number of
     an enum or a `size` is not one of this version, and the call had no
     effect.
     */
    SSZIP_STATUS_MISUSE = 3,
    /*
     A directive, a name or a value is not accepted. The description of the
     function states whether it writes an error text.
     */
    SSZIP_STATUS_INVALID = 4,
    /*
     The streaming encoder failed: the host must truncate the response
     visibly.
     */
    SSZIP_STATUS_ENCODER = 5,
    /*
     The body ended before the length that the upstream announced: the host
     must truncate the response visibly.
     */
    SSZIP_STATUS_SHORT = 6,
    /*
     Memory is exhausted. After `sszip_exchange_new` the request passes
     without an exchange; after any other function there is no response to
     send, and the request fails.
     */
    SSZIP_STATUS_MEMORY = 7,
} sszip_status;

/*
 Bytes that the library or the host owns, and not NUL-terminated. The
 function that returns them states for how long they are valid.
 */
typedef struct {
    /*
     First byte. If `len` is 0, it may be NULL, and must not be read.
     */
    const uint8_t *data;
    /*
     Length in bytes.
     */
    size_t len;
} sszip_str;

/*
 Returns the version of the library's interface. The host compares it with
 `SSZIP_ABI` before any other call.
 */
uint32_t sszip_abi(void);

/*
 Returns the version of the library, for logs. Static.
 */
sszip_str sszip_version(void);

/* ========================================================================
 * Config: directives, blocks and routes of a configuration, and its validation
 * ======================================================================== */

/*
 The settings of one route. They do not change: any number of threads may
 use them at a time.
 */
typedef struct sszip_config sszip_config;

/*
 A whole configuration: the directives of each block, and the inherited
 settings of each route.
 */
typedef struct sszip_validated_config sszip_validated_config;

/*
 A directive of the configuration.
 */
typedef struct {
    /*
     `sizeof(sszip_directive)`, so that the struct may grow.
     */
    size_t size;
    /*
     Name, as in docs/directives.md.
     */
    sszip_str name;
    /*
     Arguments of the directive.
     */
    const sszip_str *values;
    /*
     Number of arguments.
     */
    size_t nvalues;
    /*
     File that contains the directive.
     */
    sszip_str file;
    /*
     Line of the directive in the file.
     */
    size_t line;
} sszip_directive;

/*
 A route, after all its directives were read.
 */
typedef struct {
    /*
     `sizeof(sszip_route)`, so that the struct may grow.
     */
    size_t size;
    /*
     Name of the route, for messages.
     */
    sszip_str name;
    /*
     Argument of its directive `cache_namespace`; NULL `data`: it has none.
     */
    sszip_str name_space;
    /*
     The namespace contains variables, so that it differs from request to
     request.
     */
    bool per_request;
    /*
     The host handles requests on the route itself; the route is not only a
     container of inner routes.
     */
    bool handles_requests;
    /*
     The route accepts purges.
     */
    bool purges;
    /*
     URL of the upstream as the configuration names it; NULL `data`: the
     route has none, or it differs from request to request.
     */
    sszip_str url;
    /*
     Response headers that the host's own configuration hides from clients
     on this route. Inner routes do not inherit them.
     */
    const sszip_str *hidden;
    /*
     Number of hidden headers.
     */
    size_t nhidden;
    /*
     Maximum length of a request body that the host keeps in memory, in
     bytes; 0: only its other limits apply.
     */
    uint64_t body_buffer;
    /*
     Upstream requests use HTTP/1.0.
     */
    bool is_http_1_0;
} sszip_route;

/*
 Settings of a route that the host needs.
 */
typedef struct {
    /*
     Argument of `sszip_exchange_new`. Belongs to the configuration, and is
     valid until `sszip_validated_config_free`.
     */
    const sszip_config *config;
    /*
     sszip is enabled on the route.
     */
    bool enable;
    /*
     Responses of the route are cached.
     */
    bool caches;
    /*
     Requests of the route may need a lookup: call
     `sszip_exchange_required_body` before a request is sent.
     */
    bool reads_requests;
    /*
     Requests with a body are not forwarded without a lookup.
     */
    bool has_policy;
    /*
     Requests of the route may need a probe: call
     `sszip_exchange_take_probe`.
     */
    bool sends_probes;
    /*
     Maximum number of output buffers of one stream.
     */
    size_t buffers;
    /*
     Size of each output buffer, in bytes.
     */
    size_t buffer_size;
} sszip_route_settings;

/*
 The host's own store. A number that is 0 means the owner's default. The
 strings are NUL-terminated; `len` does not count the NUL.
 */
typedef struct {
    /*
     Folder of the store, an absolute path. One owner at a time may use it.
     */
    sszip_str folder;
    /*
     Path of the owner's socket in the folder.
     */
    sszip_str socket;
    /*
     Path of the database in the folder.
     */
    sszip_str data;
    /*
     Maximum size on disk, in bytes.
     */
    uint64_t max_size;
    /*
     Maximum size of the entries in the owner's memory, in bytes.
     */
    uint64_t memory;
    /*
     Maximum length of one entry, in bytes.
     */
    uint64_t max_entry;
    /*
     Time without a request after which an entry is removed, in
     milliseconds.
     */
    uint64_t inactive;
    /*
     Entries are not recompressed before they are written to disk.
     */
    bool no_recompress;
    /*
     Head sources that the owner follows, in the owner's format. Contains
     secrets.
     */
    sszip_str heads;
    /*
     Fleet through which the owner shares entries, in the owner's format;
     empty: none. Contains secrets.
     */
    sszip_str fleet;
} sszip_store;

/*
 Creates an empty configuration. Folders that are not absolute are relative
 to `prefix`, other files to `file_prefix`. The host owns the configuration,
 and ends it with `sszip_validated_config_free`.

 # Safety
 The strings are valid; `out` points at memory of its type.
 */
sszip_status sszip_validated_config_new(sszip_str prefix,
                                        sszip_str file_prefix,
                                        sszip_validated_config **out);

/*
 Adds a directive to the block `*block`; 0: a new block, whose number is
 written to `*block` on `SSZIP_STATUS_OK`.

 Writes a text for the operator to `text`, which continues the directive's
 name: on `SSZIP_STATUS_OK` a warning, or an empty string; on
 `SSZIP_STATUS_INVALID` the error and the accepted values, and the
 configuration is unchanged. The text is valid until the next call for
 `config`.

 # Safety
 `config` is NULL or valid; `block` points at a number of one of its blocks
 or 0; `directive` is NULL or valid with all that it points at; `text`
 points at memory of its type.
 */
sszip_status sszip_validated_config_set(sszip_validated_config *config,
                                        size_t *block,
                                        const sszip_directive *directive,
                                        sszip_str *text);

/*
 Adds a route with the directives of the block `*block`, which inherits
 further directives from the block `outer`. Either number may be 0, for a
 block without directives. On `SSZIP_STATUS_OK` writes the settings of the
 route to `settings` and, if `*block` is 0, the number of a new block to
 `*block`. The struct is the host's; `settings->config` is valid until
 `sszip_validated_config_free`.

 Writes a text for the operator to `text`: on `SSZIP_STATUS_OK` a warning,
 or an empty string; on `SSZIP_STATUS_INVALID` the error with its position
 in the configuration. The text is valid until the next call for `config`.

 # Errors
 `SSZIP_STATUS_MISUSE`: `config` has no block of that number.

 # Safety
 `config` is NULL or valid; `block` points at memory of its type; `route` is
 NULL or valid with all that it points at; the results point at memory of
 their type.
 */
sszip_status sszip_validated_config_add_route(sszip_validated_config *config,
                                              size_t *block,
                                              size_t outer,
                                              const sszip_route *route,
                                              sszip_route_settings *settings,
                                              sszip_str *text);

/*
 Adds a named group of servers, which the `url` of a route may refer to by
 this name.

 # Safety
 `config` is NULL or valid; `servers` are `nservers` valid strings, and
 `name` is one.
 */
sszip_status sszip_validated_config_add_upstream(sszip_validated_config *config,
                                                 sszip_str name,
                                                 const sszip_str *servers,
                                                 size_t nservers);

/*
 Validates the configuration as a whole, after all its parts were added.
 Writes a text for the operator to `text`: on `SSZIP_STATUS_OK` a warning, or
 an empty string; on `SSZIP_STATUS_INVALID` the error. The text is valid
 until the next call for `config`.

 # Safety
 `config` is NULL or valid; `text` points at memory of its type.
 */
sszip_status sszip_validated_config_check(sszip_validated_config *config,
                                          sszip_str *text);

/*
 Returns the address of the owner of a store, after
 `sszip_validated_config_check`: "unix:" and a path, NUL-terminated; empty:
 there is no owner. Valid until `sszip_validated_config_free`, or another
 `sszip_validated_config_check`.

 # Safety
 `config` is NULL or valid.
 */
sszip_str sszip_validated_config_owner_socket(const sszip_validated_config *config);

/*
 Returns the host's own store and the settings of its owner, after
 `sszip_validated_config_check`. The struct is the host's; its strings are
 valid until `sszip_validated_config_free`, or another
 `sszip_validated_config_check`.

 # Errors
 `SSZIP_STATUS_MISUSE`: the configuration has no store.

 # Safety
 `config` is NULL or valid; `out` points at memory of its type.
 */
sszip_status sszip_validated_config_store(const sszip_validated_config *config,
                                          sszip_store *out);

/*
 Frees a configuration, every `sszip_config` of it, and all its results.
 Exchanges that were created with them continue.

 # Safety
 `config` is NULL or valid, and is not used after the call.
 */
void sszip_validated_config_free(sszip_validated_config *config);

/* ========================================================================
 * Process: start of a worker process, its wakeups and its log lines
 * ======================================================================== */

/*
 Prepares a worker process, one of `processes`, for a configuration. Changes
 the process, not the configuration: creates the hot tier with the worker's
 share of `cache_memory`, if a route caches; allocates what would otherwise
 be allocated on first use, when memory may be exhausted; configures how the
 C library retains freed memory; and joins the owner of a store, to which
 the host opens the connections after `sszip_link_next_action`. Call it
 after the last fork and before the first exchange; a second call for a
 configuration has no effect. Without this call nothing is cached.

 # Safety
 `config` is NULL or valid.
 */
sszip_status sszip_validated_config_start(const sszip_validated_config *config,
                                          size_t processes);

/*
 Returns the names of the codec libraries in use on this machine, for logs.
 Static. Call it after the last fork.
 */
sszip_str sszip_coders(void);

/*
 Returns the maximum number of jobs that a process should run at a time; the
 host queues the others. 1 if the library fails inside. Call it after the
 last fork, when the process is bound to its processors.
 */
size_t sszip_max_running_jobs(void);

/*
 Returns the `waiter` of a waiting request whose lookup is to be repeated,
 once; 0: there is none. The waiter of a freed or detached exchange is not
 returned. Call it until it returns 0 after each call that may end a wait:
 for an exchange or a job that stores a response or ends, and of the section
 Owner link.
 */
size_t sszip_next_wakeup(void);

/*
 Writes the next line for the error log about verified hits to `text`,
 truncated to `size` bytes, and returns its length; 0: there is none. Each
 line is written once. Call it until it returns 0 after a response was
 stored.

 # Safety
 `text` is NULL, or `size` bytes can be written there.
 */
size_t sszip_next_log_line(uint8_t *text, size_t size);

/*
 Escapes text from other programs for a line of a log, so that it cannot
 begin a new line or control a terminal. Writes it to `text`, truncated to
 `size` bytes, and returns its length.

 # Safety
 `input` is a valid string; `text` is NULL, or `size` bytes can be written
 there.
 */
size_t sszip_escape_log_text(sszip_str input, uint8_t *text, size_t size);

/* ========================================================================
 * Exchange: requests, responses, lookups, jobs and log variables
 * ======================================================================== */

/*
 Header of a response head that a host stores in a member of its own.
 */
typedef enum {
    /*
     Any other header.
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
     `Date`
     */
    SSZIP_FIELD_DATE,
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
} sszip_known_header;

/*
 Next action of the host.
 */
typedef enum {
    /*
     Wait for the next event; the piece was accepted.
     */
    SSZIP_ACTION_AWAIT = 0,
    /*
     Send the request to the upstream.
     */
    SSZIP_ACTION_FORWARD = 1,
    /*
     Send the request to the upstream with `sszip_exchange_request_body` as
     its body and, if it is not empty, `sszip_exchange_request_target` as
     its target.
     */
    SSZIP_ACTION_FORWARD_REWRITTEN = 2,
    /*
     Send a stored response: `sszip_exchange_status`, the head edits as the
     whole head, and `sszip_exchange_body`.
     */
    SSZIP_ACTION_RESPOND = 3,
    /*
     Repeat the lookup when `sszip_next_wakeup` returns the request's waiter,
     or after `sszip_exchange_next_timer` milliseconds, which are 0 after a
     job; the result may be this action again.
     */
    SSZIP_ACTION_WAIT = 4,
    /*
     Apply the head edits, send the head, and pass the body unchanged.
     */
    SSZIP_ACTION_PASS = 5,
    /*
     Apply the head edits, send the head, pass the body unchanged, and feed
     each piece of it to `sszip_exchange_piece`.
     */
    SSZIP_ACTION_OBSERVE = 6,
    /*
     Withhold the head, and feed each piece of the body to
     `sszip_exchange_piece`.
     */
    SSZIP_ACTION_BUFFER = 7,
    /*
     Apply the head edits, send the head, and send the body through
     `sszip_exchange_stream`, beginning with the last piece that was passed
     to `sszip_exchange_piece`, if any.
     */
    SSZIP_ACTION_STREAM = 8,
    /*
     Apply the head edits, send the head and `sszip_exchange_body`, which is
     the whole body.
     */
    SSZIP_ACTION_SEND = 9,
    /*
     Apply the head edits, send the head, `sszip_exchange_body` and the last
     piece that was fed, then pass the rest of the body unchanged.
     */
    SSZIP_ACTION_SEND_THEN_PASS = 10,
    /*
     Run `job` on a thread that serves no connections, then call
     `sszip_exchange_job_done`.
     */
    SSZIP_ACTION_RUN_JOB = 11,
    /*
     No head was sent, and there is no response to send: respond with 502.
     `reason` is the reason.
     */
    SSZIP_ACTION_FAIL = 12,
} sszip_action;

/*
 Part of the request body that a lookup requires.
 */
typedef enum {
    /*
     No lookup takes place: send the request to the upstream.
     */
    SSZIP_NEED_NOTHING = 0,
    /*
     No part of the body is required: call `sszip_exchange_lookup`.
     */
    SSZIP_NEED_LOOK_UP = 1,
    /*
     The body is required in memory: read it, then call
     `sszip_exchange_lookup`.
     */
    SSZIP_NEED_BODY = 2,
    /*
     The whole body is required, in memory or in a file: read it, then call
     `sszip_exchange_lookup`.
     */
    SSZIP_NEED_WHOLE_BODY = 3,
} sszip_required_body;

/*
 Effect of the host's other filters on a response.
 */
typedef enum {
    /*
     The other filters do not change the body.
     */
    SSZIP_OTHER_FILTERS_NONE = 0,
    /*
     The other filters change the body.
     */
    SSZIP_OTHER_FILTERS_BODY_CHANGED = 1,
    /*
     The other filters change the body, and every piece of the upstream's
     body must be in memory when it is passed to
     `sszip_exchange_upstream_piece`.
     */
    SSZIP_OTHER_FILTERS_SEPARATE_COPY = 2,
} sszip_other_filters;

/*
 Amount of input that a call of `sszip_exchange_stream` must emit.
 */
typedef enum {
    /*
     The encoder may retain input, to compress it better with the input that
     follows.
     */
    SSZIP_FLUSH_NONE = 0,
    /*
     All input so far can be decoded from the output so far.
     */
    SSZIP_FLUSH_SYNC = 1,
    /*
     The piece is the last one.
     */
    SSZIP_FLUSH_FINISH = 2,
} sszip_flush;

/*
 Way in which the upstream failed a request.
 */
typedef enum {
    /*
     The upstream responded with a status that is a failure.
     */
    SSZIP_FAILURE_STATUS = 0,
    /*
     The connection ended before the response head.
     */
    SSZIP_FAILURE_ERROR = 1,
    /*
     The upstream timed out.
     */
    SSZIP_FAILURE_TIMEOUT = 2,
    /*
     The response is not valid HTTP.
     */
    SSZIP_FAILURE_INVALID_HEADER = 3,
    /*
     No connection to the upstream could be opened.
     */
    SSZIP_FAILURE_CONNECT = 4,
} sszip_failure;

/*
 State of a request body at a lookup.
 */
typedef enum {
    /*
     The whole body is in memory, or the request has none and needs none.
     */
    SSZIP_BODY_WHOLE = 0,
    /*
     The host has not read the body yet, because the client waits for the
     status 100; the host can read it.
     */
    SSZIP_BODY_AWAITS_CONTINUE = 1,
    /*
     The body cannot be kept in memory, or reading it failed.
     */
    SSZIP_BODY_UNAVAILABLE = 2,
} sszip_request_body;

/*
 One HTTP exchange; each request has its own. docs/exchange.md describes the
 order of calls.
 */
typedef struct sszip_exchange sszip_exchange;

/*
 Work that takes too long for an event loop. The host that received it owns
 it, may run it on any thread, and ends it with one call of
 `sszip_exchange_job_done` or `sszip_job_store`.
 */
typedef struct sszip_job sszip_job;

/*
 A header field.
 */
typedef struct {
    /*
     Name as received, in any case.
     */
    sszip_str name;
    /*
     Value without surrounding white space.
     */
    sszip_str value;
} sszip_header;

/*
 A request head as the host received it.
 */
typedef struct {
    /*
     `sizeof(sszip_request_head)`, so that the struct may grow.
     */
    size_t size;
    /*
     Request method.
     */
    sszip_str method;
    /*
     Path and query as the client sent them, or as the proxy rewrote them.
     */
    sszip_str target;
    /*
     All headers, `Host` included.
     */
    const sszip_header *fields;
    /*
     Number of headers.
     */
    size_t nfields;
} sszip_request_head;

/*
 A change to one header of a message head: the header is set to the value,
 in place of all present values, or removed if `value.data` is NULL.
 */
typedef struct {
    /*
     Name as it is to be written.
     */
    sszip_str name;
    /*
     New value; NULL `data` removes the header.
     */
    sszip_str value;
    /*
     Number of the header, for hosts that store it in a member of its own.
     */
    sszip_known_header field;
} sszip_head_edit;

/*
 A response head as the host received it.
 */
typedef struct {
    /*
     `sizeof(sszip_response_head)`, so that the struct may grow.
     */
    size_t size;
    /*
     All headers. `Content-Length` may be omitted.
     */
    const sszip_header *fields;
    /*
     Number of headers.
     */
    size_t nfields;
    /*
     Length of the body in bytes; negative: the head does not contain it.
     */
    int64_t content_length;
    /*
     Wall clock, in seconds since 1970.
     */
    uint64_t now;
    /*
     Status code.
     */
    uint16_t status;
    /*
     The end of a body without a length is visible (chunked, HTTP/2);
     otherwise it is the end of the connection.
     */
    bool delimited;
    /*
     The operator wants pieces to be sent without buffering.
     */
    bool unbuffered;
    /*
     The response becomes a part of another response.
     */
    bool subrequest;
    /*
     The host's own rules allow a content coding for this response.
     */
    bool coding_allowed;
    /*
     The host writes `Vary: Accept-Encoding` itself.
     */
    bool host_writes_vary;
} sszip_response_head;

/*
 Next action of the host, with its parameters.
 */
typedef struct {
    /*
     Action.
     */
    sszip_action action;
    /*
     Job that the host owns from here on; NULL unless the action is
     `SSZIP_ACTION_RUN_JOB`.
     */
    sszip_job *job;
    /*
     Reason for logs, NUL-terminated and static; NULL unless the action is
     `SSZIP_ACTION_FAIL`.
     */
    const char *reason;
} sszip_step;

/*
 Progress of one call of `sszip_exchange_stream`.
 */
typedef struct {
    /*
     Bytes of the piece that were consumed.
     */
    size_t consumed;
    /*
     Bytes that were written to the output.
     */
    size_t written;
    /*
     All input was consumed and flushed as requested. Otherwise the output
     is full: call again with the rest of the piece and the same flush.
     */
    bool complete;
} sszip_progress;

/*
 Input of a lookup of stored responses.
 */
typedef struct {
    /*
     `sizeof(sszip_lookup_request)`, so that the struct may grow.
     */
    size_t size;
    /*
     Namespace, which separates the responses of one chain from the
     responses of other chains. NULL `data`: the library derives it from the
     route's upstream, `port`, `host` and the request's target.
     */
    sszip_str name_space;
    /*
     URL of the upstream as the configuration names it, if it differs from
     request to request; NULL `data`: the route's upstream.
     */
    sszip_str url;
    /*
     Host name of the request as the proxy itself determines it.
     */
    sszip_str host;
    /*
     Port on which the proxy received the request.
     */
    uint16_t port;
    /*
     Request body, if it is complete; otherwise the part of its beginning
     that is in memory.
     */
    sszip_str body;
    /*
     State of the request body: an `sszip_request_body`.
     */
    uint32_t body_state;
    /*
     Milliseconds of `CLOCK_MONOTONIC`, read for this event; every parameter
     `now` of type `uint64_t` has this unit.
     */
    uint64_t now;
    /*
     Do not send a stored response; the upstream's response replaces it.
     */
    bool bypass;
    /*
     Identity by which `sszip_next_wakeup` returns this request; 0: the
     request does not wait.
     */
    size_t waiter;
    /*
     The host's own rules allow a content coding for this response.
     */
    bool coding_allowed;
    /*
     Forward a batch as a whole or not at all: it is not split.
     */
    bool no_split;
    /*
     The host has other filters that may change bodies, and calls
     `sszip_exchange_other_filters`.
     */
    bool has_other_filters;
    /*
     The host writes `Vary: Accept-Encoding` itself.
     */
    bool host_writes_vary;
    /*
     The host's configuration forwards the client's accepted codings to the
     upstream, whatever the upstream edits specify.
     */
    bool forwards_codings;
    /*
     The host does not know the upstream of the route, and may respond
     itself: requests without a `name_space` are not looked up.
     */
    bool route_unnamed;
} sszip_lookup_request;

/*
 Creates an exchange on the route that has these settings. The host owns it,
 and ends it with `sszip_exchange_free`; it may outlive `config`.

 # Errors
 `SSZIP_STATUS_MEMORY`: the process is short of memory.

 # Safety
 `config` is NULL or valid; `out` points at memory of its type.
 */
sszip_status sszip_exchange_new(const sszip_config *config,
                                sszip_exchange **out);

/*
 Frees an exchange and all its results. A job of it stays valid; the host
 ends it with `sszip_job_store`.

 # Safety
 `exchange` is NULL or valid, and is not used after the call.
 */
void sszip_exchange_free(sszip_exchange *exchange);

/*
 Reads the client's request head. Copies what the exchange needs.

 # Safety
 `exchange` is NULL or valid; `head` is NULL or valid with all that it
 points at.
 */
sszip_status sszip_exchange_request_head(sszip_exchange *exchange,
                                         const sszip_request_head *head);

/*
 Returns the changes to the request head that the upstream receives. An edit
 with the name `:method` replaces the method. The list is valid until the
 next call of this function or of `sszip_exchange_head_edits` for the
 exchange, its strings until the end of the exchange.

 # Safety
 `exchange` is NULL or valid; the results point at memory of their type.
 */
sszip_status sszip_exchange_upstream_edits(sszip_exchange *exchange,
                                           const sszip_head_edit **edits,
                                           size_t *nedits);

/*
 Reads the response head, and returns the next action. Copies what the
 exchange needs. If the library fails inside, the response passes without an
 edit; the response to a part of a batch is buffered and becomes a 502; the
 response to a request that accepts only SSZ, where the upstream sends JSON,
 becomes `SSZIP_ACTION_FAIL`.

 # Safety
 `exchange` is NULL or valid; `head` is NULL or valid with all that it
 points at; `step` points at memory of its type.
 */
sszip_status sszip_exchange_response_head(sszip_exchange *exchange,
                                          const sszip_response_head *head,
                                          sszip_step *step);

/*
 Continues an exchange whose response head the host cannot pass for lack of
 memory. The result is the same as if the library had failed in
 `sszip_exchange_response_head`.

 # Safety
 `exchange` is NULL or valid; `step` points at memory of its type.
 */
sszip_status sszip_exchange_response_head_unavailable(sszip_exchange *exchange,
                                                      sszip_step *step);

/*
 Reads a piece of the body, after `SSZIP_ACTION_BUFFER` and
 `SSZIP_ACTION_OBSERVE`, and returns the next action. Copies the piece. If
 the library fails inside, the exchange stops buffering and sends the
 original.

 # Safety
 `exchange` is NULL or valid, `piece` a valid string; `step` points at
 memory of its type.
 */
sszip_status sszip_exchange_piece(sszip_exchange *exchange,
                                  sszip_str piece,
                                  sszip_step *step);

/*
 Ends the buffering window, because its time is over or the upstream
 flushes. After `SSZIP_ACTION_AWAIT` the host continues to buffer.

 # Safety
 `exchange` is NULL or valid; `step` points at memory of its type.
 */
sszip_status sszip_exchange_end_buffering(sszip_exchange *exchange,
                                          sszip_step *step);

/*
 Returns the number of bytes of the body to read at a time after
 `SSZIP_ACTION_BUFFER`; 0: the host's own number.

 # Safety
 `exchange` is NULL or valid.
 */
size_t sszip_exchange_read_size(const sszip_exchange *exchange);

/*
 Returns the number of milliseconds after which the host must act: call
 `sszip_exchange_end_buffering`, flush a stream whose whole input was
 written, repeat the lookup after `SSZIP_ACTION_WAIT`, or cancel a probe.
 Negative: no timer is due.

 # Safety
 `exchange` is NULL or valid.
 */
int64_t sszip_exchange_next_timer(const sszip_exchange *exchange);

/*
 Compresses the buffered body, then `piece`, into `output`, up to `capacity`
 bytes, and writes the number of bytes to `progress`; both are the host's
 memory. `flush` is an `sszip_flush`.

 # Errors
 `SSZIP_STATUS_ENCODER`, `SSZIP_STATUS_SHORT`: the host must truncate the
 response visibly, and `output` must not be sent.

 # Safety
 `exchange` is NULL or valid, `piece` a valid string; `output` has room for
 `capacity` bytes; `progress` points at memory of its type.
 */
sszip_status sszip_exchange_stream(sszip_exchange *exchange,
                                   sszip_str piece,
                                   uint32_t flush,
                                   uint8_t *output,
                                   size_t capacity,
                                   sszip_progress *progress);

/*
 Ends a buffered body at its end, and returns the next action. If the
 library fails inside, the exchange sends the original, or fails if the body
 is known to be truncated.

 # Safety
 `exchange` is NULL or valid; `step` points at memory of its type.
 */
sszip_status sszip_exchange_end(sszip_exchange *exchange, sszip_step *step);

/*
 Ends a body that the upstream truncated while the head is withheld, and
 returns the next action. Only a response that does not depend on the
 missing bytes is sent: a stored response in place of the upstream's, or a
 batch, with the responses that are complete.

 # Safety
 `exchange` is NULL or valid; `step` points at memory of its type.
 */
sszip_status sszip_exchange_end_truncated(sszip_exchange *exchange,
                                          sszip_step *step);

/*
 Aborts the exchange: the upstream's connection ended while the head is
 withheld or the body streams.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_status sszip_exchange_abort(sszip_exchange *exchange);

/*
 Returns the changes to the response head that the client receives, after an
 action to send it. The list is valid until the next call of this function
 or of `sszip_exchange_upstream_edits` for the exchange; its strings until
 `sszip_exchange_filtered_hit_head`, or the end of the exchange.

 # Safety
 `exchange` is NULL or valid; the results point at memory of their type.
 */
sszip_status sszip_exchange_head_edits(sszip_exchange *exchange,
                                       const sszip_head_edit **edits,
                                       size_t *nedits);

/*
 Returns whether the response depends on `Accept-Encoding`: a host that
 writes that `Vary` itself must write it.

 # Safety
 `exchange` is NULL or valid.
 */
bool sszip_exchange_varies_on_accept_encoding(const sszip_exchange *exchange);

/*
 Returns the `Vary` value for a cache between the exchange and the upstream:
 the upstream's value without the headers that the upstream edits set to one
 value for every request. Valid until the next call of this function for the
 exchange, or the end of the exchange.

 # Errors
 `SSZIP_STATUS_MISUSE`: a job has the exchange.

 # Safety
 `exchange` is NULL or valid, `vary` a valid string; `out` points at memory
 of its type.
 */
sszip_status sszip_exchange_upstream_vary(sszip_exchange *exchange,
                                          sszip_str vary,
                                          sszip_str *out);

/*
 Returns the bytes to send directly after the head, as a list of pieces,
 after an action to send them. The list is valid until the next call of this
 function for the exchange; the bytes until
 `sszip_exchange_filtered_hit_head`, or the end of the exchange.

 # Errors
 `SSZIP_STATUS_MEMORY`: memory for the list is exhausted.

 # Safety
 `exchange` is NULL or valid; the results point at memory of their type.
 */
sszip_status sszip_exchange_body(sszip_exchange *exchange,
                                 const sszip_str **pieces,
                                 size_t *npieces);

/*
 Returns the part of the request body that a lookup requires, for a request
 with a body of `length` bytes; 0: there is no body; negative: the length is
 unknown until its end. A second call after `SSZIP_NEED_BODY` or
 `SSZIP_NEED_WHOLE_BODY` means that the body was read. After the lookup
 nothing is required, unless the lookup is to be repeated.
 `SSZIP_NEED_NOTHING` for NULL.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_required_body sszip_exchange_required_body(sszip_exchange *exchange,
                                                 int64_t length);

/*
 Reserves memory for a copy of `bytes` bytes of the request body, which the
 host assembles for the lookup because it stores the body in several
 buffers. The copy is the host's; the lookup releases the reservation.
 `false`: the memory budget is exhausted, and the lookup takes place without
 a body.

 # Safety
 `exchange` is NULL or valid.
 */
bool sszip_exchange_reserve_body_copy(sszip_exchange *exchange,
                                      size_t bytes);

/*
 Whether a request with this header must not reach the upstream
 (`only-if-cached`, RFC 9111, 5.2.1.7), for requests whose exchange lacks
 memory: allocates nothing. `false` for NULL.

 # Safety
 `header` is NULL or valid with the strings that it points at.
 */
bool sszip_header_forbids_upstream(const sszip_header *header);

/*
 Looks up stored responses to the request, and returns the next action. If
 the library fails inside, the request is forwarded.

 # Safety
 `exchange` is NULL or valid; `request` is NULL or valid with all that it
 points at; `step` points at memory of its type.
 */
sszip_status sszip_exchange_lookup(sszip_exchange *exchange,
                                   const sszip_lookup_request *request,
                                   sszip_step *step);

/*
 Purges the entries that `query` selects (docs/caching.md, Purging), in
 place of a lookup and with its actions. `method` is the request's method.
 `request->name_space` is the namespace of a query without one;
 `request->waiter` must not be 0.

 # Safety
 `exchange` is NULL or valid, `method` and `query` are valid strings;
 `request` is NULL or valid with all that it points at; `step` points at
 memory of its type.
 */
sszip_status sszip_exchange_purge(sszip_exchange *exchange,
                                  sszip_str method,
                                  sszip_str query,
                                  const sszip_lookup_request *request,
                                  sszip_step *step);

/*
 Returns an exchange for a background update, after a lookup that found an
 entry, forwards a part of a batch or waits; NULL: no further update is due.
 Call it until it returns NULL: other requests, or this one, wait for these
 responses. The host sends a copy of this request in the background, with
 `sszip_exchange_request_body` of the new exchange as its body if that is not
 empty, and continues the new exchange with the response head. It owns the
 new exchange, and ends it with `sszip_exchange_free`, also if it cannot send
 the request; either exchange may be freed first.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_exchange *sszip_exchange_take_background_update(sszip_exchange *exchange);

/*
 Returns an exchange for a probe, before the request is processed any
 further; NULL: no probe is due. Call it until it returns NULL. The host
 sends a GET without a body to the path that
 `sszip_exchange_probe_path` derives from this request's path, and
 continues the new exchange with the response head. `url` is the upstream of
 this request if it differs from request to request; NULL `data`: the
 route's upstream. The host cancels the probe if there is no response after
 `sszip_exchange_next_timer` milliseconds. It owns the new exchange, and
 ends it with `sszip_exchange_free`; either exchange may be freed first.

 # Safety
 `exchange` is NULL or valid, `url` a valid string.
 */
sszip_exchange *sszip_exchange_take_probe(sszip_exchange *exchange,
                                          sszip_str url,
                                          uint64_t now);

/*
 Returns the path of a probe, for an exchange of
 `sszip_exchange_take_probe`, in place of `path`, which is the request's
 path. Valid until the next call of this function or of
 `sszip_exchange_variable` for the exchange, or the end of the exchange.

 # Errors
 `SSZIP_STATUS_MISUSE`: the exchange is no probe.

 # Safety
 `exchange` is NULL or valid, `path` a valid string; `out` points at memory
 of its type.
 */
sszip_status sszip_exchange_probe_path(sszip_exchange *exchange,
                                       sszip_str path,
                                       sszip_str *out);

/*
 Reports that the upstream failed the request, before the head of the host's
 own error response, whose status is `status`. `failure` is an
 `sszip_failure`. Writes to `serves_stale` whether a stale response is sent
 in its place.

 # Safety
 `exchange` is NULL or valid; `serves_stale` points at memory of its type.
 */
sszip_status sszip_exchange_upstream_failed(sszip_exchange *exchange,
                                            uint32_t failure,
                                            uint16_t status,
                                            uint64_t now,
                                            bool *serves_stale);

/*
 Writes to `serves_stale` the result that `sszip_exchange_upstream_failed`
 would have, without reporting a failure.

 # Safety
 `exchange` is NULL or valid; `serves_stale` points at memory of its type.
 */
sszip_status sszip_exchange_would_serve_stale(sszip_exchange *exchange,
                                              uint32_t failure,
                                              uint16_t status,
                                              uint64_t now,
                                              bool *serves_stale);

/*
 Returns the body of the upstream request, after
 `SSZIP_ACTION_FORWARD_REWRITTEN`. Valid until the end of the exchange.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_str sszip_exchange_request_body(const sszip_exchange *exchange);

/*
 Returns the path and query of the upstream request, after
 `SSZIP_ACTION_FORWARD_REWRITTEN`; empty: the request's own target. Valid
 until the end of the exchange.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_str sszip_exchange_request_target(const sszip_exchange *exchange);

/*
 Returns the status code of a stored response; 0: there is none.

 # Safety
 `exchange` is NULL or valid.
 */
uint16_t sszip_exchange_status(const sszip_exchange *exchange);

/*
 Prevents the response from being stored, because the operator excludes it
 (directive `no_cache`).

 # Safety
 `exchange` is NULL or valid.
 */
sszip_status sszip_exchange_no_store(sszip_exchange *exchange);

/*
 Prevents the response from being stored, because the host rewrote the
 target of its redirect for this client.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_status sszip_exchange_redirected(sszip_exchange *exchange);

/*
 Reports that the host received the whole response, so that it is stored.
 Returns the job that stores it, which the host owns, runs, and ends with
 `sszip_job_store`; NULL: there is nothing left to do.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_job *sszip_exchange_response_sent(sszip_exchange *exchange,
                                        uint64_t now);

/*
 Reads the response head as the upstream sent it, before the host hides,
 adds or changes a header. A host that has this head calls the function
 before `sszip_exchange_response_head`, which reads the changed head.
 `failure`, an `sszip_failure`, is the way
 in which the upstream failed if the status is a failure and
 `sszip_exchange_upstream_failed` was not called. Writes to `replaced`
 whether a stored response replaces the upstream's, with
 `sszip_exchange_status` and the head edits as the whole head.

 # Safety
 `exchange` is NULL or valid; `head` is NULL or valid with all that it
 points at; `replaced` points at memory of its type.
 */
sszip_status sszip_exchange_upstream_head(sszip_exchange *exchange,
                                          const sszip_response_head *head,
                                          uint32_t failure,
                                          uint64_t now,
                                          bool *replaced);

/*
 Reports whether the host's other filters appear to change the body
 (`changes`) and compress it (`compresses`), and whether its head has a
 length. Call it before `sszip_exchange_response_head`, or before a stored
 response is sent. Returns the effect of the other filters.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_other_filters sszip_exchange_other_filters(sszip_exchange *exchange,
                                                 bool changes,
                                                 bool compresses,
                                                 bool has_length);

/*
 Returns whether filter detection found for the first time that other
 filters change bodies on this route, which the host logs. Returns `true`
 once; call it after `sszip_exchange_other_filters` and
 `sszip_exchange_response_sent`.

 # Safety
 `exchange` is NULL or valid.
 */
bool sszip_exchange_is_new_filter_detection(sszip_exchange *exchange);

/*
 Reads `len` bytes of the body as the upstream sent it, after
 `sszip_exchange_upstream_head` and before another filter changes it; `data`
 is NULL if they are not in memory. `last`: the body ends with them. Returns
 a job that stores the response, which the host owns, runs, and ends with
 `sszip_job_store`; NULL: there is nothing left to do.

 # Safety
 `exchange` is NULL or valid; `data` points at `len` bytes or is NULL.
 */
sszip_job *sszip_exchange_upstream_piece(sszip_exchange *exchange,
                                         const uint8_t *data,
                                         size_t len,
                                         bool last,
                                         uint64_t now);

/*
 Reads the headers of a stored response after the host's other filters
 changed its head; if they change the body, the response is sent in
 identity. Ends the results of `sszip_exchange_head_edits` and
 `sszip_exchange_body`: call these functions again.

 # Errors
 `SSZIP_STATUS_MEMORY`: the response cannot be sent.

 # Safety
 `exchange` is NULL or valid; `fields` are `nfields` fields of valid
 strings.
 */
sszip_status sszip_exchange_filtered_hit_head(sszip_exchange *exchange,
                                              const sszip_header *fields,
                                              size_t nfields);

/*
 Returns whether a response of this media type and length (negative:
 unknown) would be compressed, or is a compressed stored response or a part
 of a batch; other filters must not compress it before. `false` for NULL.

 # Safety
 `exchange` is NULL or valid, `content_type` a valid string.
 */
bool sszip_exchange_would_compress(const sszip_exchange *exchange,
                                   sszip_str content_type,
                                   int64_t length);

/*
 Returns whether the awaited response is stored, so that it is worth
 fetching although the client is gone. `false` for NULL.

 # Safety
 `exchange` is NULL or valid.
 */
bool sszip_exchange_is_filling(const sszip_exchange *exchange);

/*
 Detaches an exchange whose client and host need nothing more of it: it
 waits for nothing and stores nothing. Its results stay valid until the end
 of the exchange.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_status sszip_exchange_detach(sszip_exchange *exchange);

/*
 Runs a job, which takes some milliseconds for each megabyte; call it once.
 If the library fails inside, the response is the original, or is not
 stored.

 # Safety
 `job` is NULL or valid.
 */
sszip_status sszip_job_run(sszip_job *job);

/*
 Returns whether the job should run although its client is gone, because its
 result is stored. `false` for NULL.

 # Safety
 `job` is NULL or valid.
 */
bool sszip_job_has_store(const sszip_job *job);

/*
 Stores the result of a job that no exchange waits for, if it has run and
 its result is stored, and frees the job.

 # Safety
 `job` is NULL or valid, and is not used after the call.
 */
sszip_status sszip_job_store(sszip_job *job, uint64_t now);

/*
 Returns a job that releases the memory of a long response off the event
 loop, since that takes a tenth of a millisecond per megabyte; NULL: there
 is none. The host owns the job, runs it, and ends it with
 `sszip_job_store`. If a job is returned, the exchange has ended: all its
 results are invalid, and only `sszip_exchange_free` may be called for it.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_job *sszip_exchange_take_teardown_job(sszip_exchange *exchange);

/*
 Continues an exchange after the job of its `SSZIP_ACTION_RUN_JOB` has run,
 and returns the next action. Frees the job on any status other than
 `SSZIP_STATUS_NULL`.

 # Safety
 `exchange` and `job` are NULL or valid, the job is from that exchange, and
 is not used after the call. `step` points at memory of its type.
 */
sszip_status sszip_exchange_job_done(sszip_exchange *exchange,
                                     sszip_job *job,
                                     sszip_step *step);

/*
 Returns the name of the log variable `number`, counted from 0. Static;
 empty if there is no such variable.
 */
sszip_str sszip_variable_name(size_t number);

/*
 Returns the value of the log variable `number` for the exchange; NULL
 `exchange`: the value for a request without one. NULL `data`: the variable
 has no value. Valid until the next call of this function or of
 `sszip_exchange_probe_path` for the exchange, or the end of the exchange;
 static if `exchange` is NULL.

 # Errors
 `SSZIP_STATUS_INVALID`: there is no such variable; no text is written.

 # Safety
 `exchange` is NULL or valid; `out` points at memory of its type.
 */
sszip_status sszip_exchange_variable(sszip_exchange *exchange,
                                     size_t number,
                                     sszip_str *out);

/* ========================================================================
 * Owner link: connections to the owner of the store, for the event loop only
 * ======================================================================== */

/*
 Next action for the connection to the owner.
 */
typedef enum {
    /*
     No action is needed.
     */
    SSZIP_LINK_NOTHING = 0,
    /*
     Open the connection, then call `sszip_link_connected`.
     */
    SSZIP_LINK_CONNECT = 1,
    /*
     Write the pieces of `sszip_link_output`, and call
     `sszip_link_bytes_written` after each write, until there are none.
     */
    SSZIP_LINK_WRITE = 2,
    /*
     Close the connection.
     */
    SSZIP_LINK_CLOSE = 3,
    /*
     Call `sszip_link_tick`.
     */
    SSZIP_LINK_TICK = 4,
} sszip_link_action;

/*
 Result of opening a connection to the owner.
 */
typedef enum {
    /*
     The connection is open, or its opening is in progress.
     */
    SSZIP_CONNECT_OPEN = 0,
    /*
     The connection could not be opened.
     */
    SSZIP_CONNECT_FAILED = 1,
    /*
     No process listens at the owner's address: the connection was refused,
     or the socket does not exist.
     */
    SSZIP_CONNECT_REFUSED = 2,
} sszip_connect_result;

/*
 Returns the size in bytes of the memory in which all workers of a host
 share their tip floors.
 */
size_t sszip_tip_floors_size(void);

/*
 Attaches the memory in which the workers of the host share their tip
 floors. Call it once, after `sszip_validated_config_start` and before the
 first exchange; without an owner it has no effect. The memory is the
 host's, and is used until the process ends.

 # Safety
 `memory` is NULL or `sszip_tip_floors_size()` bytes, aligned for
 `uint64_t`, which were zero before the first process attached them and stay
 until the process ends.
 */
sszip_status sszip_tip_floors_attach(void *memory);

/*
 Returns the next action for the connection to the owner. Call it until it
 returns `SSZIP_LINK_NOTHING`: after `sszip_validated_config_start`, after
 each other function of this section, and after each call that may send a
 request to the owner (a lookup, a purge, a call that stores a response, and
 the end of an exchange or a job).
 */
sszip_link_action sszip_link_next_action(void);

/*
 Reports the result of opening the connection, an `sszip_connect_result`, at
 the time `now`.
 */
sszip_status sszip_link_connected(uint32_t result, uint64_t now);

/*
 Returns the bytes to write to the connection at the time `now`: at most
 `capacity` pieces, in order, in the host's array `out`, and their number in
 `count`; 0: there is nothing to write. The pieces are valid until the next
 call of a function of this section.

 # Safety
 `out` points at memory for `capacity` of its type, `count` at memory of its
 type.
 */
sszip_status sszip_link_output(sszip_str *out,
                               size_t capacity,
                               size_t *count,
                               uint64_t now);

/*
 Reports that `bytes` bytes of the output were written.
 */
sszip_status sszip_link_bytes_written(size_t bytes);

/*
 Returns the buffer into which the host reads from the connection: `len`
 bytes of the library. Valid until the next call of a function of this
 section.

 # Errors
 `SSZIP_STATUS_MISUSE`: there is no buffer; close the connection.

 # Safety
 The results point at memory of their type.
 */
sszip_status sszip_link_read_buffer(uint8_t **data, size_t *len);

/*
 Reports that `bytes` bytes were read into the buffer of
 `sszip_link_read_buffer`. No other function of this section was called in
 between.
 */
sszip_status sszip_link_bytes_read(size_t bytes, uint64_t now);

/*
 Reports that the owner or the host closed the connection.
 */
sszip_status sszip_link_closed(uint64_t now);

/*
 Ends requests that took too long, and reopens the connection. Returns the
 number of milliseconds after which it must be called again at the latest;
 0: no call is due.
 */
uint64_t sszip_link_tick(uint64_t now);

/*
 Returns a change of the owner's health for the log: once when the owner has
 not responded for some seconds, and once when it responds again; empty: no
 change. Static; the text continues a line that begins with the owner's
 name. Writes to `is_bad`, unless that is NULL, whether the owner does not
 respond. Call it after `sszip_link_tick`.

 # Safety
 `is_bad` is NULL or points at memory of its type.
 */
sszip_str sszip_link_health_change(uint64_t now, bool *is_bad);

/* ========================================================================
 * SSZ: conversion of values, whose results are thread results
 * ======================================================================== */

/*
 Selects an SSZ type by name, fork and preset, and the part of a value that
 is meant; an empty string leaves a member unspecified.
 */
typedef struct {
    /*
     Name of the type as the consensus specifications write it, or a
     JSON-RPC method or the path of a Beacon API route, whose result is
     meant.
     */
    sszip_str name;
    /*
     Name of the fork.
     */
    sszip_str fork;
    /*
     Name of the preset.
     */
    sszip_str preset;
    /*
     Form of a JSON input: "value", the value alone; "answer", the response of
     a node, which contains the value; or "auto", either of them.
     */
    sszip_str form;
    /*
     Path of a part of an SSZ value.
     */
    sszip_str path;
} sszip_ssz_type;

/*
 Converts JSON to SSZ. Writes the value to `out`; on `SSZIP_STATUS_INVALID`
 an error text. `out` is a thread result.

 # Safety
 `ssz_type` is NULL or valid with all that it points at, `json` a valid
 string; `out` points at memory of its type.
 */
sszip_status sszip_json_to_ssz(const sszip_ssz_type *ssz_type,
                               sszip_str json,
                               sszip_str *out);

/*
 Converts SSZ to JSON. Writes the value to `out`; on `SSZIP_STATUS_INVALID`
 an error text. `out` is a thread result.

 # Safety
 `ssz_type` is NULL or valid with all that it points at, `ssz` a valid
 string; `out` points at memory of its type.
 */
sszip_status sszip_ssz_to_json(const sszip_ssz_type *ssz_type,
                               sszip_str ssz,
                               sszip_str *out);

/*
 Checks that SSZ is a valid value of the type. Writes an empty string to
 `out`; on `SSZIP_STATUS_INVALID` an error text. `out` is a thread result.

 # Safety
 `ssz_type` is NULL or valid with all that it points at, `ssz` a valid
 string; `out` points at memory of its type.
 */
sszip_status sszip_ssz_check(const sszip_ssz_type *ssz_type,
                             sszip_str ssz,
                             sszip_str *out);

/*
 Computes the hash tree root of SSZ. Writes it to `out`, as `0x` and 64
 hexadecimal digits; on `SSZIP_STATUS_INVALID` an error text. `out` is a
 thread result.

 # Safety
 `ssz_type` is NULL or valid with all that it points at, `ssz` a valid
 string; `out` points at memory of its type.
 */
sszip_status sszip_ssz_root(const sszip_ssz_type *ssz_type,
                            sszip_str ssz,
                            sszip_str *out);

/* ========================================================================
 * Scripts: functions for programs in the host, with thread results
 * ======================================================================== */

/*
 A call of a JSON-RPC request. Its strings point into the request body, or
 into the library's decoded copy of it.
 */
typedef struct {
    /*
     Name of the method.
     */
    sszip_str method;
    /*
     Raw JSON of the id; NULL `data`: there is none.
     */
    sszip_str id;
    /*
     Raw JSON of the params; NULL `data`: there are none.
     */
    sszip_str params;
} sszip_call;

/*
 Frees the thread result of this thread. Not needed before another call.
 */
void sszip_result_free(void);

/*
 Writes to `out` the value that a program stored under a name in this
 process's memory; NULL `data`: there is none; on `SSZIP_STATUS_INVALID` an
 error text. `out` is a thread result.

 # Safety
 `name` is a valid string; `out` points at memory of its type.
 */
sszip_status sszip_value_get(sszip_str name, uint64_t now, sszip_str *out);

/*
 Stores a value for `ttl` milliseconds. Writes to `out` the request that
 stores it with the owner, which the caller sends unchanged; NULL `data`:
 there is no owner; on `SSZIP_STATUS_INVALID` an error text. `out` is a
 thread result.

 # Safety
 `name` and `value` are valid strings; `out` points at memory of its type.
 */
sszip_status sszip_value_set(sszip_str name,
                             sszip_str value,
                             uint64_t ttl,
                             uint64_t now,
                             sszip_str *out);

/*
 Removes a value. Writes to `out` the request to the owner that purges it in
 all processes; NULL `data`: there is no owner; on `SSZIP_STATUS_INVALID` an
 error text. `out` is a thread result.

 # Safety
 `name` is a valid string; `out` points at memory of its type.
 */
sszip_status sszip_value_delete(sszip_str name, sszip_str *out);

/*
 Writes to `out` the request that looks a value up with the owner, and to
 `generation` the number that `sszip_value_decode_reply` needs; NULL `data`:
 there is no owner; on `SSZIP_STATUS_INVALID` an error text to `out`. `out`
 is a thread result.

 # Safety
 `name` is a valid string; the results point at memory of their type.
 */
sszip_status sszip_value_lookup_request(sszip_str name,
                                        sszip_str *out,
                                        uint64_t *generation);

/*
 Decodes the owner's reply, head and body, to a request of
 `sszip_value_lookup_request`. Writes the value to `out`; NULL `data`: there
 is none; on `SSZIP_STATUS_INVALID` an error text. `out` is a thread result.

 # Safety
 The strings are valid; `out` points at memory of its type.
 */
sszip_status sszip_value_decode_reply(sszip_str name,
                                      sszip_str head,
                                      sszip_str body,
                                      uint64_t generation,
                                      uint64_t now,
                                      sszip_str *out);

/*
 Writes to `out` the response that is stored in this process's memory under
 `key`, 64 hexadecimal digits, with `id`, raw JSON, as the id of its call;
 NULL `data`: there is none; on `SSZIP_STATUS_INVALID` an error text. `out`
 is a thread result.

 # Safety
 The strings are valid; `out` points at memory of its type.
 */
sszip_status sszip_cached_response_get(sszip_str key,
                                       sszip_str id,
                                       uint64_t now,
                                       sszip_str *out);

/*
 Writes to `out` the request to the owner that purges the entries that
 `query` selects (docs/caching.md, Purging); NULL `data`: there is no owner;
 on `SSZIP_STATUS_INVALID` an error text. `out` is a thread result.

 # Safety
 `query` is a valid string; `out` points at memory of its type.
 */
sszip_status sszip_purge_request(sszip_str query, sszip_str *out);

/*
 Parses the head of an owner reply, up to its empty line: writes its status
 code to `status`, and the length of its body in bytes to `length`.

 # Errors
 `SSZIP_STATUS_INVALID`: `head` is no head of an owner reply; no text is
 written.

 # Safety
 `head` is a valid string; the results point at memory of their type.
 */
sszip_status sszip_owner_reply_head(sszip_str head,
                                    uint16_t *status,
                                    size_t *length);

/*
 Compresses `data` to one gzip member with a level of 0 to 12. Writes it to
 `out`; on `SSZIP_STATUS_INVALID` an error text. `out` is a thread result.

 # Safety
 `data` is a valid string; `out` points at memory of its type.
 */
sszip_status sszip_gzip(sszip_str data, uint8_t level, sszip_str *out);

/*
 Decompresses gzip members to at most `max_length` bytes. Writes them to
 `out`; on `SSZIP_STATUS_INVALID` an error text. `out` is a thread result.

 # Safety
 `data` is a valid string; `out` points at memory of its type.
 */
sszip_status sszip_gunzip(sszip_str data,
                          size_t max_length,
                          sszip_str *out);

/*
 Compresses `data` to one zstd frame with a level of 1 to 19. Writes it to
 `out`; on `SSZIP_STATUS_INVALID` an error text. `out` is a thread result.

 # Safety
 `data` is a valid string; `out` points at memory of its type.
 */
sszip_status sszip_zstd(sszip_str data, uint8_t level, sszip_str *out);

/*
 Decompresses zstd frames, with windows of at most 8 MiB, to at most
 `max_length` bytes. Writes them to `out`; on `SSZIP_STATUS_INVALID` an
 error text. `out` is a thread result.

 # Safety
 `data` is a valid string; `out` points at memory of its type.
 */
sszip_status sszip_unzstd(sszip_str data,
                          size_t max_length,
                          sszip_str *out);

/*
 Returns memory for a body of `length` bytes, into which the host writes the
 body before `sszip_calls_parse`; NULL: memory is exhausted. The memory is a
 thread result, and may be passed to one call of `sszip_calls_parse`.
 */
uint8_t *sszip_calls_buffer(size_t length);

/*
 Parses the calls of a request whose headers are `fields`: at most
 `max_calls`, in a body of at most `max_bytes`, which is decompressed if it
 has a content coding. The body is in the host's memory, or in the memory of
 this thread's last `sszip_calls_buffer`. Writes the list of calls to
 `calls` and `ncalls`, and to `is_batch` whether the request is a batch; on
 `SSZIP_STATUS_INVALID` a word for the error to `out`. The list and the word
 are thread results. The strings of the calls point into `body`, which the
 host keeps as long, or into a thread result.

 # Safety
 `fields` are `nfields` valid fields, and `body` is a valid string; the
 results point at memory of their type.
 */
sszip_status sszip_calls_parse(const sszip_header *fields,
                               size_t nfields,
                               sszip_str body,
                               size_t max_bytes,
                               size_t max_calls,
                               const sszip_call **calls,
                               size_t *ncalls,
                               bool *is_batch,
                               sszip_str *out);

/* ========================================================================
 * Status: metrics of all workers, and the status page
 * ======================================================================== */

/*
 Shared memory in which the workers of a host count, and the number of one
 worker. Functions change the memory, not the struct.
 */
typedef struct {
    /*
     `sizeof(sszip_metrics_board)`, so that the struct may grow.
     */
    size_t size;
    /*
     Memory that all workers share, initialized by
     `sszip_metrics_board_init`. The host owns it.
     */
    void *memory;
    /*
     Number of this worker. No other live worker has the same, and one
     thread at a time counts with it.
     */
    size_t worker;
    /*
     Milliseconds of `CLOCK_MONOTONIC`, read for this call.
     */
    uint64_t now;
    /*
     Name and version of the host: "nginx/1.22.1".
     */
    sszip_str host;
} sszip_metrics_board;

/*
 A metric of the host's workers.
 */
typedef struct {
    /*
     Name of the metric.
     */
    sszip_str name;
    /*
     Value of the metric.
     */
    uint64_t number;
} sszip_metric;

/*
 Returns the size in bytes of the memory that the counters occupy.
 */
size_t sszip_metrics_board_size(void);

/*
 Initializes the counters, before the first use. The memory is zeroed, or
 contains counters already. Counters of this version of the library are
 kept; otherwise they begin at 0, and their history at `now`. The memory is
 the host's; the library uses it only in calls to which a
 `sszip_metrics_board` with it is passed.

 # Safety
 `memory` is NULL or points at `sszip_metrics_board_size()` bytes, aligned
 for `uint64_t`, which are used for nothing else as long as boards have it.
 */
sszip_status sszip_metrics_board_init(void *memory, uint64_t now);

/*
 Counts a finished exchange. Later calls for the same exchange count
 nothing.

 # Safety
 `exchange` is NULL or valid; `board` is NULL or valid.
 */
sszip_status sszip_exchange_count(sszip_exchange *exchange,
                                  const sszip_metrics_board *board);

/*
 Counts the verified hits and upstream errors of the process since the last
 call, and updates the gauges of memory and of waiting requests. Call it
 after each event of the host's loop that may end an exchange, and when a
 request begins to wait: no other request may reach this worker for a long
 time.

 # Safety
 `board` is NULL or valid.
 */
sszip_status sszip_metrics_board_set_gauges(const sszip_metrics_board *board);

/*
 Resets the gauges of a worker, when it starts, since it may replace one
 that died, and when it ends. The counters keep their values.

 # Safety
 `board` is NULL or valid.
 */
sszip_status sszip_metrics_board_reset_gauges(const sszip_metrics_board *board);

/*
 Responds to a status request, in place of a lookup and with its actions.
 `method` is the request's method; `request->waiter` must not be 0.

 # Safety
 `exchange` is NULL or valid, `method` and `query` are valid strings;
 `request` is NULL or valid with all that it points at; `board` is NULL or
 valid with all that it points at; `step` points at memory of its type.
 */
sszip_status sszip_exchange_report_status(sszip_exchange *exchange,
                                          sszip_str method,
                                          sszip_str query,
                                          const sszip_lookup_request *request,
                                          const sszip_metrics_board *board,
                                          sszip_step *step);

/*
 Returns the metrics that the workers of the host counted, and updates the
 gauges of this worker. The list and its strings are valid until the same
 thread calls this function again.

 # Safety
 `board` is NULL or valid; the results point at memory of their type.
 */
sszip_status sszip_metrics_board_read(const sszip_metrics_board *board,
                                      const sszip_metric **metrics,
                                      size_t *nmetrics);

#ifdef __cplusplus
}
#endif

#endif /* SSZIP_H */
