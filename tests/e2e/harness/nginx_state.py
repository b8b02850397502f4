"""Resources of a worker: connections, memory, processor time."""

import collections
import json
import pathlib
import re
import time

from . import client
from .nginx import SANITIZED, resident

# A sanitizer's allocator keeps freed memory, and pads the rest.
SLACK = 4 if SANITIZED else 1


def active_connections(nginx, path="/status"):
    """stub_status's count, without the connection of this request."""
    body = nginx.get(path, accept=None).body.decode()
    return int(re.search(r"Active connections: (\d+)", body)[1]) - 1


def requests_so_far(nginx, path="/status"):
    """stub_status's count, with this request."""
    body = nginx.get(path, accept=None).body.decode()
    return int(re.search(r"\n \d+ \d+ (\d+)", body)[1])


def waiting_requests(nginx, path="/sszip-status"):
    """Requests that wait for the response to another one, by `sszip_status` of that path."""
    report = json.loads(client.fetch(nginx.port, f"{path}?format=json").decoded)
    return report["workers"]["cache.waiting"]


def wait_for_followers(nginx, count, path="/sszip-status"):
    """Waits until `count` requests wait for the response to another one."""
    nginx.wait_for(
        lambda: waiting_requests(nginx, path) == count,
        f"{count} requests to wait, and {waiting_requests(nginx, path)} do",
    )


def wait_for_earlier_events(nginx, path="/worker"):
    """Waits until all workers have handled the events before this call, such as the abort of a
    client. A worker may accept a connection before it handles an event of the same time, but has
    handled it when it accepts the next one. `path` is a location with `return 200 $pid;`."""
    responses = collections.Counter()

    def have_all_responded_twice():
        responses[int(nginx.get(path, accept=None).body)] += 1
        return all(responses[worker] >= 2 for worker in nginx.workers())

    nginx.wait_for(have_all_responded_twice, "responses of all workers")


def temporary_files(nginx):
    """Number of responses so far that nginx had to write to a temporary file."""
    return nginx.error_log().count("is buffered to a temporary file")


def wait_until_expired():
    """Waits until an entry with a lifetime of 1 ms has expired, and nginx's clock has advanced. A
    longer pause changes nothing."""
    time.sleep(0.005)


def wait_until_stable(nginx, base=0):
    """Waits until the connections of a test are closed."""
    nginx.wait_for(lambda: active_connections(nginx) <= base, f"no more than {base} connections")


def _switches(pid):
    """The number of context switches of each thread; None if one does not sleep."""
    found = {}
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        status = (thread / "status").read_text()
        if not re.search(r"^State:\s+S", status, re.MULTILINE):
            return None
        found[thread.name] = re.findall(r"ctxt_switches:\s+(\d+)", status)
    return found


def wait_until_idle(nginx, pause=0.05):
    """Waits until all threads of the workers sleep, and none wakes for a while. An endless loop
    never does, and a busy machine only takes longer."""
    workers = nginx.workers()

    def are_idle():
        before = [_switches(pid) for pid in workers]
        if None in before:
            return False
        time.sleep(pause)
        return [_switches(pid) for pid in workers] == before

    nginx.wait_for(are_idle, "the workers to be idle")


def memory_growth(nginx, work, rounds):
    """KiB that the worker's resident set grew over `rounds` of work, after two to warm up."""
    (worker,) = nginx.workers()
    for _ in range(2):
        work()
    before = resident(worker)
    for _ in range(rounds):
        work()
    return resident(worker) - before
