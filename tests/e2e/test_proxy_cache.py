"""nginx's own proxy_cache in front of the node: it stores identity, and each hit is
compressed for its client."""

import time

import pytest

from harness.guards import GUARD_SECONDS
from harness.origin import answer
from harness.recorded_nodes import BODY, geth, plain

CONFIG = """
proxy_cache_path @prefix@/cache levels=1:2 keys_zone=answers:1m;
server {
    listen 127.0.0.1:@port@;
    sszip on;
    proxy_cache answers;
    proxy_cache_valid any 1h;
    location / { proxy_pass http://@origin@; }
    location /stale {
        proxy_cache_use_stale updating error http_500;
        proxy_cache_background_update on;
        proxy_pass http://@origin@;
    }
    location /revalidated { proxy_cache_revalidate on; proxy_pass http://@origin@; }
    location /gzip { gzip on; gzip_types application/json; gzip_vary on; proxy_pass http://@origin@; }
    location /aio { aio threads; output_buffers 1 4k; proxy_pass http://@origin@; }
    location /locked { proxy_cache_lock on; proxy_pass http://@origin@; }
}
"""


def cached(response):
    return response.logged["cache"]


@pytest.mark.parametrize("path", ["/", "/gzip", "/locked", "/aio"])
@pytest.mark.parametrize("vary", [None, "Accept-Encoding", "Origin, Accept-Encoding"])
@pytest.mark.parametrize("first, second", [("gzip", None), (None, "gzip"), ("gzip", "br, gzip")])
def test_hit_of_proxy_cache_is_compressed_for_each_client(nginx, origin, path, vary, first, second):
    # A path of its own: entries of one case are no hits for the next.
    origin.answers(geth(headers=[("Vary", vary)] if vary else []))
    key = f"{path}?{vary}-{first}-{second}".replace(" ", "").replace(",", "-")
    seen = []
    for accept in (first, second, first, second):
        with nginx.connect() as connection:
            headers = [("Accept-Encoding", accept)] if accept else []
            response = connection.exchange(key, headers=headers)
        assert response.decoded == BODY
        assert response.coding == ("gzip" if accept else None)
        assert response.framing == "length"
        assert "Accept-Encoding" in response.header("Vary")
        assert response.header("Vary").count("Accept-Encoding") == 1
        seen.append(response)
    # The node gets one request for each variant at most.
    assert len(origin.requests) <= (2 if vary else 1)
    assert {request.header("Accept-Encoding") for request in origin.requests} == {"identity"}


def test_client_gets_its_variant_from_proxy_cache(nginx, origin):
    origin.answers(geth(headers=[("Vary", "Accept-Encoding")]))
    with nginx.connect() as connection:
        for _ in range(5):
            response = connection.exchange("/again", headers=[("Accept-Encoding", "gzip, deflate")])
            assert (response.coding, response.decoded) == ("gzip", BODY)
    assert len(origin.requests) == 1


def test_head_and_get_share_an_entry(nginx, origin):
    origin.answers(geth())
    with nginx.connect() as connection:
        head = connection.exchange("/head", method="HEAD", headers=[("Accept-Encoding", "gzip")])
        assert (head.status, head.length) == (200, None)
        assert connection.exchange("/head", headers=[("Accept-Encoding", "gzip")]).decoded == BODY
        assert connection.exchange("/head", method="HEAD").length == len(BODY)
    assert [request.method for request in origin.requests] == ["GET"]


def test_hit_of_proxy_cache_is_a_304_when_the_etag_matches(nginx, origin):
    origin.answers(geth(headers=[("ETag", '"abc"')]))
    with nginx.connect() as connection:
        tag = connection.exchange("/tag", headers=[("Accept-Encoding", "gzip")]).header("ETag")
        again = connection.exchange("/tag", headers=[("Accept-Encoding", "gzip"), ("If-None-Match", tag)])
    assert (tag, again.status) == ('W/"abc"', 304)
    assert len(origin.requests) == 1


def test_truncated_response_is_not_stored_by_proxy_cache(nginx, origin):
    origin.answers(answer(BODY, cut_at=9000))
    with nginx.connect() as connection:
        assert connection.exchange("/cut", headers=[("Accept-Encoding", "gzip")]).status == 502
        origin.answers(geth())
        response = connection.exchange("/cut", headers=[("Accept-Encoding", "gzip")])
    assert (response.status, response.decoded) == (200, BODY)


def test_background_update_of_proxy_cache_fetches_identity(nginx, origin):
    """The update is a subrequest: it must request identity too, or the next hit would be the
    node's gzip."""
    old, new = BODY, BODY.replace(b"2.0", b"2.1")
    stale = [("X-Accel-Expires", "1")]
    origin.answers(geth(old, headers=stale))
    headers = [("Accept-Encoding", "gzip")]
    with nginx.connect() as connection:
        assert connection.exchange("/stale", headers=headers).decoded == old
        origin.answers(geth(new))
        deadline = time.monotonic() + GUARD_SECONDS
        while (response := connection.exchange("/stale", headers=headers)).decoded != new:
            assert response.decoded == old
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert connection.exchange("/stale").body == new
    assert {request.header("Accept-Encoding") for request in origin.requests} == {"identity"}


def test_revalidated_entry_of_proxy_cache_is_compressed(nginx, origin):
    def node(request):
        if request.header("If-None-Match") == '"abc"':
            return answer(status=304, framing="none", headers=[("ETag", '"abc"')])
        return answer(BODY, headers=[("ETag", '"abc"'), ("X-Accel-Expires", "1")])

    origin.answers(node)
    headers = [("Accept-Encoding", "gzip")]
    with nginx.connect() as connection:
        connection.exchange("/revalidated", headers=headers)
        deadline = time.monotonic() + GUARD_SECONDS
        while len(origin.requests) < 2:
            response = connection.exchange("/revalidated", headers=headers)
            assert (response.status, response.coding, response.decoded) == (200, "gzip", BODY)
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert origin.last().header("If-None-Match") == '"abc"'


def test_status_of_proxy_cache_is_logged(nginx, origin):
    origin.answers(plain())
    response = nginx.get("/logged")
    assert (cached(response), response.mode) == ("MISS", "oneshot")


BEHIND = """
proxy_cache_path @prefix@/behind keys_zone=behind:1m;
map $upstream_http_x_cache_status $sszip_stale { default ""; STALE 1; UPDATING 1; }
server {
    listen 127.0.0.1:@port_behind@;
    location / {
        proxy_cache behind;
        proxy_cache_use_stale http_503;
        add_header X-Cache-Status $upstream_cache_status;
        proxy_pass http://@origin@;
    }
}
server {
    listen 127.0.0.1:@port@;
    sszip on;
    sszip_cache on;
    sszip_no_cache $sszip_stale;
    location / { proxy_pass http://127.0.0.1:@port_behind@; }
}
"""


def test_stale_response_of_another_proxy_cache_is_not_stored(start_nginx, origin):
    """docs/proxy-cache.md: the stale response has neither Age nor a warning."""
    nginx = start_nginx(BEHIND)
    down = False

    def respond(_request):
        if down:
            return answer(b"down", status=503)
        return answer(BODY, headers=[("Cache-Control", "max-age=1")])

    origin.answers(respond)

    def get():
        with nginx.connect() as connection:
            return connection.exchange("/behind")

    nginx.wait_for(lambda: get().header("Cache-Status").startswith("sszip; hit"), "a hit")
    down = True
    # both entries expire
    nginx.wait_for(lambda: get().header("X-Cache-Status") == "STALE", "a stale response")
    for _ in range(3):
        stale = get()
        assert (stale.decoded, stale.header("X-Cache-Status")) == (BODY, "STALE")
        assert stale.header("Cache-Status").startswith("sszip; fwd=miss")
