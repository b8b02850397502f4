"""nginx's own gzip, gunzip and gzip_static together with sszip, and the operator's gzip_*
rules, which sszip honours."""

import pytest

from harness import bodies
from harness.recorded_nodes import BODY, geth, plain
from harness.origin import gzipped

SMALL = bodies.json(600)
FILE = bodies.json(20000)

CONFIG = """
types { application/json json; }
server {
    listen 127.0.0.1:@port@;
    gzip_types application/json;
    gzip_min_length 100;
    gzip_comp_level 1;
    location /gzip-first { gzip on; sszip on; proxy_pass http://@origin@; }
    location /sszip-first { sszip on; gzip on; proxy_pass http://@origin@; }
    location /vary { sszip on; gzip on; gzip_vary on; proxy_pass http://@origin@; }
    location /vary-only { sszip on; gzip_vary on; proxy_pass http://@origin@; }
    location /vary-header { sszip on; add_header Vary Origin; proxy_pass http://@origin@; }
    location /vary-header-same { sszip on; gzip_vary on; add_header Vary Accept-Encoding; proxy_pass http://@origin@; }
    location /gunzip { sszip on; gunzip on; proxy_set_header Accept-Encoding gzip; proxy_pass http://@origin@; }
    location /static { sszip on; gzip_static on; root @prefix@; }
    location /proxied { sszip on; proxy_pass http://@origin@; }
    location /proxied/any { sszip on; gzip_proxied any; proxy_pass http://@origin@; }
    location /proxied/no-cache { sszip on; gzip_proxied no-cache; proxy_pass http://@origin@; }
    location /version-1.0 { sszip on; gzip_http_version 1.0; proxy_pass http://@origin@; }
    location /disable { sszip on; gzip_disable "old|^bad/"; proxy_pass http://@origin@; }
}
"""
OPTIONS = {"files": {"static/a.json": FILE, "static/a.json.gz": gzipped(FILE, 9)}}


def names_in_vary(response):
    return [name.strip().lower() for value in response.all("Vary") for name in value.split(",")]


@pytest.mark.parametrize("path", ["/gzip-first", "/sszip-first", "/vary"])
class TestGzipOn:
    def test_body_is_compressed_once_by_sszip(self, nginx, origin, path):
        origin.answers(geth())
        response = nginx.get(path)
        assert (response.all("Content-Encoding"), response.framing) == (["gzip"], "length")
        assert response.decoded == BODY
        assert response.mode == "oneshot"
        assert names_in_vary(response) == ["accept-encoding"]

    def test_body_below_the_compression_gate_is_compressed_by_nginx(self, nginx, origin, path):
        origin.answers(plain(SMALL))
        response = nginx.get(path)
        assert (response.all("Content-Encoding"), response.framing) == (["gzip"], "chunked")
        assert response.decoded == SMALL
        assert response.mode == "too-small"
        assert names_in_vary(response) == ["accept-encoding"]

    def test_chunked_body_is_compressed_once(self, nginx, origin, path):
        origin.answers(plain(framing="chunked"))
        response = nginx.get(path)
        assert response.all("Content-Encoding") == ["gzip"]
        assert response.decoded == BODY
        assert names_in_vary(response) == ["accept-encoding"]

    def test_incompressible_body_arrives(self, nginx, origin, path):
        origin.answers(plain(bodies.random(30000)))
        response = nginx.get(path)
        assert response.decoded == bodies.random(30000)
        assert response.mode == "not-smaller"

    def test_client_without_gzip_gets_identity(self, nginx, origin, path):
        origin.answers(plain())
        response = nginx.get(path, accept=None)
        assert (response.coding, response.framing, response.body) == (None, "length", BODY)
        assert names_in_vary(response) == ["accept-encoding"]

    @pytest.mark.parametrize("accept", ["br", "gzip;q=0", "identity", "deflate, br"])
    @pytest.mark.parametrize("size", [600, 30000])
    def test_nginx_gzip_checks_accept_encoding_itself(self, nginx, origin, path, accept, size):
        """nginx stores on the request whether the client accepts gzip; the module's check
        of the other rules must not change it."""
        origin.answers(plain(bodies.json(size)))
        response = nginx.get(path, accept)
        assert (response.coding, response.body) == (None, bodies.json(size))
        assert response.logged["accept_encoding"] == accept

    def test_gzip_of_the_node_is_passed_or_decoded(self, nginx, origin, path):
        origin.answers(plain(coding="gzip"))
        assert nginx.get(path).decoded == BODY
        response = nginx.get(path, accept=None)
        assert (response.coding, response.framing, response.body) == (None, "length", BODY)

    def test_response_to_head_has_no_length_and_one_vary(self, nginx, origin, path):
        origin.answers(plain(method="HEAD"))
        response = nginx.head(path)
        assert response.length is None
        assert names_in_vary(response) == ["accept-encoding"]


@pytest.mark.parametrize("accept", ["gzip", None])
@pytest.mark.parametrize("size", [600, 30000])
def test_vary_names_are_not_repeated(nginx, origin, accept, size):
    for sent, seen in (
        ([], ["accept-encoding"]),
        ([("Vary", "Origin")], ["origin", "accept-encoding"]),
        ([("Vary", "Accept-Encoding")], ["accept-encoding"]),
        ([("Vary", "Origin, accept-encoding")], ["origin", "accept-encoding"]),
    ):
        origin.answers(plain(bodies.json(size), headers=sent))
        for path in ("/vary-only", "/vary"):
            assert sorted(names_in_vary(nginx.get(path, accept))) == sorted(seen), (path, sent)


def test_vary_from_add_header_is_merged(nginx, origin):
    origin.answers(plain())
    assert nginx.get("/vary-header").header("Vary") == "Origin, Accept-Encoding"
    assert nginx.get("/vary-header", accept=None).header("Vary") == "Origin, Accept-Encoding"
    assert names_in_vary(nginx.get("/vary-header-same")) == ["accept-encoding"]


def test_vary_is_not_set_for_an_uncompressed_type(nginx, origin):
    origin.answers(plain(type="image/png"))
    assert nginx.get("/vary-only").all("Vary") == []


class TestGunzip:
    """`gunzip on` decodes the body before sszip, and removes its length."""

    def test_gunzip_decodes_the_body_for_a_client_without_gzip(self, nginx, origin):
        origin.answers(geth())
        response = nginx.get("/gunzip", accept=None)
        assert (response.coding, response.body) == (None, BODY)

    def test_gunzip_passes_the_body_of_the_node_to_a_client_with_gzip(self, nginx, origin):
        origin.answers(geth())
        response = nginx.get("/gunzip")
        assert response.decoded == BODY
        assert response.mode == "encoded"


class TestGzipStatic:
    def test_gzip_static_file_is_sent_unchanged(self, nginx):
        response = nginx.get("/static/a.json")
        assert response.body == gzipped(FILE, 9)
        assert (response.coding, response.mode) == ("gzip", "encoded")

    def test_plain_file_is_sent_to_a_client_without_gzip(self, nginx):
        assert nginx.get("/static/a.json", accept=None).body == FILE


class TestHostPolicy:
    def is_compressed(self, nginx, path, **request):
        response = nginx.get(path, **request)
        assert response.decoded == BODY
        assert response.header("Vary") == "Accept-Encoding"
        assert response.mode == ("oneshot" if response.coding else "host-policy")
        return response.coding == "gzip"

    def test_gzip_proxied_is_off_by_default(self, nginx, origin):
        origin.answers(plain())
        assert self.is_compressed(nginx, "/proxied")
        assert not self.is_compressed(nginx, "/proxied", headers=[("Via", "1.1 cdn")])

    def test_gzip_proxied_any_permits_compression(self, nginx, origin):
        origin.answers(plain())
        assert self.is_compressed(nginx, "/proxied/any", headers=[("Via", "1.1 cdn")])

    def test_gzip_proxied_no_cache_depends_on_cache_control(self, nginx, origin):
        via = [("Via", "1.1 cdn")]
        origin.answers(plain(headers=[("Cache-Control", "no-cache")]))
        assert self.is_compressed(nginx, "/proxied/no-cache", headers=via)
        origin.answers(plain(headers=[("Cache-Control", "max-age=9")]))
        assert not self.is_compressed(nginx, "/proxied/no-cache", headers=via)
        assert self.is_compressed(nginx, "/proxied/no-cache")

    def test_gzip_http_version_is_honoured(self, nginx, origin):
        origin.answers(plain())
        assert not self.is_compressed(nginx, "/proxied", version="1.0")
        assert self.is_compressed(nginx, "/version-1.0", version="1.0")

    def test_gzip_disable_is_honoured(self, nginx, origin):
        origin.answers(plain())
        assert not self.is_compressed(nginx, "/disable", headers=[("User-Agent", "bad/1.0")])
        assert not self.is_compressed(nginx, "/disable", headers=[("User-Agent", "very old")])
        assert self.is_compressed(nginx, "/disable", headers=[("User-Agent", "good/1.0")])
        assert self.is_compressed(nginx, "/disable")

    def test_gzip_rules_apply_to_every_form_of_accept_encoding(self, nginx, origin):
        """nginx's own test does not know `*`; the module does, and uses nginx for the rest."""
        origin.answers(plain())
        for accept in ("*", "x-gzip", "br, gzip;q=0.001"):
            assert self.is_compressed(nginx, "/proxied/any", accept=accept, headers=[("Via", "1.1 cdn")])
            assert not self.is_compressed(nginx, "/proxied", accept=accept, headers=[("Via", "1.1 cdn")])
            assert not self.is_compressed(nginx, "/disable", accept=accept, headers=[("User-Agent", "bad/1")])

    def test_response_to_head_keeps_its_length_when_gzip_rules_forbid_compression(self, nginx, origin):
        origin.answers(plain(method="HEAD"))
        assert nginx.head("/proxied", headers=[("Via", "1.1 cdn")]).length == len(BODY)

    def test_gzip_of_the_node_is_readable_when_gzip_rules_forbid_compression(self, nginx, origin):
        """RFC 9110 permits the node's gzip, for the client accepts it; the test requires
        only a body that the client can read."""
        origin.answers(plain(coding="gzip"))
        assert nginx.get("/proxied", headers=[("Via", "1.1 cdn")]).decoded == BODY
