"""REDbot (redbot.org) on answers through sszip: it has nothing to complain of that it does
not find at the node itself, all that is good there is good here, and gzip is negotiated."""

import pytest

from harness import linting

pytestmark = pytest.mark.once("what is said of answers is the core's")

CONFIG = """
proxy_http_version 1.1;
sszip on;
sszip_types application/json text/html application/octet-stream;
sszip_ssz on;
sszip_ssz_preset mainnet;
server {
    listen 127.0.0.1:@port@;
    location /held/ { proxy_pass http://@origin@/; }
    location /at-once/ { sszip_hold 0; proxy_pass http://@origin@/; }
    location /cached/ { sszip_cache on; proxy_pass http://@origin@/; }
}
"""


def test_nothing_is_worse_than_at_the_node(start_nginx, origin):
    origin.answers(linting.node)
    nginx = start_nginx(CONFIG)
    assert linting.faults(origin, nginx.port, ["/held", "/at-once", "/cached"]) == []
