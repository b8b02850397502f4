/*
 * The cache's owner as a library, libsszip_owner.so, for a host that has a
 * process for it.  It is to be opened (dlopen) after the last fork, and stays
 * until the process ends.  No call waits, apart from sszip_owner_poll and _stop; one
 * thread at a time uses an owner.  No failure inside the library unwinds into
 * the host.
 */

#ifndef SSZIP_OWNER_H
#define SSZIP_OWNER_H

/* Made from cache-owner/src/ffi.rs by the test `header`; do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 What `sszip_owner_abi` returns if this header fits the library.
 */
#define SSZIP_OWNER_ABI 4

/*
 What an owner is doing. Values are never reused.
 */
typedef enum {
    /*
     Another owner has the store, or there is none to be had: it is tried
     again.
     */
    SSZIP_OWNER_WAITING = 0,
    /*
     It serves.
     */
    SSZIP_OWNER_SERVING = 1,
    /*
     It was stopped, and writes down what it has.
     */
    SSZIP_OWNER_CLOSING = 2,
    /*
     It is over; without a stop only if it can't serve, as the log says.
     */
    SSZIP_OWNER_ENDED = 3,
} sszip_owner_state;

/*
 How much a line of the log matters. Values are never reused.
 */
typedef enum {
    /*
     Something to be expected.
     */
    SSZIP_OWNER_NOTICE = 0,
    /*
     Somebody should look at it.
     */
    SSZIP_OWNER_ERROR = 1,
} sszip_owner_level;

/*
 An owner that was started.
 */
typedef struct sszip_owner sszip_owner;

/*
 What an owner is to be. Zero means the default where one is named.
 */
typedef struct {
    /*
     sizeof(sszip_owner_config).
     */
    size_t size;
    /*
     Where it listens: an absolute path. Only this process's user may
     connect.
     */
    const char *socket;
    /*
     Bytes of it.
     */
    size_t socket_len;
    /*
     The store's folder: an absolute path. It is made if need be.
     */
    const char *path;
    /*
     Bytes of it.
     */
    size_t path_len;
    /*
     What the store may take on disk, in bytes; 10 GiB.
     */
    uint64_t max_size;
    /*
     What entries may take in memory, in bytes; 256 MiB.
     */
    uint64_t memory;
    /*
     The longest entry, in bytes; 64 MiB.
     */
    uint64_t max_entry;
    /*
     Threads that serve; 1.
     */
    uint32_t threads;
    /*
     How long a connection may say nothing, in milliseconds; a minute.
     */
    uint64_t idle_timeout;
    /*
     How often what the store has in memory is written down, in
     milliseconds; a minute.
     */
    uint64_t flush_interval;
    /*
     For how long what nobody asks for is kept, in milliseconds; for as long
     as there is room.
     */
    uint64_t inactive;
    /*
     Not zero: entries that never change are not made smaller before they go
     to the disk.
     */
    uint8_t no_recompress;
    /*
     The nodes that are followed, one for a namespace; none. JSON: an array
     that has for each an array of strings, the name of the namespace and
     then the words of README's sszip_cache_head:
     [["mainnet", "http://127.0.0.1:8545", "interval=500ms"]].
     */
    const char *heads;
    /*
     Bytes of it.
     */
    size_t heads_len;
} sszip_owner_config;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The ABI that the library has: it must be SSZIP_OWNER_ABI.
 */
uint32_t sszip_owner_abi(void);

/*
 The version that the library is of, ended by NUL; there since ABI 4. Static.
 */
const char *sszip_owner_version(void);

/*
 Starts an owner, in threads that take no signals, and returns at once. To
 be called after any fork; the process must not fork afterwards. NULL if
 that fails; `error`, of `error_size` bytes, says why then, ended by NUL.

 # Safety
 As the header says: `config` points at a sszip_owner_config whose strings
 are readable; `error` at so many writable bytes, or it is NULL and the size
 0.
 */
sszip_owner *sszip_owner_start(const sszip_owner_config *config,
                               char *error,
                               size_t error_size);

/*
 What it is doing. SSZIP_OWNER_ENDED for NULL. An attempt to open the store
 begins while this is called, and only then, and is waited for, so that the
 process does not exit meanwhile: to be called until it serves, and now and
 then. Until it does a call takes as long as an attempt, but not more than
 `limit` milliseconds, of which 10 are enough to begin one. With fewer than it
 takes the process has to stop the owner before it exits. A handler of atexit
 that is to stop it has to be registered when it serves.

 # Safety
 `owner` is NULL or from sszip_owner_start, and was not stopped.
 */
sszip_owner_state sszip_owner_poll(const sszip_owner *owner,
                                   uint64_t limit);

/*
 Takes the oldest line of its log: whether there was one. It is written to
 `line`, of `line_size` bytes, and ended by NUL; what is beyond is cut off.
 Never waits; to be called now and then.

 # Safety
 `owner` is NULL or from sszip_owner_start, and was not stopped; `level` and
 `line` are writable.
 */
bool sszip_owner_log(const sszip_owner *owner,
                     sszip_owner_level *level,
                     char *line,
                     size_t line_size);

/*
 Asks it to end, and returns at once: sszip_owner_poll says when it has.

 # Safety
 `owner` is NULL or from sszip_owner_start, and was not stopped.
 */
void sszip_owner_end(const sszip_owner *owner);

/*
 Ends it: what it has in memory is stored, and the socket removed. Waits for
 `limit` milliseconds at most; false if it has not ended by then, and goes on
 ending: the process should exit. `owner` must not be used any more in any
 case. NULL has ended.

 # Safety
 `owner` is NULL or from sszip_owner_start, and was not stopped.
 */
bool sszip_owner_stop(sszip_owner *owner,
                      uint64_t limit);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SSZIP_OWNER_H */
