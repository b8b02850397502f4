"""Background updates: all clients receive the stale response while one is in flight."""

import collections
import itertools
import json
import random
import threading
import time

import pytest

from harness import bodies, client
from harness.client import Malformed, Truncated
from harness.http2 import Http2Client
from harness.nginx_state import wait_until_expired
from harness.origin import CLOSE, RESET, WaitFor, answer, head, scattered
from harness.owner import owner_of, wait_until_linked
from harness.rpc import Node, call

from test_stale import HASH, RpcClient, failing, logged, result_of
from tiers import alternate, pairwise, times

pytestmark = pytest.mark.bare

# every stored response has expired when it is requested again
CONFIG = """
log_format stale '$uri $sszip_cache_status $sszip_mode';
sszip on;
sszip_cache on;
sszip_cache_namespace $arg_chain;
sszip_cache_valid tip 1ms;
sszip_cache_valid immutable 1ms;
proxy_http_version 1.1;
proxy_read_timeout 20s;
proxy_set_header Asked $msec;
proxy_cache_path @prefix@/proxied keys_zone=below:1m;
server {
    listen 127.0.0.1:@port@;
    access_log @prefix@/stale.log stale;
    location / {
        sszip_cache_use_stale error updating;
        sszip_cache_background_update on;
        proxy_pass http://@origin@;
        location /pages { error_page 502 503 /page; proxy_pass http://@origin@; }
        location /proxied {
            proxy_max_temp_file_size 0;
            proxy_buffers 2 4k;
            proxy_busy_buffers_size 4k;
            error_page 503 /large;
            proxy_intercept_errors on;
            proxy_pass http://@origin@;
        }
        location /gone {
            sszip_cache_use_stale updating;
            error_page 404 502 503 =444 @gone;
            error_page 408 =408 @timeout;
            proxy_intercept_errors on;
            proxy_pass http://@origin@;
        }
        location /unbuffered { proxy_buffering off; proxy_pass http://@origin@; }
        location /few {
            proxy_buffers 2 4k;
            proxy_busy_buffers_size 4k;
            proxy_pass http://@origin@;
            location /few/nofile { proxy_max_temp_file_size 0; proxy_pass http://@origin@; }
        }
        location /below {
            proxy_cache below;
            proxy_cache_key $request_uri$request_body;
            proxy_cache_methods POST;
            proxy_cache_valid 1h;
            proxy_cache_bypass 1;
            proxy_max_temp_file_size 0;
            proxy_pass http://@origin@;
        }
        location /slow { limit_rate 1m; proxy_pass http://@origin@; }
        location /timeout { send_timeout 1s; proxy_pass http://@origin@; }
        location /loop { sszip_thread_pool off; proxy_pass http://@origin@; }
        location /logged { log_subrequest on; proxy_pass http://@origin@; }
        location /gunzip { gunzip on; proxy_pass http://@origin@; }
        location /sub { sub_filter_types *; sub_filter_once off; sub_filter 0xbe 0x00be; proxy_pass http://@origin@; }
        location /onlyupdating { sszip_cache_use_stale updating; proxy_pass http://@origin@; }
        location /noupdating { sszip_cache_use_stale error; proxy_pass http://@origin@; }
    }
    location @gone { return 444; }
    location @timeout { return 408; }
    location = /large { sszip off; proxy_max_temp_file_size 0; proxy_pass http://@origin@/large; }
    location = /page { sszip off; return 200 "the page"; }
}
"""
PLACES = ["/place", "/unbuffered", "/few", "/few/nofile", "/below", "/loop", "/slow"]
FAILURES = {"close": [CLOSE], "reset": [RESET], **{str(status): failing(status) for status in (503, 404, 408, 499)}}
_places = itertools.count()


@pytest.fixture
def rpc(nginx, origin):
    return RpcClient(nginx, origin)


def updated(rpc, path, result="0x2", **options):
    rpc.nginx.wait_for(lambda: result_of(rpc(path, **options)) == result, "the new one")


def stored(rpc, path, **options):
    """Stores a response that has expired and that no update is fetching."""
    rpc(path, **options)
    rpc.nginx.wait_for(lambda: "hit" in rpc(path, **options).header("Cache-Status"), "it to be stored")
    rpc.settle(path)


def begun(rpc, path, request):
    """A connection whose client has read nothing yet, and whose request has
    started an update."""
    for _ in range(10):
        before = len(rpc.origin.received())
        wait_until_expired()
        rpc.sent_requests[path] += 1
        connection = rpc.nginx.connect(receive_buffer=4096)
        connection.send(request)
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            if len(rpc.origin.received()) > before:
                return connection
            time.sleep(0.005)
        connection.close()
        # a response of some MB is stored a while after its request is over
        assert logged(rpc.nginx, path, rpc.sent_requests[path])[-1] in ("HIT", "UPDATING")
    raise AssertionError("no update is started")


class TestBackgroundUpdate:
    """The client whose request starts the update receives the stale response as well."""

    @pytest.mark.parametrize("path", ["/place", "/unbuffered", "/pages"])
    def test_clients_get_the_stale_response_until_the_update_is_stored(self, rpc, nginx, origin, path):
        path = f"{path}/{rpc.chain}"
        rpc(path)
        node = rpc.serve(b'"0x2"')
        gate = node.gates["eth_blockNumber"] = threading.Event()
        for id in range(4):
            response = rpc(path, str(id))
            assert response.decoded == b'{"jsonrpc":"2.0","id":%d,"result":"0x1"}\n' % id
            assert response.header("Cache-Status").startswith("sszip; hit; ttl=")
        nginx.wait_for(node.count, "the update")
        # body, head and target are equal to those in the first request
        assert node.received_calls == [{"jsonrpc": "2.0", "id": 0, "method": "eth_blockNumber", "params": []}]
        (request,) = origin.received(path)[1:]
        assert request.target == f"{path}?chain={rpc.chain}" and request.method == "POST"
        assert request.header("Accept-Encoding") == "identity"
        gate.set()
        updated(rpc, path)
        # nginx logs a request when its subrequests are over, perhaps after others that came then
        nginx.wait_for(lambda: "STALE" in logged(nginx, path, 5), "the line of the first")
        first, *others = logged(nginx, path, 5)
        assert first == "MISS" and others.index("STALE") >= 3
        assert set(others[:3]) == {"UPDATING"}

    @pytest.mark.parametrize(
        "path, framing, accept, length",
        pairwise(PLACES, ["length", "chunked", "close"], ["gzip", None], [30_000, 600_000]),
    )
    def test_long_response_is_replaced_by_the_update(self, rpc, framing, path, accept, length):
        text = bodies.json(length).hex().encode()
        old, new = b'"0x1%b"' % text, b'"0x2%b"' % text
        options = {"method": "eth_getBlockByHash", "accept": accept}
        rpc.serve(old)
        first = rpc(path, **options)
        assert first.decoded == b'{"jsonrpc":"2.0","id":1,"result":%b}\n' % old
        # it is stored off the event loop
        rpc.nginx.wait_for(lambda: "hit" in rpc(path, **options).header("Cache-Status"), "it to be stored")
        node = Node({"eth_getBlockByHash": new}, framing=framing)
        rpc.origin.answers(node)
        rpc.nginx.wait_for(
            lambda: (answer := rpc(path, **options)).decoded == b'{"jsonrpc":"2.0","id":1,"result":%b}\n' % new
            and "hit" in answer.header("Cache-Status"),
            "the new one",
        )

    @pytest.mark.parametrize("failure, path", alternate(list(FAILURES), ["/place", "/pages", "/proxied", "/gone"]))
    def test_clients_get_the_stale_response_when_the_update_fails(self, rpc, nginx, failure, path):
        rpc.origin.answers(answer(b"x" * 3_000_000, type="text/plain"), "/large")
        rpc(path)
        rpc.fails(FAILURES[failure])
        with nginx.connect() as connection:
            # on one connection, each request waits for the update of the one before
            for id in range(3):
                wait_until_expired()
                response = connection.exchange(
                    f"{path}?chain={rpc.chain}",
                    method="POST",
                    headers=[("Content-Type", "application/json")],
                    body=call("eth_blockNumber", id=str(id)),
                )
                assert response.decoded == b'{"jsonrpc":"2.0","id":%d,"result":"0x1"}\n' % id
        nginx.wait_for(lambda: len(rpc.origin.received()) >= 4, "the last update")
        rpc.serve(b'"0x2"')
        updated(rpc, path)

    @pytest.mark.parametrize("framing", ["length", "chunked"])
    def test_truncated_update_is_not_stored(self, rpc, nginx, framing):
        rpc("/place")
        body = b'{"jsonrpc":"2.0","id":1,"result":"0x%b"}' % (b"2" * 20_000)
        rpc.fails(lambda request: answer(body, framing=framing, cut_at=9_000))
        for _ in range(4):
            assert result_of(rpc("/place")) == "0x1"
        rpc.serve(b'"0x2"')
        updated(rpc, "/place")

    def test_update_that_sets_a_cookie_is_not_stored(self, rpc):
        rpc("/place")
        rpc.origin.answers(Node({"eth_blockNumber": b'"0x2"'}, headers=[("Set-Cookie", "a=b")]))
        for _ in range(4):
            response = rpc("/place")
            assert result_of(response) == "0x1" and response.header("Set-Cookie") is None

    @pytest.mark.parametrize("leaves", ["close", "reset"])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_update_is_stored_when_the_client_aborts(self, rpc, nginx, leaves, when):
        rpc("/place")
        node = rpc.serve(b'"0x2"')
        gate = node.gates["eth_blockNumber"] = threading.Event()
        wait_until_expired()
        with nginx.connect() as connection:
            connection.send(
                client.request_bytes(
                    f"/place?chain={rpc.chain}",
                    method="POST",
                    headers=[("Content-Type", "application/json")],
                    body=call("eth_blockNumber"),
                )
            )
            if when == "after":
                connection.read_head()
            nginx.wait_for(node.count, "the update")
            getattr(connection, leaves)()
        for _ in range(3):
            assert result_of(rpc("/place")) == "0x1"
        gate.set()
        updated(rpc, "/place")

    def test_slow_client_gets_the_stale_response_whatever_the_update_does(self, rpc):
        """The update succeeds or fails while the stale response is being sent."""
        old = b'"0x' + random.Random(1).randbytes(4_000_000).hex().encode() + b'"'
        rpc.serve(old)
        path = f"/place/{rpc.chain}"
        stored(rpc, path, method="eth_getBlockByHash", accept=None)
        request = client.request_bytes(
            f"{path}?chain={rpc.chain}",
            method="POST",
            headers=[("Content-Type", "application/json")],
            body=call("eth_getBlockByHash", f"[{HASH},true]"),
        )
        nonsense = [head(headers=[("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]), b"zz\r\n"]
        cut = answer(b"{}" * 5_000, cut_at=9_000)
        for script in ([CLOSE], failing(503), nonsense, cut, Node({"eth_getBlockByHash": b'"0x2"'})):
            rpc.fails(script)
            with begun(rpc, path, request) as connection:
                # the client is slow
                time.sleep(0.05)
                assert connection.read("POST").decoded == b'{"jsonrpc":"2.0","id":1,"result":%b}\n' % old
            rpc.settle(path)

    @pytest.mark.parametrize("way", ["delayed", "full"])
    def test_client_timers_are_not_reset_by_the_update(self, rpc, nginx, way):
        """An update must not change the timer of limit_rate or of send_timeout on
        which the client's response depends."""
        old = b'"0x' + random.Random(2).randbytes(1_500_000).hex().encode() + b'"'
        path = {"delayed": "/slow/timers", "full": "/timeout"}[way] + f"/{rpc.chain}"
        rpc.serve(old)
        stored(rpc, path, method="eth_getBlockByHash", accept=None)
        new = b'{"jsonrpc":"2.0","id":1,"result":"0x%b"}' % (b"2" * 20_000)
        gates = [threading.Event() for _ in range(3)]
        script = answer(new)
        pieces = [script[0]]
        for number, gate in enumerate(gates):
            pieces += [script[1][number * 5000 : number * 5000 + 5000], WaitFor(gate)]
        rpc.origin.answers([*pieces, script[1][15_000:]])
        request = client.request_bytes(
            f"{path}?chain={rpc.chain}",
            method="POST",
            headers=[("Content-Type", "application/json")],
            body=call("eth_getBlockByHash", f"[{HASH},true]"),
        )
        with begun(rpc, path, request) as connection:
            for gate in gates:
                gate.set()
                # the parts of the update arrive between the client's timers
                time.sleep(0.05)
            if way == "delayed":
                assert connection.read("POST").decoded == b'{"jsonrpc":"2.0","id":1,"result":%b}\n' % old
            else:
                # the client reads nothing, and is timed out in spite of the update
                assert logged(nginx, path, rpc.sent_requests[path])[-1] == "STALE"

    def test_stale_resource_is_revalidated_with_its_etag(self, nginx, origin):
        path = f"/place/{next(_places)}"
        body = bodies.generate("object:30000")

        def get():
            with nginx.connect() as connection:
                return connection.exchange(path, headers=[("Accept-Encoding", "gzip")])

        fields = [("ETag", '"v1"'), ("Cache-Control", "max-age=1")]
        origin.answers(answer(body, headers=fields))
        get()
        longer = [("ETag", '"v1"'), ("Cache-Control", "max-age=3600")]
        origin.answers(answer(status=304, type=None, framing="none", headers=longer))

        def is_fresh_for_long():
            response = get()
            assert (response.status, response.decoded) == (200, body)
            return response.header("Cache-Control") == "max-age=3600"

        nginx.wait_for(is_fresh_for_long, "the 304")
        assert [request.header("If-None-Match") for request in origin.received(path)] == [None, '"v1"']

    @pytest.mark.parametrize("number", [None, b"null"])
    def test_stale_response_is_removed_when_the_node_reports_an_error_or_null(self, rpc, number):
        """An error, or null, is a response: no client receives the stale one after it."""
        rpc("/place")
        rpc.serve(number)
        rpc.nginx.wait_for(lambda: json.loads(rpc("/place").decoded).get("result") is None, "the node's answer")
        for _ in range(3):
            assert json.loads(rpc("/place").decoded).get("result") is None

    @pytest.mark.parametrize("path", ["/noupdating", "/onlyupdating"])
    def test_entry_is_not_updated_when_use_stale_is_incomplete(self, rpc, path):
        rpc(path)
        rpc.serve(b'"0x2"')
        assert result_of(rpc(path)) == ("0x2" if path == "/noupdating" else "0x1")

    def test_update_is_stored_after_other_filters_changed_it(self, rpc):
        """The update is stored after all other filters, as any response is."""
        params = {"method": "eth_getBlockByHash"}
        for path, stored in (("/sub", "0x00be"), ("/place", "0xbe")):
            rpc.serve(b'"0x11"')
            rpc(path, **params)
            rpc.serve(b'"0xbe"')
            updated(rpc, path, stored, **params)

    @pytest.mark.parametrize("coding", [None, "gzip"])
    def test_update_is_readable_by_all_clients_when_the_node_compresses_it(self, nginx, origin, coding):
        path = f"/gunzip/{next(_places)}"
        fields = [("Cache-Control", "max-age=1")]

        def get(accept):
            with nginx.connect() as connection:
                fields = [("Accept-Encoding", accept)] if accept else []
                return connection.exchange(path, headers=fields)

        old, new = bodies.generate("object:20000"), bodies.generate("object:30000")
        origin.answers(answer(old, headers=fields))
        assert get(None).decoded == old
        origin.answers(answer(new, headers=fields, coding=coding))
        seen = set()

        def is_new():
            responses = [get(accept) for accept in (None, "gzip")]
            seen.update(response.decoded for response in responses)
            return all(response.decoded == new for response in responses)

        nginx.wait_for(is_new, "the new one")
        assert seen <= {old, new}

    def test_update_is_logged_before_its_request_when_log_subrequest_is_on(self, rpc, nginx):
        path = f"/logged/{rpc.chain}"
        rpc(path)
        rpc.serve(b'"0x2"')
        assert result_of(rpc(path)) == "0x1"
        # the subrequest's line, and then the request's
        assert logged(nginx, path, 3)[:3] == ["MISS", "MISS", "STALE"]


def test_http2_streams_do_not_wait_for_an_update(start_nginx, origin):
    """Over HTTP/2 the other streams of a connection don't wait for the update."""
    nginx = start_nginx(CONFIG.replace("listen 127.0.0.1:@port@;", "listen 127.0.0.1:@port@ http2;"))
    body = bodies.generate("object:30000")
    path = f"/place/{next(_places)}"
    fields = [("Cache-Control", "max-age=1"), ("Vary", "Accept-Encoding")]
    origin.answers(answer(body, headers=fields))
    gate = threading.Event()
    for leaves in (False, True):
        with Http2Client(nginx.port) as client:
            client.finish(client.fetch(path))
            before = len(origin.received())
            origin.answers([WaitFor(gate), CLOSE], path)
            while len(origin.received()) == before:
                stream = client.fetch(path)
                client.finish(stream)
                client.check_response(stream, body)
            others = [client.fetch(f"/place/{next(_places)}") for _ in range(3)]
            client.finish(*others)
            for stream in others:
                client.check_response(stream, body)
            if not leaves:
                gate.set()
        # or the client has left before the update ended
        gate.set()
        gate = threading.Event()
        origin.answers(answer(body, headers=fields), path)


@pytest.mark.parametrize("options", [{"main": "master_process off;", "single": True}, {"workers": 2}], ids=["single", "two"])
def test_entry_is_updated_in_single_process_and_with_two_workers(start_nginx, origin, options):
    nginx = start_nginx(CONFIG, **options)
    rpc = RpcClient(nginx, origin)
    for path in ("/place", "/proxied"):
        rpc.serve(b'"0x1"')
        rpc(path)
        rpc.serve(b'"0x2"')
        updated(rpc, path)


def random_response(chance, request, version):
    """The node's response with a version number, or a failure of it."""
    id = json.loads(request.body)["id"]
    size = chance.choice([1, 1, 2_000, 20_000, 400_000])
    body = b'{"jsonrpc":"2.0","id":%d,"result":"0x%x%b"}' % (id, version, b"_" * size)
    match chance.randrange(12):
        case 0:
            return [CLOSE]
        case 1:
            return [RESET]
        case 2:
            return failing(chance.choice([404, 502, 503]))
        case 3:
            framing = chance.choice(["length", "chunked"])
            return answer(body, framing=framing, cut_at=chance.randrange(len(body)))
        case 4:
            return answer(b'{"jsonrpc":"2.0","id":%d,"error":{"code":1,"message":"m"}}' % id)
        case 5:
            return answer(body, headers=[("Set-Cookie", "a=b")])
    split = scattered(chance.random(), most=4)
    return answer(body, framing=chance.choice(["length", "chunked", "close"]), split=split)


def exchange_or_abort(chance, connection, request):
    """Sends a request, and returns its response; None: the client has aborted at a random moment."""
    connection.send(request)
    if chance.random() < 0.3:
        if chance.random() < 0.5:
            connection.read_head()
        getattr(connection, chance.choice(["reset", "close"]))()
        return None
    return connection.read("POST")


def test_responses_never_go_back_when_clients_and_node_abort_at_random(start_nginx, origin):
    """Clients abort at any moment, and the node fails in every way: each client that
    stays receives one of the node's own responses, and stored responses never go
    back."""
    nginx = start_nginx(CONFIG)
    (worker,) = nginx.workers()
    chance = random.Random(7)

    def node(request):
        # The node may receive two requests in another order. $msec is the time at which the present
        # iteration of nginx's event loop began; a request is looked up and sent in one iteration. So
        # the request with the earlier time was sent before the other one, however long iterations
        # take.
        version = int(request.header("Asked").replace(".", ""))
        return random_response(chance, request, version)

    origin.answers(node)
    origin.answers(answer(b"x" * 300_000, type="text/plain"), "/large")
    faults = []
    response_counts = collections.Counter()

    def client_of(seed):
        chance = random.Random(seed)
        newest = {}
        for number in range(times(60, 150)):
            path = chance.choice([*PLACES, "/pages", "/proxied", "/logged"])
            chain = chance.randrange(3)
            accept = chance.choice([[], [("Accept-Encoding", "gzip")]])
            request = client.request_bytes(
                f"{path}?chain={chain}",
                method="POST",
                headers=[("Content-Type", "application/json"), *accept],
                body=call("eth_blockNumber", id=str(number)),
            )
            try:
                with nginx.connect() as connection:
                    response = exchange_or_abort(chance, connection, request)
                if response is None:
                    continue
            except (Malformed, Truncated, OSError):
                continue  # the node aborted after the head was sent
            if response.status != 200 or "result" not in (message := json.loads(response.decoded)):
                continue
            version = int(message["result"].strip("_"), 16)
            status = response.header("Cache-Status")
            stored = status.startswith("sszip; hit")
            response_counts[stored] += 1
            if message["id"] != number or stored and version < newest.get(chain, 0):
                faults.append((path, chain, message["id"], number, version, newest.get(chain), status))
            if stored:
                newest[chain] = version

    clients = [threading.Thread(target=client_of, args=(seed,)) for seed in range(6)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert not faults
    assert response_counts[True] > times(60, 200) and response_counts[False] > 0, response_counts
    assert nginx.all_workers() == [worker]
    origin.answers(Node({"eth_blockNumber": b'"0xffff"'}))
    for chain in range(3):
        nginx.wait_for(lambda: fetch_result(nginx, chain) == "0xffff", "the last version")  # noqa: B023


def fetch_result(nginx, chain):
    body = call("eth_blockNumber")
    fields = [("Content-Type", "application/json")]
    with nginx.connect() as connection:
        response = connection.exchange(f"/place?chain={chain}", method="POST", headers=fields, body=body)
    return json.loads(response.decoded).get("result") if response.status == 200 else None


def test_old_worker_ends_after_its_update_when_nginx_reloads(start_nginx, origin):
    """The old worker ends when the update does."""
    nginx = start_nginx(CONFIG)
    rpc = RpcClient(nginx, origin)
    rpc("/place")
    node = rpc.serve(b'"0x2"')
    gate = node.gates["eth_blockNumber"] = threading.Event()
    (worker,) = nginx.workers()
    assert result_of(rpc("/place")) == "0x1"
    nginx.wait_for(node.count, "the update")
    nginx.reload()
    gate.set()
    nginx.wait_for(lambda: worker not in nginx.all_workers(), "the old worker to end")


def test_entry_is_updated_when_there_is_a_store(start_nginx, origin):
    nginx = start_nginx("sszip_cache_path @prefix@/cache max_size=64m memory=32m;" + CONFIG)
    wait_until_linked(nginx, owner_of(nginx))
    rpc = RpcClient(nginx, origin)
    for path in ("/place", "/few/nofile"):
        rpc.serve(b'"0x1"')
        rpc(path)
        rpc.serve(b'"0x2"')
        updated(rpc, path)
