"""Runs wrk, and measures the CPU time of the worker meanwhile.

wrk's closed loop measures requests per second; the worker's run time in schedstat measures CPU
time per request, which other tenants of the machine and a slow load generator do not change.
"""

import json
import os
import subprocess
import time
from pathlib import Path

from stack import LOAD_CORE, pinned

HERE = Path(__file__).resolve().parent
MARK = "BENCH "
# Maximum share of a busy machine before a run; above it the numbers are not reliable.
QUIET_SHARE = 0.05


def cpu_ns(pid):
    """Returns the run time of all threads of a process in nanoseconds, including its thread
    pool."""
    total = 0
    for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(stat.read_text().split()[0])
    return total


def process_ns(pid):
    """Returns the run time of a process with its ended threads in nanoseconds:
    clock_getcpuclockid(3)."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def machine_ticks():
    """Returns the busy, idle and stolen ticks of the whole machine."""
    fields = Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, fields)
    return user + nice + system + irq + softirq, idle + iowait, steal


def machine_share(before, after):
    busy, idle, steal = (b - a for a, b in zip(before, after, strict=True))
    total = max(1, busy + idle + steal)
    return {"busy": busy / total, "steal": steal / total}


def quiet_check(seconds=2):
    """Returns the load of the machine while the benchmark itself is idle."""
    before = machine_ticks()
    time.sleep(seconds)
    return machine_share(before, machine_ticks())


def wrk_command(port, path, connections, seconds, core):
    return pinned(
        core,
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s"]
        + ["-s", str(HERE / "post.lua"), f"http://127.0.0.1:{port}{path}"],
    )


def wrk_environment(body, coder, pause_ms, keys):
    environment = dict(os.environ, BENCH_ACCEPT_ENCODING=coder.accept)
    for name in ("BENCH_REQUEST", "BENCH_ACCEPT"):
        environment.pop(name, None)
    if coder.media:
        environment["BENCH_ACCEPT"] = coder.media
    if body.request is not None:
        environment["BENCH_REQUEST"] = str(body.request)
    if pause_ms is not None:
        environment["BENCH_PAUSE_MS"] = str(pause_ms)
    if keys is not None:
        environment["BENCH_KEYS"] = str(keys)
    return environment


class Wrk:
    """A wrk process, which may run at the same time as another one."""

    def __init__(
        self,
        port,
        body,
        coder,
        connections,
        seconds,
        core=LOAD_CORE,
        pause_ms=None,
        keys=None,
    ):
        self.limit = seconds + 60
        self.process = subprocess.Popen(
            wrk_command(port, body.path, connections, seconds, core),
            env=wrk_environment(body, coder, pause_ms, keys),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def result(self):
        try:
            output, _ = self.process.communicate(timeout=self.limit)
        except subprocess.TimeoutExpired as late:
            self.process.kill()
            self.process.communicate()
            raise SystemExit(f"wrk did not finish within {self.limit} s") from late
        for line in output.splitlines():
            if line.startswith(MARK):
                return json.loads(line[len(MARK) :])
        raise SystemExit(f"wrk printed no result; its output:\n{output}")


def measure(nginx, body, coder, connections, seconds, expected, slack=0.02, keys=None):
    """Returns one sample: requests per second, CPU time per request, and facts about its
    reliability."""
    owner = process_ns(nginx.owner) if nginx.owner else 0
    before, ticks = cpu_ns(nginx.worker), machine_ticks()
    result = Wrk(nginx.port, body, coder, connections, seconds, keys=keys).result()
    spent = cpu_ns(nginx.worker) - before
    owner = process_ns(nginx.owner) - owner if nginx.owner else 0
    share = machine_share(ticks, machine_ticks())
    check_answers(result, body, coder, connections, expected, slack)
    wall_us = result["duration_us"]
    return {
        "requests": result["requests"],
        "wire": result["bytes"] / result["requests"],
        "rps": result["requests"] / wall_us * 1e6,
        "cpu_us": spent / 1000 / result["requests"],
        "owner_us": owner / 1000 / result["requests"],
        "p50_us": result["p50_us"],
        "p99_us": result["p99_us"],
        "utilisation": spent / 1000 / wall_us,
        "steal": share["steal"],
    }


def check_answers(result, body, coder, connections, expected, slack=0.02):
    """Checks that responses under load have the length that was verified before.

    wrk sees only lengths, which show an encoder that stops under load and sends identity. The
    tolerance covers responses in flight at the end, and the framing of chunks.
    """
    where = f"{coder.name}, {body.name}"
    if result["errors"]:
        raise SystemExit(f"{where}: {result['errors']} requests of wrk failed")
    if not result["requests"]:
        raise SystemExit(f"{where}: no response during the run")
    room = expected * connections + result["requests"] * expected * slack
    if abs(result["bytes"] - result["requests"] * expected) > room:
        mean = result["bytes"] / result["requests"]
        raise SystemExit(
            f"{where}: {mean:.0f} bytes per response under load, {expected} when verified"
        )
