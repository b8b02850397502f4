/*
 * The cache's owner as a library, libsszip_owner.so, for a host that has a
 * process for it.  It is to be opened (dlopen) after the last fork, and stays
 * until the process ends.  One thread calls it.  No failure inside the library
 * unwinds into the host.
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
#define SSZIP_OWNER_ABI 5

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

/*
 Takes a line of the log, ended by NUL; valid during the call.
 */
typedef void (*sszip_owner_say)(sszip_owner_level level, const char *line);

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
 Starts the process's owner unless it runs, in threads that take no signals,
 and takes it further: to be called after any fork, and again after as many
 milliseconds as are returned; the process must not fork afterwards. `config`
 is looked at only when one is started, which is tried again when it has
 ended. What there is to log goes to `say`.

 An attempt to open the store begins while this is called, and only then, and
 is waited for, so that the process does not exit meanwhile: for two seconds
 at most, or just long enough to begin one, if it has `others` to serve. Such a
 process has to call sszip_owner_exit before it exits. A handler of atexit that
 does so has to be registered when the owner runs, and again once it `serves`.

 # Safety
 As the header says: `config` points at a sszip_owner_config whose strings
 are readable; `say` is a function, or NULL; `serves` is writable, or NULL.
 */
uint64_t sszip_owner_run(const sszip_owner_config *config,
                         bool others,
                         sszip_owner_say say,
                         bool *serves);

/*
 Ends the process's owner, if there is one: what it has in memory is stored,
 and the socket removed. Waits for two seconds at most; false if it has not
 ended by then, and goes on ending: the process has to exit without
 destroying what its threads use.

 # Safety
 `say` is a function, or NULL.
 */
bool sszip_owner_exit(sszip_owner_say say);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SSZIP_OWNER_H */
