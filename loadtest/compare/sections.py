"""Sections other than a workload under wrk: fixed rates, long responses with hot ones,
concurrent clients, witnesses, a head that moves."""

import hashlib
import json
import selectors
import socket
import threading
import time
import zlib

import http_client
import response_checks
import wrk_runs
import workloads
from wrk_runs import LoadError
from stack import LOAD_CORE
from stages import Stage, attempt, coding_of, section

# Rates of Erigon's experiment, in blocks with transactions per second.
ERIGON = (2_000, 2_300)
SHARES = (25, 50, 75)
AUDIT_PAUSE = 0.1
CLIENTS = 500
LATENCY_MS = 300


# --- fixed rates


def rates(stage, workload, rate, title, seconds, name):
    """Measures each row at a rate, with an auditor that verifies responses meanwhile."""
    stage.log(title)
    samples = []
    for row in stage.rows:
        samples.append(
            {"row": row.key, "round": 0}
            | attempt(lambda row=row: at_rate(stage, row, workload, rate, seconds), stage.log, row)
        )
    out = section(workload, {}, samples)
    return out | {"title": title, "rate": rate, "name": name, "connections": 128}


def at_rate(stage, row, workload, rate, seconds):
    server, coding = stage.servers[row.key], coding_of(workload, row)
    auditor = response_checks.Auditor(server, http_client.local_address(stage.node.port), workload.calls, coding, AUDIT_PAUSE)
    auditor.start()
    try:
        found = wrk_runs.measure_at_rate(server, workload, stage.work, rate, seconds, coding)
    finally:
        audit = auditor.end()
    return found | {"audit": audit}


# --- long responses during hits


def large(stage, hot, bulk, rounds, seconds):
    """Measures hot responses while one connection receives misses of 5 MB."""

    def during_misses(row, workload, seconds, turn):
        server, bulk_result = stage.servers[row.key], {}

        def bulky():
            bulk_result.update(
                attempt(
                    lambda: wrk_runs.wrk(server, bulk, stage.file(bulk, row), seconds + 1, turn, 1),
                    stage.log, row,
                )
            )

        load = threading.Thread(target=bulky)
        load.start()
        time.sleep(0.5)
        try:
            found = wrk_runs.measure_closed_loop(server, workload, stage.file(workload, row), seconds)
        finally:
            load.join()
        bulks = bulk_result.get("requests", 0) / (seconds + 1)
        return found | {"bulk_rps": bulks}

    return stage.closed(hot, rounds, seconds, before=during_misses)


# --- many at once


def stampede(work, corpus, rows, rounds, clients, log, port=None):
    """Measures concurrent clients that request one uncached key from a slow node."""
    ground = workloads.unseen(work / "herd-pairs", corpus, port)
    ground.options = [*ground.options, "--latency-ms", str(LATENCY_MS)]
    workload = ground.workloads[0]
    workload.name, workload.title = "stampede", f"{clients} clients request one key at the same time"
    workload.note = f"The node answers after {LATENCY_MS} ms."
    samples = []
    with Stage(work, "herd", ground, rows, log) as stage:
        log(workload.title)
        for turn in range(rounds):
            for row in stage.rows:
                samples.append(
                    {"row": row.key, "round": turn}
                    | attempt(
                        lambda row=row, turn=turn: at_once(stage, row, workload, clients, turn),
                        log, row,
                    )
                )
    return section(workload, {}, samples) | {"connections": clients}


def at_once(stage, row, workload, clients, turn):
    server, coding = stage.servers[row.key], coding_of(workload, row)
    key = 400_000_000 + turn
    (call,) = workload.calls
    peers = [socket.create_connection(server.place, 30) for _ in range(clients)]
    meter = wrk_runs.Meter(server, http_client.local_address(stage.node.port))
    try:
        began = time.monotonic()
        for number, peer in enumerate(peers):
            sent = call.sent(500_000_000 + number, key)
            peer.sendall(http_client.written(*server.place, sent, "/", coding))
        arrived, wrong = collected(peers, began)
    finally:
        for peer in peers:
            peer.close()
    times = sorted(arrived)
    if not times:
        raise LoadError(f"none of the {clients} clients received a response")
    return {
        "requests": len(times),
        "lost": clients - len(times),
        "wrong": wrong,
        "last_ms": 1000 * times[-1],
        "p50": 1000 * times[len(times) // 2],
    } | meter.read(len(times)) | {"node": wrk_runs.node_requests(http_client.local_address(stage.node.port)) - meter.requests_before}


def collected(peers, began, patience=30):
    """Returns when each client received its response, and the number of responses with
    another's id."""
    waiting = selectors.DefaultSelector()
    for number, peer in enumerate(peers):
        peer.setblocking(False)
        waiting.register(peer, selectors.EVENT_READ, [number, bytearray()])
    arrived, whole = [], []
    while waiting.get_map() and time.monotonic() - began < patience:
        for ready, _ in waiting.select(0.5):
            number, data = ready.data
            try:
                piece = ready.fileobj.recv(1 << 18)
            except OSError:
                piece = b""
            data += piece
            if not piece or is_whole(data):
                waiting.unregister(ready.fileobj)
                if is_whole(data):
                    arrived.append(time.monotonic() - began)
                    whole.append((number, bytes(data)))
    wrong = sum(not is_own(number, data) for number, data in whole)
    return arrived, wrong


def is_whole(data):
    head, _, rest = data.partition(b"\r\n\r\n")
    lower = head.lower()
    if b"content-length:" in lower:
        size = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
        return len(rest) >= size
    return b"chunked" in lower and rest.endswith(b"0\r\n\r\n")


def is_own(number, data):
    import io

    try:
        answer = http_client.read(io.BytesIO(data))
        return answer.status == 200 and answer.value()["id"] == 500_000_000 + number
    except (http_client.ConnectionLost, ValueError, KeyError, TypeError):
        return False


# --- witnesses


def witnesses(work, size, rows, rounds, log):
    ground = workloads.witness(size)
    (workload,) = ground.workloads
    samples = []
    with Stage(work, "witness", ground, rows, log, core=None) as stage:
        log(workload.title)
        with http_client.Peer(*http_client.local_address(stage.node.port), seconds=120) as node:
            sent = workload.calls[0].sent()
            wanted = hashlib.sha256(node.fetch(sent).content).digest()
        for turn in range(rounds):
            for row in stage.rows:
                samples.append(
                    {"row": row.key, "round": turn}
                    | attempt(lambda row=row: one(stage, row, workload, wanted), log, row)
                )
    return section(workload, {}, samples)


def one(stage, row, workload, wanted):
    """Measures the time from the request to the last byte, and the growth of the server's
    memory."""
    server = stage.servers[row.key]
    reset_peaks(server)
    before = server.resident_kb()
    meter = wrk_runs.Meter(server, None)
    began = time.monotonic()
    try:
        with http_client.Peer(*server.place, seconds=180) as peer:
            answer = peer.fetch(workload.calls[0].sent(), "/", coding_of(workload, row))
    except (OSError, http_client.ConnectionLost) as lost:
        raise LoadError(f"the response is incomplete: {lost}") from None
    took = time.monotonic() - began
    spent = meter.read(1)
    try:
        found = hashlib.sha256(answer.decoded()).digest()
    except (ValueError, KeyError, zlib.error) as bad:
        raise LoadError(f"the response cannot be decoded: {bad}") from None
    return {
        "requests": 1,
        "took_ms": 1000 * took,
        "wire": answer.wire,
        "coding": answer.coding,
        "wrong": int(answer.status != 200 or found != wanted),
        "grew_kb": max(0, peak_kb(server) - before),
    } | spent


def reset_peaks(server):
    for pid in server.pids():
        with open(f"/proc/{pid}/clear_refs", "w") as refs:
            refs.write("5")


def peak_kb(server):
    total = 0
    for pid in server.pids():
        with open(f"/proc/{pid}/status") as status:
            total += int(status.read().split("VmHWM:")[1].split()[0])
    return total


# --- a head that moves


class Chain(threading.Thread):
    """Extends the chain by a block per slot, and replaces two blocks by three in every second
    slot."""

    def __init__(self, port, slot_ms):
        super().__init__(daemon=True)
        self.port, self.slot_ms = port, slot_ms
        self.slots = self.reorgs = 0
        self.is_over = threading.Event()

    def run(self):
        with http_client.Peer("127.0.0.1", self.port) as node:
            while not self.is_over.wait(self.slot_ms / 1000):
                self.slots += 1
                command = {"extend": 1}
                if self.slots % 2 == 0:
                    command, self.reorgs = {"reorg": {"depth": 2, "length": 3}}, self.reorgs + 1
                node.fetch(json.dumps(command).encode(), "/chain")

    def end(self):
        self.is_over.set()
        self.join(30)


def moving(work, row, seconds, slot_ms, transactions, log):
    """Measures one row with a chain of its own, which behaves like all others'."""
    ground = workloads.chain(transactions)
    with Stage(work, f"head-{row.key}", ground, [row], log, slot_ms=slot_ms) as stage:
        if not stage.rows:
            return None, {"failed": stage.absent[row.key]}, {}
        server, node = stage.servers[row.key], http_client.local_address(stage.node.port)
        workload = workloads.following(stage.node.port)
        coding = coding_of(workload, row)
        chain = Chain(stage.node.port, slot_ms)
        auditor = response_checks.Auditor(
            server, node, workloads.audited(workload), coding, 0.05, slot_ms
        )
        file = stage.file(workload, row)
        # the server is warm before it is measured
        attempt(lambda: wrk_runs.measure_closed_loop(server, workload, file, 2, core=LOAD_CORE), log, row)
        first = server.resident_kb()
        chain.start()
        auditor.start()
        try:
            point = wrk_runs.measure_closed_loop(server, workload, file, seconds, node)
        finally:
            chain.end()
            audit = auditor.end()
        point |= {
            "audit": audit,
            "slots": chain.slots,
            "reorgs": chain.reorgs,
            "first_kb": first,
        }
        return workload, point, stage.configs()


def heads(work, rows, seconds, slot_ms, transactions, log):
    samples, workload, configs = [], None, {}
    for row in rows:
        log(f"new head every {slot_ms / 1000:g} s: {row.name}")
        try:
            found, point, config = moving(work, row, seconds, slot_ms, transactions, log)
        except (LoadError, OSError) as failed:
            found, point, config = None, {"failed": str(failed)}, {}
        workload, configs = found or workload, configs | config
        samples.append({"row": row.key, "round": 0} | point)
    if workload is None:
        raise SystemExit("section head failed: no server could be measured; the lines above have the reasons")
    workload.title = f"A provider's mix, warm, a new head every {slot_ms / 1000:g} s"
    workload.note = "In every second slot, a reorganisation replaces two blocks with three."
    return section(workload, {}, samples) | {"slot_ms": slot_ms}, configs
