"""Responses that vary, when several processes share a store and each has a vary table of its
own."""

import pytest

from harness.origin import answer
from harness.owner import owner_of

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_namespace here;
sszip_cache_path @prefix@/cache max_size=64m memory=32m;
proxy_http_version 1.1;
server {
    listen 127.0.0.1:@port@ reuseport;
    location / { proxy_set_header X-Worker $pid; proxy_pass http://@origin@; }
}
"""


@pytest.fixture
def nginx(start_nginx):
    nginx = start_nginx(CONFIG, workers=2)
    owner = owner_of(nginx)
    pids = {str(pid) for pid in nginx.workers()}
    nginx.wait_for(lambda: pids <= owner.pids(), "the workers to reach the owner")
    return nginx


def test_variants_are_kept_apart_when_workers_know_different_vary_headers(nginx, origin):
    """One worker had recorded that a target varies on X-Tenant, the other on X-Lang: a tenant's
    response was sent to a client with that language."""

    def respond(request):
        name = "X-Tenant" if request.header("X-Tenant") else "X-Lang"
        body = f"{name} {request.header(name)}".encode()
        return answer(body, headers=[("Cache-Control", "max-age=600"), ("Vary", name)])

    origin.answers(respond)
    headers = [("X-Tenant", "b"), ("X-Lang", "a"), ("X-Tenant", "a"), ("X-Lang", "b")]
    for number in range(40):
        for name, value in headers + headers:
            with nginx.connect() as connection:
                response = connection.exchange(f"/{number}", headers=[(name, value)])
            assert response.decoded == f"{name} {value}".encode()
    requests = origin.received()
    assert len({request.header("X-Worker") for request in requests}) == 2
    assert len(requests) < 40 * 8
