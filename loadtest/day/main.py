"""A day of a simulated chain behind nginx with sszip: 7,200 slots with missed ones and
reorganisations, and clients that poll, index and explore. It reports the share of hits, the
requests saved at the node, the evicted entries, and wrong responses.

Responses are verified: one about a final block must equal the response of an honest node byte
for byte; a head from the cache must never be lower than one that the same client has received
before, unless the chain itself went back (to a shorter branch) at that time.
"""

import argparse
import collections
import http.client
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "lib"))

import machine  # noqa: E402
from stack import MODULE, Coder, Nginx, Node  # noqa: E402
from traffic import MIX, Traffic, body  # noqa: E402

RESULTS = HERE.parent / "results"
HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
# Of this number of responses one is compared with the honest node's.
AUDIT = 8
# Seconds after which a change of the chain is known to its follower, which polls in intervals,
# and to the watcher, which polls four times per slot.
MOMENT = 2


def coder(arguments, port):
    slot = arguments.slot_ms
    return Coder(
        "sszip",
        "sszip on; sszip_cache on; sszip_cache_namespace day; "
        # the head is followed: responses that depend on it are valid for a slot, and responses
        # about unfinalized blocks until they are final
        f"sszip_cache_valid immutable 24h; sszip_cache_valid tip {slot}ms; "
        f"sszip_cache_valid unfinalized {96 * slot}ms; "
        f"sszip_cache_head http://127.0.0.1:{port} interval={max(100, slot // 12)}ms;",
        "gzip",
        http="sszip_cache_path @PREFIX@/cache max_size=4g memory=256m; sszip_cache_memory 64m;",
        module=MODULE,
    )


class Client(threading.Thread):
    """A client with a connection of its own, which sends one request after the other."""

    def __init__(self, day, number):
        super().__init__(daemon=True)
        self.day = day
        self.traffic = Traffic(number)
        self.counts = collections.Counter()
        self.wrong = []
        self.back = []
        self.seen = 0
        self.times = []

    def run(self):
        to_proxy = http.client.HTTPConnection("127.0.0.1", self.day.nginx.port, timeout=30)
        to_node = http.client.HTTPConnection("127.0.0.1", self.day.node.port, timeout=30)
        id, due = 0, time.monotonic()
        while not self.day.is_over:
            due += self.day.pause
            time.sleep(max(0, due - time.monotonic()))
            self.traffic.head, self.traffic.final = self.day.head, self.day.final
            id += 1
            self.send_request(to_proxy, to_node, id)

    def send_request(self, to_proxy, to_node, id):
        kind, method, params = self.traffic.next()
        text = body(method, params, id)
        final = self.day.final
        began = time.perf_counter()
        to_proxy.request("POST", "/", text, HEADERS)
        response = to_proxy.getresponse()
        raw = response.read()
        self.times.append(time.perf_counter() - began)
        cache_status = response.getheader("Cache-Status", "")
        is_hit = "; hit" in cache_status
        self.counts["asked"] += 1
        self.counts[kind, "hit" if is_hit else "miss"] += 1
        self.counts[kind, "bytes"] += len(raw)
        if response.status != 200:
            self.wrong.append(f"{response.status}: {text}")
            return
        answer = json.loads(raw)
        self.traffic.learn(method, answer)
        self.look(to_node, text, method, params, answer, is_hit, final)

    def look(self, to_node, text, method, params, answer, is_hit, final):
        if method == "eth_blockNumber" or params[:1] == ["latest"]:
            result = answer["result"]
            number = int(result if isinstance(result, str) else result["number"], 16)
            if is_hit and number < self.seen:
                self.back.append((time.monotonic(), f"went back from {self.seen} to {number}: {text}"))
            self.seen = number
            self.counts["ordered"] += 1
        elif is_hit and int(answer["id"]) % AUDIT == 0 and about(method, params, answer) <= final:
            to_node.request("POST", "/chain/answer", text, HEADERS)
            honest = json.loads(to_node.getresponse().read())
            self.counts["audited"] += 1
            if honest != answer:
                self.wrong.append(f"{text}: {answer}, and the node says {honest}")


def about(method, params, answer):
    """Returns the highest block that a call is about."""
    try:
        if method == "eth_getLogs":
            return int(params[0]["toBlock"], 16)
        if method in ("eth_getBalance", "eth_call"):
            return int(params[1], 16)
        if method.startswith("eth_getTransaction"):
            return int(answer["result"]["blockNumber"], 16)
        return int(params[0], 16)
    except (TypeError, ValueError, IndexError, KeyError):
        return float("inf")


class Day:
    def __init__(self, arguments, work):
        self.arguments, self.is_over = arguments, False
        self.pause = arguments.clients / arguments.rate
        options = ["--chain", "--chain-slot-ms", str(arguments.slot_ms)]
        options += ["--chain-reorgs", str(arguments.reorgs), "--chain-missed", str(arguments.missed)]
        self.node = Node(work, [], core=None, options=[*options, "--threads", "2"])
        self.head = self.final = 0
        # times at which the chain itself went back
        self.fell = []
        self.nginx = Nginx(work, "day", self.node.port, {"/": coder(arguments, self.node.port)}, core=None, workers=2)

    def state(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.node.port, timeout=30)
        connection.request("GET", "/chain")
        return json.loads(connection.getresponse().read())

    def run(self):
        with self.node, self.nginx:
            first = self.state()["slot"]
            self.watch()
            clients = [Client(self, n) for n in range(self.arguments.clients)]
            for client in clients:
                client.start()
            began = time.monotonic()
            shown = 0
            while (slots := self.watch() - first) < self.arguments.slots:
                time.sleep(self.arguments.slot_ms / 4000)
                if slots >= shown:
                    shown += self.arguments.slots // 24
                    requests = sum(client.counts["asked"] for client in clients)
                    print(f"day: slot {slots}, {requests} requests sent", file=sys.stderr)
            self.is_over = True
            for client in clients:
                client.join(60)
                for at, text in client.back:
                    if any(abs(at - fell) < MOMENT for fell in self.fell):
                        client.counts["back"] += 1
                    else:
                        client.wrong.append(text)
            took = time.monotonic() - began
            return clients, self.node.stats()["methods"], self.nginx.owner_status(), self.state(), took, self.nginx.complaints()

    def watch(self):
        state = self.state()
        if state["head"]["number"] < self.head:
            self.fell.append(time.monotonic())
        self.head, self.final = state["head"]["number"], state["finalized"]["number"]
        return state["slot"]


def report(arguments, clients, method_counts, owner, state, took, complaints):
    counts = sum((client.counts for client in clients), collections.Counter())
    wrong = [line for client in clients for line in client.wrong]
    (chain,) = owner["chains"]
    hits = sum(counts[kind, "hit"] for _, kind in MIX)
    requests = counts["asked"]
    times = sorted(time for client in clients for time in client.times)
    lines = [
        "# A day of a simulated chain",
        "",
        f"`loadtest/day/run --slots {arguments.slots} --slot-ms {arguments.slot_ms} --rate {arguments.rate}`, "
        f"{took:.0f} s, nginx with two workers, {arguments.clients} clients. A slot stands for 12 s: everything else is "
        f"{12000 / arguments.slot_ms:.0f} times as fast as it would be.",
        "",
        "| | |",
        "|---|---|",
        f"| Commit | {machine.commit() or 'unknown'} |",
        f"| Slots, blocks ever made, head | {arguments.slots}, {state['blocks']}, {state['head']['number']} |",
        f"| Reorganisations that the owner saw | {chain['reorgs']} |",
        f"| Requests, answered from the cache | {requests}, {100 * hits / requests:.1f} % |",
        f"| Median, 99th percentile of a request | {1000 * statistics.median(times):.2f} ms, {1000 * times[len(times) * 99 // 100]:.2f} ms |",
        f"| Fills that the owner refused: late, or behind the head | {owner['fills']['refused']} |",
        f"| Entries on disk (stored) | {owner['stores']['done']} |",
        f"| Hits about final blocks that were compared with an honest node's answers | {counts['audited']} |",
        f"| Heads that were compared with the client's last one | {counts['ordered']} |",
        f"| Of these lower, from the cache, as the chain itself was at that moment (a shorter branch) | {counts['back']} |",
        f"| Wrong | {len(wrong)} |",
        "",
        "| Asked for | requests | from the cache | calls that the node was spared |",
        "|---|---|---|---|",
    ]
    for _, kind in MIX:
        hit, miss = counts[kind, "hit"], counts[kind, "miss"]
        if hit + miss:
            lines.append(f"| {kind} | {hit + miss} | {100 * hit / (hit + miss):.1f} % | {hit} |")
    lines += ["", "| Method | calls that the node had |", "|---|---|"]
    lines += [f"| `{method}` | {count} |" for method, count in sorted(method_counts.items(), key=lambda item: -item[1]) if count]
    lines += ["", "The follower's own calls are among these (head, finality, `eth_syncing`)."]
    if wrong:
        lines += ["", "Wrong:", "", *(f"- {line[:400]}" for line in wrong[:20])]
    if complaints:
        lines += ["", "nginx said:", "", "```", complaints[-2000:], "```"]
    return "\n".join(lines) + "\n", not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=7200, help="number of slots; a day of mainnet has 7200 (default: 7200)")
    parser.add_argument("--slot-ms", type=int, default=500, help="duration of a slot in milliseconds (default: 500, an hour in all)")
    parser.add_argument("--rate", type=int, default=600, help="requests per second (default: 600)")
    parser.add_argument("--clients", type=int, default=12, help="number of client threads (default: 12)")
    parser.add_argument("--reorgs", type=float, default=0.01,
                        help="probability that a slot contains a reorganisation (default: 0.01)")
    parser.add_argument("--missed", type=float, default=0.01, help="probability that a slot is missed (default: 0.01)")
    parser.add_argument("--name", default="part-05-day", help="name of the result file (default: part-05-day)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sszip-day-") as work:
        Path(work).chmod(0o755)
        text, is_right = report(arguments, *Day(arguments, Path(work)).run())
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{arguments.name}.md").write_text(text)
    print(text)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
