/* A host: opens the library in a child process, and runs an owner there.
 *
 *   library LIBRARY SOCKET STORE
 *
 * Prints the log; ends on any line of its input, or at the end of it. */

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sszip_owner.h"


static uint32_t   (*owner_abi)(void);
static uint64_t   (*owner_run)(const sszip_owner_config *, bool,
                               sszip_owner_log, bool *);
static bool       (*owner_exit)(sszip_owner_log);
static sszip_owner_lookup_result (*direct_lookup)(uint64_t, const uint8_t *,
                                                  uint32_t, uint16_t,
                                                  sszip_owner_found, void *);
static bool       (*direct_store)(uint64_t, const sszip_owner_store *);
static bool       (*direct_release)(uint64_t, const uint8_t *);

/* the last line of the log */
static char         last_line[200];


static void *
symbol(void *library, const char *name)
{
    void  *found;

    found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }

    return found;
}


static void
log_line(sszip_owner_level level, const char *line)
{
    snprintf(last_line, sizeof(last_line), "%d %s", (int) level, line);
    printf("%s\n", last_line);
    fflush(stdout);
}


static int
refuses(const sszip_owner_config *config, const char *expected)
{
    bool  serves = true;

    if (owner_run(config, false, log_line, &serves) < 1000
        || serves
        || strncmp(last_line, "1 cannot start the owner of the store: ", 39) != 0
        || strstr(last_line, expected) == NULL)
    {
        fprintf(stderr, "\"%s\" is not \"%s\"\n", last_line, expected);
        return 0;
    }

    /* without a log function */
    return owner_run(config, false, NULL, NULL) >= 1000 && owner_exit(NULL);
}


static void
found_entry(void *context, const sszip_owner_entry *entry)
{
    (void) entry;
    *(bool *) context = true;
}


/* there is no session, so that no direct call is handled */
static int
handles_no_direct_call(void)
{
    bool               found;
    uint8_t            key[32];
    sszip_owner_store  store;

    found = false;
    memset(key, 7, sizeof(key));
    memset(&store, 0, sizeof(store));

    return direct_lookup(1, key, 1000, 20, found_entry, &found)
               == SSZIP_OWNER_NOT_HANDLED
           && direct_lookup(1, NULL, 0, 0, found_entry, &found)
               == SSZIP_OWNER_NOT_HANDLED
           && direct_lookup(1, key, 0, 0, NULL, NULL) == SSZIP_OWNER_NOT_HANDLED
           && !found
           && !direct_store(1, &store) && !direct_store(1, NULL)
           && !direct_release(1, key) && !direct_release(1, NULL);
}


static int
run(char **argv)
{
    bool                 serves;
    void                *library;
    char                 heads[64];
    uint64_t             ms;
    struct pollfd        input;
    sigset_t             before, after;
    sszip_owner_config   config, other;

    library = dlopen(argv[1], RTLD_NOW|RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }

    *(void **) &owner_abi = symbol(library, "sszip_owner_abi");
    *(void **) &owner_run = symbol(library, "sszip_owner_run");
    *(void **) &owner_exit = symbol(library, "sszip_owner_exit");

    *(void **) &direct_lookup = symbol(library, "sszip_owner_direct_lookup");
    *(void **) &direct_store = symbol(library, "sszip_owner_direct_store");
    *(void **) &direct_release = symbol(library, "sszip_owner_direct_release");

    if (owner_abi() != SSZIP_OWNER_ABI) {
        return 2;
    }

    if (!handles_no_direct_call()) {
        return 8;
    }

    if (!refuses(NULL, "the configuration is missing") || !owner_exit(log_line)) {
        return 3;
    }

    memset(&config, 0, sizeof(config));
    if (!refuses(&config, "another version")) {
        return 3;
    }

    config.size = sizeof(config);
    if (!refuses(&config, "socket is missing")) {
        return 3;
    }

    config.socket = argv[2];
    config.socket_len = strlen(argv[2]);
    other = config;
    other.path = "relative";
    other.path_len = strlen("relative");
    if (!refuses(&config, "path is missing")
        || !refuses(&other, "not an absolute path"))
    {
        return 3;
    }

    other = config;
    other.path = argv[3];
    other.path_len = strlen(argv[3]);
    other.heads = "[[\"main\",\"http://node\",\"api=x\"]]";
    other.heads_len = strlen(other.heads);
    if (!refuses(&other, "the head source of \"main\" has an invalid value")) {
        return 3;
    }

    other.heads = NULL;
    other.heads_len = 0;
    other.fleet = "{\"url\":\"redis+clusters://a\"}";
    other.fleet_len = strlen(other.fleet);
    if (!refuses(&other, "the fleet has an invalid value \"redis+clusters")) {
        return 3;
    }

    /* the heads are read during the call only */
    strcpy(heads, "[[\"main\",\"http://node/secret\"],[\"b\",\"unix:/s\"]]");
    config.heads = heads;
    config.heads_len = strlen(heads);
    config.path = argv[3];
    config.path_len = strlen(argv[3]);
    config.max_size = 64 << 20;

    pthread_sigmask(SIG_SETMASK, NULL, &before);
    (void) owner_run(&config, true, log_line, &serves);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    memset(heads, 'x', sizeof(heads));

    if (sigismember(&before, SIGTERM) != sigismember(&after, SIGTERM)) {
        return 5;
    }

    /* the library stays after dlclose, and needs no configuration any more */
    dlclose(library);

    do {
        ms = owner_run(NULL, false, log_line, &serves);

        if (ms > (serves ? 250 : 20)) {
            return 6;
        }

        if (!handles_no_direct_call()) {
            return 8;
        }

        input.fd = 0;
        input.events = POLLIN;
    } while (poll(&input, 1, 10) == 0);

    if (!owner_exit(log_line) || !owner_exit(log_line)) {
        return 7;
    }

    return handles_no_direct_call() ? 0 : 8;
}


int
main(int argc, char **argv)
{
    int    status;
    pid_t  child;

    if (argc != 4) {
        return 2;
    }

    child = fork();
    if (child == 0) {
        exit(run(argv));
    }

    if (child == -1 || waitpid(child, &status, 0) != child) {
        return 2;
    }

    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
