"""Large answers from a node that has JSON only: when they are whole at the
client, what decoding takes it, how nginx's worker grows, and what small requests
beside them wait.

All processes are free on both cores: node, nginx and client work at once.
"""

import shutil
import subprocess
import threading
from dataclasses import dataclass, replace

import wire_values
from bodies import Body
from load import Wrk, check_answers, cpu_ns
from memory import reset_peak, resident
from stack import HERE, MODULE, Coder, Nginx, Node, default_buffers
from wire_values import EITHER, JSON, SSZ

TCP, UNIX = "TCP", "Unix"
DIRECT = "direct"
VERSION = "/eth/v1/node/version"
TO_A_FILE = "is buffered to a temporary file"
BESIDE_CONNECTIONS, BESIDE_PAUSE_MS = 4, 20


@dataclass(frozen=True)
class Row:
    """What a client asks for, and what is between it and the node, as its server is
    configured; None: nothing."""

    name: str
    coder: object | None
    media: str = JSON
    accept: str = ""

    @property
    def is_ssz(self):
        return self.media != JSON


def plain(name, directives):
    return Row(name, Coder(name, directives, ""))


def sszip(memory="4096m", limit="2048m"):
    own = f"sszip on; sszip_ssz on; sszip_ssz_max_size {limit}; sszip_memory {memory}; "
    coder = Coder("sszip", own + "gzip_proxied any; proxy_read_timeout 300s;", "", module=MODULE)
    return default_buffers(coder)


# nginx.conf.in has large buffers and no files; an operator has nginx's own.
PROXY = Row("proxy_pass", default_buffers(Coder("proxy_pass", "proxy_max_temp_file_size 1024m;", "")))
PLAIN = [
    PROXY,
    plain("proxy_pass, unbuffered", "proxy_buffering off; proxy_buffer_size 4k;"),
    plain(
        "proxy_pass, large buffers",
        "proxy_buffer_size 256k; proxy_buffers 64 256k; proxy_busy_buffers_size 4m;",
    ),
]
OURS = [
    Row("sszip, JSON", sszip()),
    Row("sszip, JSON, gzip", sszip(), accept="gzip"),
    Row("sszip, SSZ", sszip(), SSZ),
    Row("sszip, SSZ, gzip", sszip(), SSZ, "gzip"),
]
ROWS = [Row(DIRECT, None), *PLAIN, *OURS]
SSZ_ROW = "sszip, SSZ"


def nginx(work, row, upstream):
    """In front of the node."""
    return Nginx(work, row.name, upstream, {"/": row.coder}, core=None)


def run(client, work, body, rounds, say, rows=ROWS, start=nginx):
    """One body over both transports; `start`: what is in front of the node."""
    with Node(work, [work / "small"], core=None, options=body.node) as node:
        wire_values.record(client, node, body)
        out = {
            "kind": body.kind,
            "megabytes": body.megabytes,
            "json": body.json.stat().st_size,
            "ssz": body.ssz.stat().st_size,
            "samples": [],
            "left_out": [],
            "complaints": [],
            "decode": go(work, body),
        }
        for transport in (TCP, UNIX):
            say(f"{body.kind}, {body.megabytes} MB, {transport}")
            of_transport(client, work, node, body, transport, rounds, out, rows, start)
    return out


def of_transport(client, work, node, body, transport, rounds, out, rows, start):
    servers, rows = {}, list(rows)
    upstream = node.socket if transport == UNIX else node.port
    try:
        for row in rows:
            if row.coder:
                servers[row.name] = start(work, row, upstream)
        for turn in range(rounds):
            first = turn % len(rows)
            for row in rows[first:] + rows[:first]:
                server = servers.get(row.name, node)
                sample = fetch(client, server, body, row, transport, turn)
                if sample is None:
                    rows = [r for r in rows if r is not row]
                    out["left_out"].append([row.name, transport])
                    continue
                out["samples"].append(sample)
        for name, server in servers.items():
            # which nginx's own settings do with what the client can't take yet
            lines = server.complaints().splitlines()
            if told := [line for line in lines if TO_A_FILE not in line]:
                out["complaints"].append([f"{name}, {transport}", "\n".join(told)[-2000:]])
    finally:
        for server in servers.values():
            server.__exit__()


def address(server, transport):
    return f"unix:{server.socket}" if transport == UNIX else f"127.0.0.1:{server.port}"


def fetch(client, server, body, row, transport, turn):
    """None: there is no SSZ of it with this module."""
    spec = {"same_as": [body.json], "requests": body.asked(row.media, row.accept)}
    if row.is_ssz:
        spec = {
            # where there is no SSZ, it is the JSON for who takes both
            "same_as": [body.ssz, body.json],
            "requests": body.asked(EITHER, row.accept),
        }
    if turn == 0 and body.of and row.name in (DIRECT, SSZ_ROW):
        ways = ["libssz"] if row.is_ssz else ["serde_json", "sonic-rs"]
        spec |= {"decode": ways, "of": body.of, "ssz": body.ssz}
    worker = getattr(server, "worker", None)
    if worker:
        warm(client, server, transport)
        before, _ = resident(worker)
        reset_peak(worker)
        spent = cpu_ns(worker)
    said = client.do(do="fetch", to=address(server, transport), **spec)
    sample = {"row": row.name, "transport": transport, "round": turn} | said
    if worker:
        after, peak = resident(worker)
        sample |= {"growth": max(after, peak) - before, "cpu_ns": cpu_ns(worker) - spent}
    if said["status"] != 200 or said["coding"] != row.accept * bool(row.coder):
        raise SystemExit(f"{row.name}: {said}")
    if row.is_ssz and said["is"] == 1:
        return None
    return sample


def warm(client, server, transport):
    """A worker that has served something small."""
    request = {"path": VERSION, "headers": []}
    client.do(do="fetch", to=address(server, transport), requests=[request])


def go(work, body):
    """What Go's encoding/json takes, if there is a Go."""
    if body.of != "ExecutionWitness" or not shutil.which("go"):
        return {}
    binary = work / "decode"
    if not binary.exists():
        command = ["go", "build", "-o", str(binary), str(HERE / "decode/main.go")]
        subprocess.run(command, check=True)
    command = [str(binary), str(body.json), str(body.ssz.stat().st_size)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"Go decodes to something else: {done.stderr}")
    return {"encoding/json": int(done.stdout)}


def many(client, work, body, clients, memory, say):
    """So many at once: the worker never has more than it may."""
    say(f"{clients} at once, {body.kind}, {body.megabytes} MB")
    row = Row("many", sszip(memory=str(memory)), EITHER)
    with (
        Node(work, [work / "small"], core=None, options=body.node) as node,
        Nginx(work, "many", node.port, {"/": row.coder}, core=None) as server,
    ):
        wire_values.record(client, node, body)
        warm(client, server, TCP)
        before, _ = resident(server.worker)
        reset_peak(server.worker)
        spec = {"same_as": [body.ssz, body.json], "requests": body.asked(EITHER)}
        to = address(server, TCP)
        started = [client.start(do="fetch", to=to, **spec) for _ in range(clients)]
        said = [client.result(process) for process in started]
        after, peak = resident(server.worker)
    return {
        "kind": body.kind,
        "megabytes": body.megabytes,
        "clients": clients,
        "memory": memory,
        "growth": max(after, peak) - before,
        "as_ssz": sum(s["is"] == 0 for s in said),
        "done_ns": [s["done_ns"] for s in said],
    }


def beside(client, work, body, rounds, seconds, say):
    """Small requests while one large answer after the other is under way."""
    rows = [PROXY, Row(SSZ_ROW, sszip(), EITHER)]
    small = Body("small", "GET", "small", 0, None, path=VERSION)
    samples = []
    with Node(work, [work / "small"], core=None, options=body.node) as node:
        wire_values.record(client, node, body)
        for turn in range(rounds):
            for row in rows[turn % 2 :] + rows[: turn % 2]:
                say(f"small requests beside {row.name}, round {turn + 1} of {rounds}")
                coders = {"/": replace(row.coder, media="")}
                with Nginx(work, f"beside {row.name}", node.port, coders, core=None) as server:
                    samples.append(
                        {"row": row.name, "round": turn}
                        | beside_one(client, server, body, row, small, seconds)
                    )
    return {"kind": body.kind, "megabytes": body.megabytes, "samples": samples}


def beside_one(client, server, body, row, small, seconds):
    expected = [body.ssz, body.json] if row.is_ssz else [body.json]
    ended, times, failed = threading.Event(), [], []

    def load():
        requests = body.asked(row.media)
        try:
            while not ended.is_set():
                to = address(server, TCP)
                said = client.do(do="fetch", to=to, requests=requests, same_as=expected)
                times.append(said["done_ns"])
        except SystemExit as error:
            failed.append(error)

    light = Wrk(
        server.port, small, row.coder, BESIDE_CONNECTIONS, 1, None, BESIDE_PAUSE_MS
    ).result()
    thread = threading.Thread(target=load)
    thread.start()
    try:
        loaded = Wrk(
            server.port, small, row.coder, BESIDE_CONNECTIONS, seconds, None, BESIDE_PAUSE_MS
        ).result()
    finally:
        ended.set()
        thread.join()
    if failed:
        raise failed[0]
    check_answers(
        loaded, small, row.coder, BESIDE_CONNECTIONS, light["bytes"] / light["requests"], 0.1
    )
    return {
        "alone_p99_us": light["p99_us"],
        "p50_us": loaded["p50_us"],
        "p99_us": loaded["p99_us"],
        "max_us": loaded["max_us"],
        "requests": loaded["requests"],
        "large": len(times),
        "large_ns": times,
    }


def sizes(quick):
    """Megabytes of JSON. A state is never shorter than 6."""
    return [8] if quick else [100, 300, 500, 750]


def bodies(client, corpus, work, megabytes):
    """One kind after the other: their files are large."""
    yield wire_values.state(client, corpus, work, megabytes)
    yield wire_values.witness(work, megabytes, coupled=False)
    yield wire_values.witness(work, megabytes, coupled=True)


def forget(body):
    for file in (body.json, body.ssz):
        file.unlink(missing_ok=True)
