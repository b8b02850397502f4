"""zstd in nginx: the operator's rules for compression, the host's own gzip, refused memory, and a
browser."""

import itertools
import json

import pytest

from harness import bodies
from harness.browser import Browser
from harness.origin import answer
from harness.preload import ANY_THREAD, LIBRARIES
from harness.recorded_nodes import BODY, geth, plain
from harness.rpc import Node, call

CONFIG = """
sszip on;
sszip_zstd on;
proxy_http_version 1.1;
proxy_buffers 16 64k;
proxy_busy_buffers_size 128k;
gzip_types application/json;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin@; }
    location /any { gzip_proxied any; proxy_pass http://@origin@; }
    location /old { gzip_http_version 1.0; proxy_pass http://@origin@; }
    location /disable { gzip_disable "old|^bad/"; proxy_pass http://@origin@; }
    location /gzip { gzip on; proxy_pass http://@origin@; }
    location /vary { gzip_vary on; proxy_pass http://@origin@; }
    location /off { sszip_zstd off; proxy_pass http://@origin@; }
    location /stream { sszip_hold 0; proxy_pass http://@origin@; }
    location /cached { sszip_cache on; sszip_cache_namespace all; proxy_pass http://@origin@; }
}
"""
BROWSER = "gzip, deflate, br, zstd"
# lengths of bodies and of encoders: shorter allocations come from the core's reserve
LONG = (65 << 10, 1 << 40)
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def nginx(start_nginx, preload):
    return start_nginx(CONFIG, environment=preload.environment)


def block(number, id=1):
    return call("eth_getBlockByHash", f'["0x{number:064x}",true]', id=str(id))


@pytest.mark.parametrize("path", ["/", "/gzip", "/vary"])
def test_browser_receives_zstd_once_and_one_vary(nginx, origin, path):
    for node in (plain(), geth(), plain(framing="chunked")):
        origin.answers(node)
        response = nginx.get(path, BROWSER)
        assert (response.all("Content-Encoding"), response.all("Vary")) == (["zstd"], ["Accept-Encoding"])
        assert response.decoded == BODY
        assert origin.last().header("Accept-Encoding") == "identity"


def test_client_of_gzip_only_receives_gzip(nginx, origin):
    origin.answers(plain())
    assert nginx.get("/", "gzip, deflate, br").coding == "gzip"
    assert nginx.get("/off", BROWSER).coding == "gzip"


@pytest.mark.parametrize(
    "path, request_options, expected",
    [
        ("/", {"version": "1.0"}, None),
        ("/old", {"version": "1.0"}, "zstd"),
        ("/", {"headers": [("Via", "1.1 proxy")]}, None),
        ("/any", {"headers": [("Via", "1.1 proxy")]}, "zstd"),
        ("/disable", {"headers": [("User-Agent", "bad/1.0")]}, None),
        ("/disable", {"headers": [("User-Agent", "good/1.0")]}, "zstd"),
    ],
)
@pytest.mark.parametrize("accept", ["zstd", BROWSER])
def test_rules_for_gzip_apply_to_zstd(nginx, origin, path, request_options, expected, accept):
    origin.answers(plain())
    response = nginx.get(path, accept, **request_options)
    assert response.coding == expected
    assert response.decoded == BODY
    assert response.mode == ("oneshot" if expected else "host-policy")


def test_body_below_the_gate_is_left_to_gzip_of_nginx(nginx, origin):
    origin.answers(plain(bodies.json(600)))
    response = nginx.get("/gzip", BROWSER)
    assert (response.all("Content-Encoding"), response.decoded) == (["gzip"], bodies.json(600))
    assert response.mode == "too-small"


@pytest.mark.parametrize("accept", ["gzip, zstd", "zstd"])
@pytest.mark.parametrize("length", [100_000, 2_000_000])
def test_first_hit_is_right_when_an_allocation_of_its_zstd_form_fails(nginx, origin, preload, accept, length):
    """Each hit is the first one of a new entry. Without memory for zstd the client receives gzip
    if it accepts it, else identity, and the next hit is in zstd."""
    result = b'"0x%b"' % bodies.json(length // 2).hex().encode()
    node = Node({"eth_getBlockByHash": result}, newline=b"")
    origin.answers(node)
    (worker,) = nginx.workers()
    codings = set()
    for skip in itertools.count():
        number = next(_numbers)
        # stored, and read strictly by a first hit
        for id in (1, 2):
            nginx.post("/cached", block(number, id), accept="gzip")
        node.received_calls.clear()
        with preload.refusing(worker, LONG, LIBRARIES, ANY_THREAD, skip=skip):
            response = nginx.post("/cached", block(number, 3), accept=accept)
        assert nginx.workers() == [worker], nginx.error_log()[-2000:]
        assert response.status == 200
        assert response.decoded == b'{"jsonrpc":"2.0","id":3,"result":%b}' % result
        if not preload["refused"]:
            break
        codings.add(response.coding)
        again = nginx.post("/cached", block(number, 4), accept=accept)
        assert again.coding == "zstd"
        assert again.decoded == b'{"jsonrpc":"2.0","id":4,"result":%b}' % result
    assert response.coding == "zstd" and node.count() == 0
    assert codings <= ({"zstd", "gzip"} if "gzip" in accept else {"zstd", None})
    assert codings


@pytest.mark.parametrize("accept", ["gzip, zstd", "zstd"])
def test_miss_is_right_when_an_allocation_fails(nginx, origin, preload, accept):
    """Without memory the client receives the node's bytes."""
    body = bodies.json(300_000)
    origin.answers(answer(body))
    (worker,) = nginx.workers()
    for skip in itertools.count():
        with preload.refusing(worker, LONG, LIBRARIES, ANY_THREAD, skip=skip):
            response = nginx.get("/", accept)
        assert nginx.workers() == [worker], nginx.error_log()[-2000:]
        assert (response.status, response.decoded) == (200, body)
        if not preload["refused"]:
            break
        assert response.coding in ("zstd", None)
    assert response.coding == "zstd"


def test_stream_is_right_when_the_memory_of_its_encoder_is_refused(nginx, origin, preload):
    """The response is sent unchanged before its first byte is, and never broken off later."""
    body = bodies.json(300_000)
    origin.answers(answer(body, framing="chunked"))
    (worker,) = nginx.workers()
    for skip in itertools.count():
        with preload.refusing(worker, LONG, LIBRARIES, ANY_THREAD, skip=skip):
            response = nginx.get("/stream", "zstd")
        assert (response.status, response.decoded) == (200, body)
        if not preload["refused"]:
            break
        assert response.coding in ("zstd", None)
    assert skip > 0 and (response.coding, response.mode) == ("zstd", "stream")


@pytest.mark.once("what a browser decodes is not nginx's affair")
def test_browser_decodes_misses_hits_batches_and_streams(nginx, origin):
    results = {"eth_getBlockByHash": lambda params: b'"%b"' % (params[0].encode() * 1000)}
    origin.answers(answer(b"<title>sszip</title>", type="text/html"), "/page")
    origin.answers(plain(), "/")
    origin.answers(plain(framing="chunked"), "/stream")
    origin.answers(Node(results, newline=b""), "/cached")
    calls = [block(next(_numbers), id) for id in range(3)]
    script = """(async () => {
        const found = [];
        for (const [path, body] of %s) {
            const options = body && {method: 'POST', body, headers: {'Content-Type': 'application/json'}};
            const response = await fetch(path, options || {});
            found.push([response.headers.get('content-encoding'), await response.text()]);
        }
        return found;
    })()"""
    singles = [one.decode() for one in calls]
    requests = [["/", None], ["/stream", None], *(["/cached", one] for one in singles * 2)]
    requests.append(["/cached", f"[{','.join(singles)}]"])
    with Browser() as browser:
        page = browser.page(f"http://127.0.0.1:{nginx.port}/page")
        page.wait_for("document.title == 'sszip'", "the page")
        found = page.run(script % json.dumps(requests))
    assert [coding for coding, _ in found] == ["zstd"] * len(requests)
    texts = [text for _, text in found]
    assert texts[:2] == [BODY.decode()] * 2
    expected = []
    for one in calls:
        one = json.loads(one)
        result = one["params"][0] * 1000
        expected.append({"jsonrpc": "2.0", "id": one["id"], "result": result})
    assert [json.loads(text) for text in texts[2:-1]] == expected * 2
    assert json.loads(texts[-1]) == expected
