"""nginx, or Envoy, with a library of the tests in front of the C library: it fails allocations of
a kind that a test selects, or makes them wait, measures how much an event loop reads in one turn, and makes a
process's disk slow."""

import contextlib
import mmap
import pathlib
import struct
import subprocess
import tempfile

_SOURCE = pathlib.Path(__file__).with_name("preload.c")

# the fields of struct page, in this order
_FIELDS = (
    "pid", "from", "to", "caller", "thread", "skip", "most", "seen", "refused",
    "hold", "reader", "patience", "total", "turn", "longest", "writer", "delay", "delayed",
)  # fmt: skip

PROGRAM, LIBRARIES = 1, 2
ANY_THREAD, MAIN_THREAD, OTHER_THREADS = 0, 1, 2
ANY_PROCESS = (1 << 64) - 1


class Preload:
    """`start_nginx(CONFIG, environment=preload.environment)`, `start_envoy` likewise."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="sszip-preload-")
        folder = pathlib.Path(self._folder.name)
        folder.chmod(0o755)
        library = folder / "preload.so"
        subprocess.run(
            [
                "cc",
                "-O1",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-shared",
                "-fPIC",
                # symbols of the library refer to itself, not to the program
                "-Wl,-Bsymbolic",
                str(_SOURCE),
                "-o",
                str(library),
                "-ldl",
            ],
            check=True,
        )
        page = folder / "page"
        page.write_bytes(bytes(mmap.PAGESIZE))
        with open(page, "r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.environment = {"LD_PRELOAD": str(library), "SSZIP_PRELOAD_PAGE": str(page)}

    def close(self):
        self._page.close()
        self._folder.cleanup()

    def __getitem__(self, name):
        return struct.unpack_from("Q", self._page, 8 * _FIELDS.index(name))[0]

    def __setitem__(self, name, value):
        struct.pack_into("Q", self._page, 8 * _FIELDS.index(name), value)

    @contextlib.contextmanager
    def refusing(self, pid, sizes=(0, 1 << 40), caller=PROGRAM, thread=ANY_THREAD, skip=0, most=1):
        """Fails `most` allocations of that kind, after `skip` of them."""
        values = {
            "from": sizes[0],
            "to": sizes[1],
            "caller": caller,
            "thread": thread,
            "skip": skip,
            "most": most,
        }
        for name, value in {**values, "seen": 0, "refused": 0}.items():
            self[name] = value
        self["pid"] = pid
        try:
            yield self
        finally:
            self["pid"] = 0

    @contextlib.contextmanager
    def holding(self, pid, caller=LIBRARIES, thread=OTHER_THREADS):
        """Makes allocations of that kind wait until the block ends; `seen` has their number."""
        self["hold"] = 1
        try:
            with self.refusing(pid, caller=caller, thread=thread, most=0):
                yield self
        finally:
            self["hold"] = 0

    @contextlib.contextmanager
    def reading(self, pid, patience=0):
        """Counts the bytes that a process reads from Unix sockets between two waits for
        events. Each read waits up to `patience` milliseconds until it is complete, so that a
        peer is never too slow."""
        for name, value in {"patience": patience, "total": 0, "turn": 0, "longest": 0}.items():
            self[name] = value
        self["reader"] = pid
        try:
            yield self
        finally:
            self["reader"] = 0

    @contextlib.contextmanager
    def slow_disk(self, pid, milliseconds):
        """Delays each wait of the process for its disk by these milliseconds."""
        for name, value in {"delay": milliseconds, "delayed": 0}.items():
            self[name] = value
        self["writer"] = pid
        try:
            yield self
        finally:
            self["writer"] = 0
