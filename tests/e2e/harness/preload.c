/*
 * Fault injection: a library that is preloaded into the nginx or Envoy under test.
 * It fails the memory allocations that the test selects, or makes them wait,
 * measures how many bytes the event loop reads in one turn, and delays a process's
 * disk writes.  The test controls it through a page of memory that both processes
 * have mapped.
 */

#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>


/* harness/preload.py declares the same fields in the same order */

struct page {
    /* allocations that fail */
    uint64_t  pid;          /* process whose allocations fail; 0: none */
    uint64_t  from;         /* minimum size of such an allocation, bytes */
    uint64_t  to;           /* maximum size of such an allocation, bytes */
    uint64_t  caller;       /* 1: the program itself; 2: a library */
    uint64_t  thread;       /* 1: the main thread; 2: other threads; 0: any */
    uint64_t  skip;         /* number of matching allocations that succeed first */
    uint64_t  most;         /* maximum number of allocations that fail */

    uint64_t  seen;         /* number of matching allocations */
    uint64_t  refused;
    uint64_t  hold;         /* 1: matching allocations wait until it is 0 */

    /* reads */
    uint64_t  reader;       /* process whose reads from Unix sockets are counted */
    uint64_t  patience;     /* ms to wait for a slow peer's next bytes */
    uint64_t  total;        /* bytes read */
    uint64_t  turn;         /* bytes read in this turn of the event loop */
    uint64_t  longest;      /* maximum of `turn` */

    /* slow disk */
    uint64_t  writer;       /* process whose disk is slow; UINT64_MAX: every process */
    uint64_t  delay;        /* ms by which each fdatasync() and fsync() is delayed */
    uint64_t  delayed;      /* number of delayed calls */
};


static struct page   *page;
static uintptr_t      program_start, program_end;

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static int (*next_posix_memalign)(void **, size_t, size_t);
static ssize_t (*next_recv)(int, void *, size_t, int);
static int (*next_epoll_wait)(int, struct epoll_event *, int, int);
static int (*next_fdatasync)(int);
static int (*next_fsync)(int);
static void *(*next_dlopen)(const char *, int);


static int
find_program(struct dl_phdr_info *info, size_t size, void *data)
{
    int        i;
    uintptr_t  start, end;

    (void) size;
    (void) data;

    for (i = 0; i < info->dlpi_phnum; i++) {

        if (info->dlpi_phdr[i].p_type != PT_LOAD) {
            continue;
        }

        start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        end = start + info->dlpi_phdr[i].p_memsz;

        if (program_end == 0 || start < program_start) {
            program_start = start;
        }

        if (end > program_end) {
            program_end = end;
        }
    }

    /* dl_iterate_phdr() reports the program first: stop */

    return 1;
}


__attribute__((constructor)) static void
prepare(void)
{
    int          fd;
    void        *mapped;
    const char  *path;

    path = getenv("SSZIP_PRELOAD_PAGE");

    if (path == NULL) {
        return;
    }

    (void) dl_iterate_phdr(find_program, NULL);

    fd = open(path, O_RDWR);

    if (fd == -1) {
        abort();
    }

    mapped = mmap(NULL, sizeof(struct page), PROT_READ|PROT_WRITE, MAP_SHARED,
                  fd, 0);

    if (mapped == MAP_FAILED) {
        abort();
    }

    (void) close(fd);

    page = mapped;
}


static int
is_refused(size_t size, void *caller)
{
    pid_t      pid;
    uint64_t   kind, thread, seen;

    if (page == NULL || page->pid == 0 || size < page->from || size > page->to)
    {
        return 0;
    }

    pid = getpid();

    if ((uint64_t) pid != page->pid) {
        return 0;
    }

    kind = ((uintptr_t) caller >= program_start
            && (uintptr_t) caller < program_end) ? 1 : 2;

    thread = (syscall(SYS_gettid) == pid) ? 1 : 2;

    if (kind != page->caller || (page->thread && thread != page->thread)) {
        return 0;
    }

    seen = __atomic_fetch_add(&page->seen, 1, __ATOMIC_RELAXED);

    while (__atomic_load_n(&page->hold, __ATOMIC_RELAXED)) {
        (void) poll(NULL, 0, 1);
    }

    if (seen < page->skip || seen - page->skip >= page->most) {
        return 0;
    }

    (void) __atomic_fetch_add(&page->refused, 1, __ATOMIC_RELAXED);

    return 1;
}


void *
malloc(size_t size)
{
    if (next_malloc == NULL) {
        next_malloc = (void *(*)(size_t)) dlsym(RTLD_NEXT, "malloc");
    }

    if (is_refused(size, __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }

    return next_malloc(size);
}


void *
calloc(size_t n, size_t size)
{
    static char    early[4096];
    static size_t  used;
    void          *p;

    if (next_calloc == NULL) {

        /* dlsym() may call calloc() itself; that memory belongs to no allocator */

        if (used != 0) {
            p = early + used;
            used += (n * size + 15) & ~(size_t) 15;
            return used <= sizeof(early) ? p : NULL;
        }

        used = 16;
        next_calloc = (void *(*)(size_t, size_t)) dlsym(RTLD_NEXT, "calloc");
    }

    if (is_refused(n * size, __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }

    return next_calloc(n, size);
}


void *
realloc(void *memory, size_t size)
{
    if (next_realloc == NULL) {
        next_realloc = (void *(*)(void *, size_t)) dlsym(RTLD_NEXT, "realloc");
    }

    if (is_refused(size, __builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }

    return next_realloc(memory, size);
}


int
posix_memalign(void **memory, size_t alignment, size_t size)
{
    if (next_posix_memalign == NULL) {
        next_posix_memalign = (int (*)(void **, size_t, size_t))
                              dlsym(RTLD_NEXT, "posix_memalign");
    }

    if (is_refused(size, __builtin_return_address(0))) {
        return ENOMEM;
    }

    return next_posix_memalign(memory, alignment, size);
}


/*
 * The libraries that a program with its own malloc() (Envoy) loads call that
 * malloc().  dlopen() redirects their references to the functions of this file,
 * which call the program's.
 */

static const struct {
    const char   *name;
    void         *here;
    void        **next;
} diverted[] = {
    { "malloc", (void *) malloc, (void **) &next_malloc },
    { "calloc", (void *) calloc, (void **) &next_calloc },
    { "realloc", (void *) realloc, (void **) &next_realloc },
    { "posix_memalign", (void *) posix_memalign, (void **) &next_posix_memalign },
};


static void
divert(const ElfW(Rela) *rela, size_t size, ElfW(Addr) base,
    const ElfW(Sym) *symbols, const char *names)
{
    void              *before, **place, *pages, *program;
    size_t             i, length;
    const char        *name;
    const ElfW(Rela)  *end;

    length = (size_t) sysconf(_SC_PAGESIZE);
    program = next_dlopen(NULL, RTLD_LAZY);

    for (end = rela + size / sizeof(*rela); rela < end; rela++) {

        name = names + symbols[ELF64_R_SYM(rela->r_info)].st_name;

        for (i = 0; i < sizeof(diverted) / sizeof(diverted[0]); i++) {

            if (strcmp(name, diverted[i].name) != 0) {
                continue;
            }

            place = (void **) (base + rela->r_offset);
            before = dlsym(program, name);

            if (*place != before || before == diverted[i].here) {
                continue;
            }

            /* the page of the reference may be read-only (RELRO) */

            pages = (void *) ((uintptr_t) place & ~(length - 1));

            if (mprotect(pages, length, PROT_READ|PROT_WRITE) == -1) {
                abort();
            }

            *diverted[i].next = before;
            *place = diverted[i].here;
        }
    }
}


static void
divert_library(const struct link_map *library)
{
    size_t             size, plt_size;
    const char        *names;
    const ElfW(Dyn)   *dyn;
    const ElfW(Sym)   *symbols;
    const ElfW(Rela)  *rela, *plt;

    rela = plt = NULL;
    size = plt_size = 0;
    names = NULL;
    symbols = NULL;

    for (dyn = library->l_ld; dyn->d_tag != DT_NULL; dyn++) {

        switch (dyn->d_tag) {

        case DT_STRTAB:
            names = (const char *) dyn->d_un.d_ptr;
            break;

        case DT_SYMTAB:
            symbols = (const ElfW(Sym) *) dyn->d_un.d_ptr;
            break;

        case DT_RELA:
            rela = (const ElfW(Rela) *) dyn->d_un.d_ptr;
            break;

        case DT_RELASZ:
            size = dyn->d_un.d_val;
            break;

        case DT_JMPREL:
            plt = (const ElfW(Rela) *) dyn->d_un.d_ptr;
            break;

        case DT_PLTRELSZ:
            plt_size = dyn->d_un.d_val;
            break;
        }
    }

    divert(rela, size, library->l_addr, symbols, names);
    divert(plt, plt_size, library->l_addr, symbols, names);
}


void *
dlopen(const char *file, int mode)
{
    void             *handle;
    struct link_map  *library;

    if (next_dlopen == NULL) {
        next_dlopen = (void *(*)(const char *, int)) dlsym(RTLD_NEXT, "dlopen");
    }

    handle = next_dlopen(file, mode);

    if (page != NULL && file != NULL && handle != NULL
        && dlinfo(handle, RTLD_DI_LINKMAP, &library) == 0)
    {
        divert_library(library);
    }

    return handle;
}


/* reads until the buffer is full or the peer has sent nothing for `patience` ms */

static ssize_t
recv_patiently(int fd, unsigned char *data, size_t len, int flags)
{
    size_t         got;
    ssize_t        n;
    struct pollfd  ready;

    ready.fd = fd;
    ready.events = POLLIN;

    got = 0;

    do {
        n = next_recv(fd, data + got, len - got, flags);

        if (n <= 0) {
            break;
        }

        got += n;

    } while (got < len && poll(&ready, 1, (int) page->patience) == 1);

    return got ? (ssize_t) got : n;
}


ssize_t
recv(int fd, void *data, size_t len, int flags)
{
    int        domain;
    ssize_t    n;
    socklen_t  size;

    if (next_recv == NULL) {
        next_recv = (ssize_t (*)(int, void *, size_t, int))
                    dlsym(RTLD_NEXT, "recv");
    }

    size = sizeof(domain);

    if (page == NULL
        || page->reader != (uint64_t) getpid()
        || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == -1
        || domain != AF_UNIX)
    {
        return next_recv(fd, data, len, flags);
    }

    n = recv_patiently(fd, data, len, flags);

    if (n > 0) {
        page->total += n;
        page->turn += n;

        if (page->turn > page->longest) {
            page->longest = page->turn;
        }
    }

    return n;
}


int
epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    if (next_epoll_wait == NULL) {
        next_epoll_wait = (int (*)(int, struct epoll_event *, int, int))
                          dlsym(RTLD_NEXT, "epoll_wait");
    }

    if (page != NULL && page->reader == (uint64_t) getpid()) {
        page->turn = 0;
    }

    return next_epoll_wait(fd, events, most, timeout);
}


static void
wait_for_disk(void)
{
    if (page != NULL
        && (page->writer == (uint64_t) getpid() || page->writer == UINT64_MAX))
    {
        (void) __atomic_fetch_add(&page->delayed, 1, __ATOMIC_RELAXED);
        (void) poll(NULL, 0, (int) page->delay);
    }
}


int
fdatasync(int fd)
{
    if (next_fdatasync == NULL) {
        next_fdatasync = (int (*)(int)) dlsym(RTLD_NEXT, "fdatasync");
    }

    wait_for_disk();

    return next_fdatasync(fd);
}


int
fsync(int fd)
{
    if (next_fsync == NULL) {
        next_fsync = (int (*)(int)) dlsym(RTLD_NEXT, "fsync");
    }

    wait_for_disk();

    return next_fsync(fd);
}
