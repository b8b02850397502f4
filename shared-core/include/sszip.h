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
} sszip_status;

/*
 What to do with a response head.
 */
typedef enum {
    /*
     Make the head edits, send it, let the body through.
     */
    SSZIP_HEAD_PASS = 0,
    /*
     Keep it back and hand over the body.
     */
    SSZIP_HEAD_HOLD = 1,
    /*
     Make the head edits, send it, and the body through
     `sszip_exchange_stream`.
     */
    SSZIP_HEAD_STREAM = 2,
} sszip_head_action;

/*
 What to do with a piece of a held body.
 */
typedef enum {
    /*
     It was copied: let go of it.
     */
    SSZIP_PIECE_TAKEN = 0,
    /*
     Make the head edits, send the head, `sszip_exchange_body`, then this
     piece and the rest.
     */
    SSZIP_PIECE_GIVE_UP = 1,
    /*
     Make the head edits, send the head, and this piece and the rest through
     `sszip_exchange_stream`.
     */
    SSZIP_PIECE_STREAM = 2,
} sszip_piece_action;

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
 What to do at the end of a held body.
 */
typedef enum {
    /*
     Call `sszip_exchange_code` now.
     */
    SSZIP_END_CODE = 0,
    /*
     Call `sszip_exchange_code` on a thread that serves no connections.
     */
    SSZIP_END_CODE_OFF_LOOP = 1,
    /*
     The body is not whole: answer 502.
     */
    SSZIP_END_FAIL = 2,
    /*
     Make the head edits, send the head, and finish the stream with
     `sszip_exchange_stream`.
     */
    SSZIP_END_STREAM = 3,
    /*
     Make the head edits, send the head and `sszip_exchange_body`.
     */
    SSZIP_END_GIVE_UP = 4,
} sszip_end_action;

/*
 The settings of a place, ready for exchanges. Immutable.
 */
typedef struct sszip_config sszip_config;

/*
 What one block of a configuration says.
 */
typedef struct sszip_directives sszip_directives;

/*
 One HTTP exchange: one a request. docs/exchange.md has the order of calls.
 */
typedef struct sszip_exchange sszip_exchange;

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

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The name of a mode as `sszip_exchange_mode` gives it, for logs. Static.
 Empty for a number that is no mode.
 */
sszip_str sszip_mode_name(uint8_t mode);

/*
 An empty block.

 # Safety
 `out` points at memory of its type.
 */
sszip_status sszip_directives_new(sszip_directives **out);

/*
 Takes the directive `name` (`enable`, `types`, `min_length`, `comp_level`,
 `max_oneshot`, `memory`, `upstream_encoding`) with its arguments.

 On `SSZIP_STATUS_INVALID` a text that says what is allowed, for the
 operator, is written to `text`, cut to `text_size` bytes and without a NUL;
 `text_len` is its length. Nothing has changed then.

 # Safety
 `directives` is NULL or from `sszip_directives_new` and not freed; `values`
 are `nvalues` valid strings; `text` has room for `text_size` bytes.
 */
sszip_status sszip_directives_set(sszip_directives *directives,
                                  sszip_str name,
                                  const sszip_str *values,
                                  size_t nvalues,
                                  uint8_t *text,
                                  size_t text_size,
                                  size_t *text_len);

/*
 Takes from the enclosing block what this one does not say.

 # Safety
 Both are NULL or from `sszip_directives_new`, not freed, and not the same.
 */
sszip_status sszip_directives_inherit(sszip_directives *directives,
                                      const sszip_directives *outer);

/*
 # Safety
 `directives` is NULL or from `sszip_directives_new` and not freed.
 */
void sszip_directives_free(sszip_directives *directives);

/*
 The settings that `directives` say, with defaults for the rest.

 # Safety
 `directives` is NULL or from `sszip_directives_new` and not freed.
 */
sszip_status sszip_config_new(const sszip_directives *directives,
                              sszip_config **out);

/*
 Whether sszip acts at a place with these settings. `false` for NULL.

 # Safety
 `config` is NULL or from `sszip_config_new` and not freed.
 */
bool sszip_config_enabled(const sszip_config *config);

/*
 Exchanges made from it go on.

 # Safety
 `config` is NULL or from `sszip_config_new` and not freed.
 */
void sszip_config_free(sszip_config *config);

/*
 A new exchange at a place with these settings.

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
 `exchange` is NULL or valid; `method` and the `nfields` fields are valid
 strings.
 */
sszip_status sszip_exchange_request_head(sszip_exchange *exchange,
                                         sszip_str method,
                                         const sszip_field *fields,
                                         size_t nfields);

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
 response passes without an edit.

 # Safety
 `exchange` is NULL or valid; `head` is NULL or valid with all that it
 points at; `action` points at memory of its type.
 */
sszip_status sszip_exchange_response_head(sszip_exchange *exchange,
                                          const sszip_response_head *head,
                                          sszip_head_action *action);

/*
 A piece of a held body. Copies it. If the library fails inside, the
 exchange gives up.

 # Safety
 `exchange` is NULL or valid, `piece` a valid string; `action` points at
 memory of its type.
 */
sszip_status sszip_exchange_piece(sszip_exchange *exchange,
                                  sszip_str piece,
                                  sszip_piece_action *action);

/*
 The time to hold a head is over, or the node flushes. On
 `SSZIP_PIECE_TAKEN` the host goes on holding.

 # Safety
 `exchange` is NULL or valid; `action` points at memory of its type.
 */
sszip_status sszip_exchange_release(sszip_exchange *exchange,
                                    sszip_piece_action *action);

/*
 For how long a held head, or what the encoder keeps of a stream, may be
 held, in milliseconds; negative: until the body ends.

 # Safety
 `exchange` is NULL or valid; `out` points at memory of its type.
 */
sszip_status sszip_exchange_hold_ms(const sszip_exchange *exchange,
                                    int64_t *out);

/*
 Codes what was held, then `piece`, into `output`, as much as there is room
 for. On any status but `SSZIP_STATUS_OK` the answer must be cut off visibly.

 # Safety
 `exchange` is NULL or valid, `piece` a valid string; `output` has room for
 `room` bytes; `progress` points at memory of its type.
 */
sszip_status sszip_exchange_stream(sszip_exchange *exchange,
                                   sszip_str piece,
                                   sszip_flush flush,
                                   uint8_t *output,
                                   size_t room,
                                   sszip_progress *progress);

/*
 The host saw the end of a held body.

 # Safety
 `exchange` is NULL or valid; `action` points at memory of its type.
 */
sszip_status sszip_exchange_end(sszip_exchange *exchange,
                                sszip_end_action *action);

/*
 The node went away while the head is held or the body streams.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_status sszip_exchange_cut_short(sszip_exchange *exchange);

/*
 Runs the coder, milliseconds for each megabyte; any thread may call it,
 while no other uses the exchange. If the library fails inside, the body is
 the original.

 # Safety
 `exchange` is NULL or valid.
 */
sszip_status sszip_exchange_code(sszip_exchange *exchange);

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
 `exchange` is NULL or valid; `out` points at memory of its type.
 */
sszip_status sszip_exchange_varies(const sszip_exchange *exchange,
                                   bool *out);

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
 Bytes to send right after the head. They stay as they are until
 `sszip_exchange_free`.

 # Safety
 `exchange` is NULL or valid; `out` points at memory of its type.
 */
sszip_status sszip_exchange_body(const sszip_exchange *exchange,
                                 sszip_str *out);

/*
 What happened to the answer, for `sszip_mode_name`.

 # Safety
 `exchange` is NULL or valid; `out` points at memory of its type.
 */
sszip_status sszip_exchange_mode(const sszip_exchange *exchange,
                                 uint8_t *out);

/*
 Bytes of the body as the node sent it and as the client gets it; the first
 is 0 where the body was not coded.

 # Safety
 `exchange` is NULL or valid; the results point at memory of their type.
 */
sszip_status sszip_exchange_sizes(const sszip_exchange *exchange,
                                  uint64_t *received,
                                  uint64_t *sent);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SSZIP_H */
