/* What a host does: opens the library in a child, and runs an owner there.
 *
 *   library LIBRARY SOCKET STORE
 *
 * Prints the log; ends on any line of its input, or its end. */

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sszip_owner.h"


static uint32_t            (*owner_abi)(void);
static sszip_owner        *(*owner_start)(const sszip_owner_config *, char *,
                                          size_t);
static sszip_owner_state   (*owner_poll)(const sszip_owner *, uint64_t);
static bool                (*owner_log)(const sszip_owner *,
                                        sszip_owner_level *, char *, size_t);
static bool                (*owner_stop)(sszip_owner *, uint64_t);


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
print_log(sszip_owner *owner)
{
    char               line[200];
    sszip_owner_level  level;

    while (owner_log(owner, &level, line, sizeof(line))) {
        printf("%d %s\n", (int) level, line);
    }

    fflush(stdout);
}


static int
refuses(sszip_owner_config config, const char *expected)
{
    char  error[64];

    memset(error, 'x', sizeof(error));
    if (owner_start(&config, error, sizeof(error)) != NULL
        || strstr(error, expected) == NULL)
    {
        fprintf(stderr, "\"%.64s\" is not \"%s\"\n", error, expected);
        return 0;
    }

    /* cut off, and ended all the same */
    if (owner_start(&config, error, 4) != NULL || error[3] != '\0') {
        return 0;
    }

    return owner_start(&config, NULL, 0) == NULL;
}


static int
run(char **argv)
{
    int                  is_new;
    void                *library;
    char                 error[200], heads[64];
    struct pollfd        input;
    sigset_t             before, after;
    sszip_owner         *owner;
    sszip_owner_config   config, other;

    library = dlopen(argv[1], RTLD_NOW|RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }

    *(void **) &owner_abi = symbol(library, "sszip_owner_abi");
    *(void **) &owner_start = symbol(library, "sszip_owner_start");
    *(void **) &owner_poll = symbol(library, "sszip_owner_poll");
    *(void **) &owner_log = symbol(library, "sszip_owner_log");
    *(void **) &owner_stop = symbol(library, "sszip_owner_stop");

    if (owner_abi() != SSZIP_OWNER_ABI) {
        return 2;
    }

    if (owner_start(NULL, error, sizeof(error)) != NULL
        || owner_poll(NULL, 0) != SSZIP_OWNER_ENDED
        || owner_log(NULL, NULL, NULL, 0)
        || !owner_stop(NULL, 0))
    {
        return 3;
    }

    memset(&config, 0, sizeof(config));
    if (!refuses(config, "another version")) {
        return 3;
    }

    config.size = sizeof(config);
    if (!refuses(config, "socket is missing")) {
        return 3;
    }

    config.socket = argv[2];
    config.socket_len = strlen(argv[2]);
    other = config;
    other.path = "relative";
    other.path_len = strlen("relative");
    if (!refuses(config, "path is missing")
        || !refuses(other, "not an absolute path"))
    {
        return 3;
    }

    other = config;
    other.path = argv[3];
    other.path_len = strlen(argv[3]);
    other.heads = "[[\"main\",\"http://node\",\"api=x\"]]";
    other.heads_len = strlen(other.heads);
    if (!refuses(other, "the head of \"main\" has an invalid value")) {
        return 3;
    }

    /* the heads are read, and not kept */
    strcpy(heads, "[[\"main\",\"http://node/secret\"],[\"b\",\"unix:/s\"]]");
    config.heads = heads;
    config.heads_len = strlen(heads);
    config.path = argv[3];
    config.path_len = strlen(argv[3]);
    config.max_size = 64 << 20;

    is_new = access(argv[3], F_OK) != 0;

    pthread_sigmask(SIG_SETMASK, NULL, &before);
    owner = owner_start(&config, error, sizeof(error));
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    memset(heads, 'x', sizeof(heads));
    if (owner == NULL) {
        fprintf(stderr, "%s\n", error);
        return 4;
    }

    if (sigismember(&before, SIGTERM) != sigismember(&after, SIGTERM)) {
        return 5;
    }

    /* it stays whoever closes it */
    dlclose(library);

    /* nothing is opened before somebody waits for it */
    (void) poll(NULL, 0, 100);
    print_log(owner);
    if (is_new && access(argv[3], F_OK) == 0) {
        return 8;
    }

    do {
        (void) owner_poll(owner, 2000);
        print_log(owner);
        input.fd = 0;
        input.events = POLLIN;
    } while (poll(&input, 1, 10) == 0);

    if (owner_poll(owner, 2000) == SSZIP_OWNER_ENDED) {
        print_log(owner);
        return 6;
    }

    return owner_stop(owner, 20000) ? 0 : 7;
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
