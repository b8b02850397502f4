"""Byte ranges refer to one representation: compressed bodies have none, unchanged bodies
keep theirs (RFC 9110, 14)."""

import pytest

from harness.recorded_nodes import BODY
from harness.origin import answer

TAG = ("ETag", '"abc"')

CONFIG = """
types { application/json json; }
proxy_cache_path @prefix@/cache keys_zone=ranges:1m;
server {
    listen 127.0.0.1:@port@;
    sszip on;
    location / { proxy_pass http://@origin@; }
    location /forced { proxy_force_ranges on; proxy_pass http://@origin@; }
    location /file/ { alias @prefix@/www/; }
    location /cached { proxy_cache ranges; proxy_cache_key $uri; proxy_cache_valid 200 1h; proxy_pass http://@origin@; }
    location /slice {
        slice 8k;
        proxy_cache ranges;
        proxy_cache_key $uri$slice_range;
        proxy_set_header Range $slice_range;
        proxy_cache_valid 200 206 1h;
        proxy_pass http://@origin@;
    }
}
"""
OPTIONS = {"files": {"www/a.json": BODY}}


def node_with_ranges(request):
    value = request.header("Range")
    if value is None or request.header("If-Range") not in (None, '"abc"'):
        return answer(BODY, headers=[TAG, ("Accept-Ranges", "bytes")])
    first, _, last = value.removeprefix("bytes=").partition("-")
    first, last = int(first), min(int(last or len(BODY)), len(BODY) - 1)
    return answer(
        BODY[first : last + 1],
        status=206,
        headers=[TAG, ("Content-Range", f"bytes {first}-{last}/{len(BODY)}")],
    )


@pytest.mark.parametrize("accept", ["gzip", None])
def test_206_of_the_node_is_sent_unchanged(nginx, origin, accept):
    origin.answers(node_with_ranges)
    part = nginx.get("/", accept, headers=[("Range", "bytes=100-4099")])
    assert (part.status, part.coding, part.body) == (206, None, BODY[100:4100])
    assert part.header("Content-Range") == f"bytes 100-4099/{len(BODY)}"
    assert part.header("ETag") == '"abc"'
    assert part.mode == "status"


def test_download_in_identity_can_be_resumed(nginx, origin):
    """A client without gzip resumes with the strong tag that it received."""
    origin.answers(node_with_ranges)
    first = nginx.get("/", accept=None)
    rest = nginx.get(
        "/", accept=None, headers=[("Range", "bytes=9000-"), ("If-Range", first.header("ETag"))]
    )
    assert rest.status == 206
    assert first.body[:9000] + rest.body == BODY


def test_download_in_gzip_is_restarted_instead_of_resumed(nginx, origin):
    """The weak tag never matches If-Range, so that the client receives the whole body."""
    origin.answers(node_with_ranges)
    first = nginx.get("/")
    assert first.header("Accept-Ranges") is None
    again = nginx.get("/", headers=[("Range", "bytes=100-"), ("If-Range", first.header("ETag"))])
    assert (again.status, again.coding, again.decoded) == (200, "gzip", BODY)


@pytest.mark.parametrize("path", ["/forced", "/file/a.json", "/cached"])
class TestRangesMadeByNginx:
    def test_range_of_a_compressed_body_is_ignored(self, nginx, origin, path):
        origin.answers(answer(BODY, headers=[TAG, ("Accept-Ranges", "bytes")]))
        for _ in range(2):
            whole = nginx.get(path, headers=[("Range", "bytes=100-199")])
            assert (whole.status, whole.coding, whole.decoded) == (200, "gzip", BODY)
            assert whole.header("Content-Range") is None
            assert whole.header("Accept-Ranges") is None

    def test_range_of_an_identity_body_is_sent(self, nginx, origin, path):
        origin.answers(answer(BODY, headers=[TAG, ("Accept-Ranges", "bytes")]))
        nginx.get(path, accept=None)
        part = nginx.get(path, accept=None, headers=[("Range", "bytes=100-199")])
        assert (part.status, part.body) == (206, BODY[100:200])
        several = nginx.get(path, accept=None, headers=[("Range", "bytes=0-9,20-29")])
        if path == "/forced":
            # nginx allows one range of a body that is not in memory
            assert (several.status, several.body) == (200, BODY)
        else:
            assert several.status == 206
            assert several.header("Content-Type").startswith("multipart/byteranges")

    def test_if_range_with_a_weak_etag_gets_the_whole_body(self, nginx, origin, path):
        origin.answers(answer(BODY, headers=[TAG, ("Accept-Ranges", "bytes")]))
        tag = nginx.get(path).header("ETag")
        assert tag.startswith("W/")
        whole = nginx.get(path, accept=None, headers=[("Range", "bytes=5-9"), ("If-Range", tag)])
        assert (whole.status, whole.body) == (200, BODY)


@pytest.mark.parametrize("accept", ["gzip", None])
def test_slices_are_joined_to_one_body(nginx, origin, accept):
    origin.answers(node_with_ranges)
    for _ in range(2):
        response = nginx.get("/slice", accept)
        assert (response.status, response.decoded) == (200, BODY)
