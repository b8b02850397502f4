"""Processor time of status requests: two a second take less than one hundredth of a processor."""

import time

import pytest

from harness import client
from harness.owner import owner_of, wait_until_linked
from harness.status import read_status

# AddressSanitizer makes it several times longer
pytestmark = pytest.mark.bare

CONFIG = """
sszip on;
sszip_cache on;
sszip_cache_path @prefix@/cache max_size=64m memory=32m;
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://@origin@; }
    location = /status { sszip_status on; }
}
"""
REQUESTS = 200
# seconds of processor time of one request: a hundredth of a processor at two a second
LIMIT = 0.005


def processor_seconds(pid):
    """The processor time of a process, by its clock (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def test_status_requests_cost_less_than_a_hundredth_of_a_processor(start_nginx):
    nginx = start_nginx(CONFIG)
    wait_until_linked(nginx)
    read_status(nginx)
    processes = [*nginx.workers(), owner_of(nginx).pid()]
    before = sum(map(processor_seconds, processes))
    with client.Connection(nginx.port) as connection:
        for _ in range(REQUESTS):
            assert connection.exchange("/status?format=json").status == 200
    spent = sum(map(processor_seconds, processes)) - before
    assert spent / REQUESTS < LIMIT, spent
