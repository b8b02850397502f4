/*
 * The owner of the cache as a library, libsszip_owner.so, for a host that
 * provides a process for it.  The host opens it (dlopen) after the last fork,
 * and it stays loaded until the process ends.  One thread calls it, except for
 * direct calls.  No failure inside the library unwinds into the host.
 */

#ifndef SSZIP_OWNER_H
#define SSZIP_OWNER_H

/* Made from cache-owner/src/ffi.rs by the test `header`; do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 The value that `sszip_owner_abi` returns if this header fits the library.
 */
#define SSZIP_OWNER_ABI 7

/*
 The severity of a log line. Values are never reused.
 */
typedef enum {
    /*
     A notice that needs no action.
     */
    SSZIP_OWNER_NOTICE = 0,
    /*
     An error that an operator should look at.
     */
    SSZIP_OWNER_ERROR = 1,
} sszip_owner_level;

/*
 The result of a direct lookup. Values are never reused.
 */
typedef enum {
    /*
     The call was not handled: send the lookup over a connection.
     */
    SSZIP_OWNER_NOT_HANDLED = 0,
    /*
     The entry exists, and was passed to the function.
     */
    SSZIP_OWNER_FOUND = 1,
    /*
     The entry is absent, and no lease was requested.
     */
    SSZIP_OWNER_MISSING = 2,
    /*
     The entry is absent, and the process has the lease.
     */
    SSZIP_OWNER_LEASE_GRANTED = 3,
    /*
     The entry is absent, and another process has the lease: an event follows.
     */
    SSZIP_OWNER_LEASE_PENDING = 4,
    /*
     The entry is absent, and the maximum number of leases is reached.
     */
    SSZIP_OWNER_LEASES_FULL = 5,
} sszip_owner_lookup_result;

/*
 The settings of an owner. Zero means the default, if one is named.
 */
typedef struct {
    /*
     sizeof(sszip_owner_config).
     */
    size_t size;
    /*
     Absolute path of the socket. Only the user of this process may
     connect.
     */
    const char *socket;
    /*
     Length of `socket` in bytes.
     */
    size_t socket_len;
    /*
     Absolute path of the store's directory, which is created if needed.
     */
    const char *path;
    /*
     Length of `path` in bytes.
     */
    size_t path_len;
    /*
     Maximum size of the store on disk in bytes; default 10 GiB.
     */
    uint64_t max_size;
    /*
     Maximum size of the entries in memory in bytes; default 256 MiB.
     */
    uint64_t memory;
    /*
     Maximum length of an entry in bytes; default 64 MiB.
     */
    uint64_t max_entry;
    /*
     Number of threads that serve; default 1.
     */
    uint32_t threads;
    /*
     Idle timeout of a connection in milliseconds; default one minute.
     */
    uint64_t idle_timeout;
    /*
     Interval between flushes of the store in milliseconds; default one
     minute.
     */
    uint64_t flush_interval;
    /*
     Inactivity period in milliseconds after which entries are removed;
     by default they stay as long as there is space.
     */
    uint64_t inactive;
    /*
     Not zero: entries that never change are not recompressed before they
     are written to disk.
     */
    uint8_t no_recompress;
    /*
     The followed nodes, at most one per namespace; default none. JSON: an
     array with an array of strings per node, which has the name of the
     namespace and then the arguments of the directive sszip_cache_head
     (docs/directives.md):
     [["mainnet", "http://127.0.0.1:8545", "interval=500ms"]].
     */
    const char *heads;
    /*
     Length of `heads` in bytes.
     */
    size_t heads_len;
    /*
     The fleet through which entries are shared; default none. JSON: an
     object as sszip_validated_config_store returns it, whose member `url`
     is an argument of the directive sszip_cache_fleet.
     */
    const char *fleet;
    /*
     Length of `fleet` in bytes.
     */
    size_t fleet_len;
} sszip_owner_config;

/*
 Receives a log line that ends with NUL and is valid during the call.
 */
typedef void (*sszip_owner_log)(sszip_owner_level level, const char *line);

/*
 An entry that a direct lookup has found.
 */
typedef struct {
    /*
     Generation of the newest purge before the lookup.
     */
    uint64_t generation;
    /*
     Remaining lifetime in milliseconds.
     */
    uint64_t fresh;
    /*
     Milliseconds since the request was sent to the node.
     */
    uint64_t age;
    /*
     The serialized entry, valid during the call.
     */
    const uint8_t *bytes;
    /*
     Length of `bytes`.
     */
    size_t length;
} sszip_owner_entry;

/*
 Receives the entry that a direct lookup has found, and the lookup's
 `context`.
 */
typedef void (*sszip_owner_found)(void *context,
                                  const sszip_owner_entry *entry);

/*
 An entry that a direct call stores.
 */
typedef struct {
    /*
     Head of the message Store (docs/owner-protocol.md).
     */
    const uint8_t *head;
    /*
     Length of `head`.
     */
    size_t head_len;
    /*
     First part of the serialized entry.
     */
    const uint8_t *first;
    /*
     Length of `first`.
     */
    size_t first_len;
    /*
     The rest of the serialized entry.
     */
    const uint8_t *rest;
    /*
     Length of `rest`.
     */
    size_t rest_len;
} sszip_owner_store;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the ABI of the library, which must be SSZIP_OWNER_ABI.
 */
uint32_t sszip_owner_abi(void);

/*
 Returns the version of the library, a static string that ends with NUL.
 Exists since ABI 4.
 */
const char *sszip_owner_version(void);

/*
 Starts the owner of this process unless it runs, on threads that take no
 signals, and advances it. The host calls this after any fork, and again
 after the returned number of milliseconds; the process must not fork
 afterwards. `config` is read only when an owner is started; when the owner
 has ended, the next call starts one again. Log lines go to `log`.

 An attempt to open the store begins only during this call, which waits for
 it so that the process does not exit in the meantime: for two seconds at
 most, or just long enough to begin an attempt if the process has `others` to
 serve. Such a process must call sszip_owner_exit before it exits. An atexit
 handler that does so must be registered when the owner runs, and again once
 it `serves`.

 # Safety
 `config` points at a sszip_owner_config whose strings are readable; `log` is
 a function, or NULL; `serves` is writable, or NULL.
 */
uint64_t sszip_owner_run(const sszip_owner_config *config,
                         bool others,
                         sszip_owner_log log,
                         bool *serves);

/*
 Stops the owner of this process, if there is one: the entries in its memory
 are stored, and the socket is removed. Waits for two seconds at most. Returns
 false if the owner has not ended by then; it continues to end, and the process
 must exit without destroying what its threads use.

 # Safety
 `log` is a function, or NULL.
 */
bool sszip_owner_exit(sszip_owner_log log);

/*
 Looks up a key, of 32 bytes, for the session of this process with that
 number, as the message Lookup does. `lease` is the maximum duration of the
 lease that is requested if there is no entry, in milliseconds; 0: none is
 requested. `fleet_wait` is the time for which the process can wait for an
 entry of another machine, in milliseconds; 0: the response is not shared
 between machines. An entry is passed to `found` before this returns.

 Direct calls replace messages of a session that this process has opened over
 a connection to the owner that runs in it (docs/owner-protocol.md, Direct
 calls). They never wait, and any thread may make them at any time, also while
 the owner starts and stops. Exist since ABI 6.

 # Safety
 `key` points at 32 readable bytes; `found` is a function that does not
 unwind, or NULL.
 */
sszip_owner_lookup_result sszip_owner_direct_lookup(uint64_t session,
                                                    const uint8_t *key,
                                                    uint32_t lease,
                                                    uint16_t fleet_wait,
                                                    sszip_owner_found found,
                                                    void *context);

/*
 Stores an entry that the session of this process with that number has
 fetched, and ends its lease, as the message Store does; the owner copies the
 entry. Returns false if the call was not handled: send the entry over a
 connection. See sszip_owner_direct_lookup.

 # Safety
 `store` is NULL, or points at a sszip_owner_store whose parts are readable.
 */
bool sszip_owner_direct_store(uint64_t session,
                              const sszip_owner_store *store);

/*
 Ends a lease of the session of this process with that number, on a key of 32
 bytes, as the message Release does. Returns false if the call was not
 handled: send the message over a connection. See sszip_owner_direct_lookup.

 # Safety
 `key` is NULL, or points at 32 readable bytes.
 */
bool sszip_owner_direct_release(uint64_t session,
                                const uint8_t *key);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SSZIP_OWNER_H */
