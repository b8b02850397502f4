"""Owners and proxies start, reload and end without a fleet, and use it when it is there."""

import os
import signal

import pytest
from fleet_load import FleetLoad
from fleet_status import confirmations
from machines import balance, directive, receipts, share
from servers import PASSWORD

from harness.nginx import free_port
from harness.processes import stop

HOSTS = ["daemon", "nginx", "envoy"]


@pytest.mark.parametrize("kind", HOSTS)
def test_machine_starts_without_a_server_and_uses_one_that_starts_later(world, kind):
    redis = world.redis(is_started=False)
    chain = world.chain()
    a, b = (world.machine(chain, redis.url, kind, is_used=False) for _ in range(2))
    assert not a.fleet.is_used
    for account in range(1, 40):
        assert a.requested(balance(chain.final, account)) == 1
    redis.start()
    for machine in (a, b):
        machine.wait_until_used()
    share(a, redis, receipts(chain.final))
    assert b.requested(receipts(chain.final)) == 0


def test_log_names_a_server_that_is_not_reachable_and_its_return(world):
    redis = world.redis(is_started=False)
    chain = world.chain()
    machine = world.machine(chain, redis.url, is_used=False)

    def lines():
        return [line for line in machine.owner.log().splitlines() if f"127.0.0.1:{redis.port}" in line]

    machine.wait_for(lines, "a log line")
    assert "refused" in lines()[0].lower()
    before = len(lines())
    machine.assert_right(*(balance(chain.final, account) for account in range(1, 200)))
    # one for each change of the state, not for each lookup or attempt
    assert len(lines()) <= before + 2
    redis.start()
    machine.wait_until_used()
    machine.wait_for(lambda: len(lines()) > before, "a log line of the connection")
    assert PASSWORD not in machine.owner.log()


def test_configuration_is_valid_without_a_server(world):
    chain = world.chain()
    url = f"redis://127.0.0.1:{free_port()}"
    machine = world.machine(chain, url, "nginx", is_used=False)
    status, output = machine.server.test()
    assert status == 0, output
    # no warning: the server is on this machine, and nothing connects
    assert "[emerg]" not in output and "[error]" not in output


@pytest.mark.parametrize("is_there", [False, True])
def test_reload_keeps_responses_right(world, is_there):
    redis = world.redis(is_started=is_there)
    chain = world.chain()
    a, b = (world.machine(chain, redis.url, "nginx", is_used=is_there) for _ in range(2))
    with FleetLoad(a, b) as load:
        load.wait_for_responses(100)
        for machine in (a, b):
            machine.server.reload()
            machine.wait_until_ready()
            load.wait_for_responses(100)
    assert load.faults == []
    if not is_there:
        redis.start()
    for machine in (a, b):
        machine.wait_until_used()
    # what the load has requested is on the disk already
    body = balance(chain.final, 900)
    share(a, redis, body)
    assert b.requested(body) == 0


def test_reload_changes_the_fleet(world):
    first, second = world.redis(), world.redis()
    chain = world.chain()
    a, b = world.machine(chain, first.url, "nginx"), world.machine(chain, second.url)
    share(a, first, receipts(chain.final))
    assert b.requested(receipts(chain.final)) == 1
    path = a.server.prefix / "nginx.conf"
    path.write_text(path.read_text().replace(first.url, second.url))
    a.server.reload()
    a.wait_until_ready()
    a.wait_until_used()
    share(b, second, balance(chain.final))
    assert a.requested(balance(chain.final)) == 0


@pytest.mark.parametrize("kind", HOSTS)
def test_machine_ends_while_the_server_does_not_respond(world, kind):
    redis = world.redis()
    chain = world.chain()
    machine = world.machine(chain, redis.url, kind)
    share(machine, redis, balance(chain.final))
    redis.pause()
    machine.assert_right(*(balance(chain.final, account) for account in range(2, 20)))
    # fails if a process has to be killed
    machine.close()
    redis.resume()


def test_restarted_owner_uses_the_fleet_again(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    share(a, redis, balance(chain.final))
    b.restart_owner()
    b.wait_until_used()
    assert b.requested(balance(chain.final)) == 0


def test_owner_that_was_stopped_does_not_use_values_before_it_has_read_the_stream(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url, purge_wait="2s"), world.machine(chain, redis.url)
    share(a, redis, receipts(chain.final))
    pid = b.owner.pid()
    stop(pid)
    try:
        purge = {"method": "eth_getBlockReceipts"}
        a.wait_for(lambda: confirmations(a.purge(**purge))[:2] == (2, 1), "a purge that the other owner does not confirm")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert b.requested(receipts(chain.final)) == 1


@pytest.mark.parametrize("kind", ["nginx", "envoy"])
def test_directive_with_an_unreadable_file_is_rejected(world, kind):
    chain = world.chain()
    settings = world.settings(f"redis://127.0.0.1:{free_port()}", key_file="/nonexistent/key")
    assert "key_file=/nonexistent/key" in directive(settings)
    machine = world.new_machine(chain, settings, kind)
    status, output = machine.server.test() if kind == "nginx" else machine.server.validate()
    assert status != 0
    assert "/nonexistent/key" in output
