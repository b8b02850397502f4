"""A fleet whose server is the primary that Sentinels name: entries are shared through it, and through
its successor after a failover."""

import re
import types

import pytest
from certificates import Certificates
from documented_acl import documented_rules
from fleet_load import FleetLoad
from fleet_status import assert_confirmed
from machines import balance, receipts, secret_file, share, wait_until_shared_again
from resp_client import ErrorReply
from sentinel_servers import DOWN_AFTER, NAME
from servers import PASSWORD, wait_until

from tiers import by_tier

METHOD = "eth_getBlockReceipts"
FAILOVER = pytest.mark.thorough("a failover takes seconds; a simulated Sentinel causes some in `make test`")


def settings_of(world, **fleet):
    return world.sentinel_settings() | fleet


def pair(world, url, **fleet):
    """Two machines with one node."""
    chain = world.chain(final_blocks=50)
    settings = settings_of(world, **fleet)
    return [world.machine(chain, url, **settings) for _ in range(2)]


def assert_shared(a, b, redis, body):
    share(a, redis, body)
    hits_before = b.fleet.hits
    assert b.requested(body) == 0
    assert b.fleet.hits == hits_before + 1


@pytest.fixture
def fleet(world):
    """Two machines, and a Sentinel that replaces a primary which a test lets fail by the replica."""
    group = world.sentinels(replicas=1)
    a, b = pair(world, group.url)
    return types.SimpleNamespace(group=group, a=a, b=b, final=a.chain.final)


def test_entries_are_shared_through_the_primary_that_a_sentinel_names(world):
    group = world.sentinels(replicas=1, sentinels=by_tier(1, 3))
    a, b = pair(world, group.url)
    primary, replica = group.nodes
    final = a.chain.final
    for body in (receipts(final), balance(final)):
        assert_shared(a, b, primary, body)
    assert_confirmed(a.purge(method=METHOD), owners=2)
    assert b.requested(receipts(final), balance(final)) == 1
    assert primary.owner_connections() >= 4
    assert replica.owner_connections() == 0


# failovers

FAILURES = {
    "killed": lambda group, primary: primary.kill(),
    "stopped": lambda group, primary: primary.pause(),
    "switched": lambda group, primary: group.execute("SENTINEL", "FAILOVER", NAME),
}
RETURNS = {
    "killed": lambda primary: primary.start(),
    "stopped": lambda primary: primary.resume(),
    "switched": lambda primary: None,
}


def fail(group, primary, failure):
    if failure != "switched":
        group.set_down_after(DOWN_AFTER)
    FAILURES[failure](group, primary)


@FAILOVER
@pytest.mark.parametrize("failure", FAILURES)
def test_sharing_resumes_after_a_failover(fleet, failure):
    with FleetLoad(fleet.a, fleet.b) as load:
        load.wait_for_hits()
        former = fleet.group.primary()
        fail(fleet.group, former, failure)
        fleet.group.wait_for_failover(former)
        RETURNS[failure](former)
        wait_until(lambda: former.role == "slave", "the former primary to be a replica")
        fleet.a.wait_for(lambda: former.owner_connections() == 0, "the owners to leave the former primary")
        stores_before = fleet.a.fleet.stores()
        fleet.a.wait_for(lambda: fleet.a.fleet.stores() > stores_before, "a store")
        load.wait_for_hits()
    assert load.faults == []
    for machine in (fleet.a, fleet.b):
        machine.wait_until_used()
    assert fleet.group.primary().owner_connections() >= 4
    assert_confirmed(fleet.a.purge(everything=True), owners=2)


@FAILOVER
@pytest.mark.parametrize("failure", FAILURES)
def test_purge_during_a_failover_is_not_lost(fleet, failure):
    a, b = fleet.a, fleet.b
    body = receipts(fleet.final)
    former = fleet.group.primary()
    assert_shared(a, b, former, body)
    key = b.key(body)
    assert b.has_entry(key)
    fail(fleet.group, former, failure)
    reply = a.purge(method=METHOD)["fleet"]
    if failure != "switched":
        # a failover may end while the purge waits; the other owner may not have noticed it
        assert reply.get("pending") is True or reply["owners"] == 2, reply
    fleet.group.wait_for_failover(former)
    RETURNS[failure](former)
    b.wait_for(lambda: not b.has_entry(key), "the purge to be in effect on the other machine")
    # the replica may have the value
    assert b.requested(body) == 1
    primary = fleet.group.primary()
    # a former primary that is back has their connections until a Sentinel demotes it
    a.wait_for(lambda: primary.owner_connections() >= 4, "the owners to connect to the new primary")
    for machine in (a, b):
        machine.wait_until_used()
    wait_until_shared_again(a, b, primary)


@FAILOVER
def test_sharing_resumes_when_a_sentinel_is_lost_with_the_primary(world):
    group = world.sentinels(replicas=2, sentinels=3)
    a, b = pair(world, group.url)
    assert_shared(a, b, group.nodes[0], balance(a.chain.final))
    group.sentinels[0].kill()
    fail(group, group.nodes[0], "killed")
    group.wait_for_failover(group.nodes[0])
    primary = group.primary()
    a.wait_for(lambda: primary.owner_connections() >= 4, "the owners to connect to the new primary")
    for machine in (a, b):
        machine.wait_until_used()
    wait_until_shared_again(a, b, primary)


# a simulated Sentinel


def demote(sentinel, primary, replica):
    """Exchanges the roles of two servers, whose connections stay open."""
    assert replica.execute("REPLICAOF", "NO", "ONE") == "OK"
    sentinel.primary = replica
    primary.replicate(replica)


@pytest.fixture
def simulated(world):
    """Two machines, a primary and its replica, and a simulated Sentinel that names the primary."""
    primary, replica = (world.redis(rules=documented_rules("role")) for _ in range(2))
    replica.replicate(primary)
    sentinel = world.simulated_sentinel(primary)
    a, b = pair(world, sentinel.url)
    return types.SimpleNamespace(primary=primary, replica=replica, sentinel=sentinel, a=a, b=b)


def test_owners_leave_a_primary_that_is_read_only(simulated):
    a, b, primary, replica = simulated.a, simulated.b, simulated.primary, simulated.replica
    final = a.chain.final
    assert_shared(a, b, primary, balance(final))
    demote(simulated.sentinel, primary, replica)
    accounts = iter(range(100, 10**6))

    def are_gone():
        for machine in (a, b):
            machine.assert_right(balance(final, next(accounts)))
        return primary.owner_connections() == 0

    a.wait_for(are_gone, "the owners to leave the former primary")
    for machine in (a, b):
        machine.wait_until_used()
    wait_until_shared_again(a, b, replica)


def test_purge_at_a_primary_that_is_read_only_is_published_at_its_successor(simulated):
    a, b = simulated.a, simulated.b
    body = receipts(a.chain.final)
    assert_shared(a, b, simulated.primary, body)
    key = b.key(body)
    demote(simulated.sentinel, simulated.primary, simulated.replica)
    reply = a.purge(method=METHOD)["fleet"]
    assert reply.get("pending") is True or reply["confirmed"] == reply["owners"], reply
    b.wait_for(lambda: not b.has_entry(key), "the purge to be in effect on the other machine")
    assert b.requested(body) == 1


def test_replica_that_a_sentinel_names_is_not_used(world):
    primary, replica = (world.redis(rules=documented_rules("role")) for _ in range(2))
    replica.replicate(primary)
    sentinel = world.simulated_sentinel(replica)
    machine = world.machine(world.chain(), sentinel.url, is_used=False, **settings_of(world))
    machine.wait_for(lambda: replica.calls("role") >= 3, "attempts to connect")
    assert not machine.fleet.is_used
    machine.assert_right(balance(machine.chain.final))
    sentinel.primary = primary
    machine.wait_until_used()
    machine.wait_for(lambda: replica.owner_connections() == 0, "connections to end")


# Sentinels that fail

FAULTS = {
    "refused": lambda proxy: proxy.refuse(),
    "stalled": lambda proxy: proxy.stall(),
    "reset": lambda proxy: proxy.reset(),
    "stalled in a reply": lambda proxy: proxy.stall(9),
    "not the protocol": lambda proxy: proxy.replace_replies(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "announced string of 10 GB": lambda proxy: proxy.replace_replies(b"$9999999999\r\n"),
    "nested arrays": lambda proxy: proxy.replace_replies(b"*1\r\n" * 10_000),
}


@pytest.mark.parametrize("fault", by_tier(["refused", "stalled"], list(FAULTS)))
def test_next_sentinel_is_queried_if_the_first_one_fails(world, fault):
    group = world.sentinels()
    proxy = world.proxy(group.sentinels[0])
    FAULTS[fault](proxy)
    a, b = pair(world, group.url_of(proxy.port, group.sentinels[0].port))
    assert_shared(a, b, group.nodes[0], balance(a.chain.final))


def test_machine_starts_without_a_sentinel_and_stays_connected_without_it(world):
    group = world.sentinels()
    (sentinel,) = group.sentinels
    sentinel.kill()
    chain = world.chain()
    a, b = (world.machine(chain, group.url, is_used=False, **settings_of(world)) for _ in range(2))
    a.wait_for(lambda: "refused" in a.owner.log().lower(), "a log line")
    assert a.requested(balance(chain.final)) == 1
    assert not a.fleet.is_used
    sentinel.start()
    for machine in (a, b):
        machine.wait_until_used()
    sentinel.kill()
    assert_shared(a, b, group.nodes[0], balance(chain.final, 2))


def assert_not_used(world, url, pattern, **fleet):
    """Checks that the log has the reason, and that responses are right without the fleet."""
    machine = world.machine(world.chain(), url, is_used=False, **settings_of(world, **fleet))
    machine.wait_for(lambda: re.search(pattern, machine.owner.log()), f"a log line with {pattern}")
    assert not machine.fleet.is_used
    machine.assert_right(balance(machine.chain.final))
    log = machine.owner.log()
    machine.close()
    return log


def test_log_names_the_parameters_of_a_wrong_sentinel_password(world):
    group = world.sentinels()
    settings = world.sentinel_settings(password="another-password")
    log = assert_not_used(world, group.url, "sentinel_(user|password_file)", **settings)
    assert "another-password" not in log
    assert group.nodes[0].owner_connections() == 0
    group.sentinels[0].forget_denied_commands()


def test_log_names_the_parameters_of_a_wrong_password_of_the_primary(world, tmp_path):
    group = world.sentinels()
    path = secret_file(tmp_path, "wrong-password", "another-password")
    log = assert_not_used(world, group.url, r"[^_](user=|password_file)", password_file=path)
    assert "sentinel_" not in log and PASSWORD not in log
    group.nodes[0].forget_denied_commands()


def test_log_names_a_primary_that_the_sentinels_do_not_know(world):
    group = world.sentinels()
    url = group.url_of(group.sentinels[0].port, name="unknown-primary")
    # not only as a part of the URL
    assert_not_used(world, url, "(?<!/)unknown-primary")


def test_user_of_the_owners_has_no_other_commands_at_a_sentinel(world):
    (sentinel,) = world.sentinels().sentinels
    with sentinel.connect_as_owner() as client:
        assert client.execute("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[0] == b"127.0.0.1"
        for command in (["SENTINEL", "MASTERS"], ["SENTINEL", "FAILOVER", NAME], ["INFO"], ["ACL", "LIST"]):
            with pytest.raises(ErrorReply, match="NOPERM"):
                client.execute(*command)
    sentinel.forget_denied_commands()


@pytest.mark.thorough("TLS of one server is in `make test`")
def test_sentinel_and_primary_are_used_over_tls(world, tmp_path):
    certificates = Certificates(tmp_path / "certificates")
    group = world.sentinels(tls=certificates)
    a, b = pair(world, group.url, ca=str(certificates.ca))
    assert_shared(a, b, group.nodes[0], balance(a.chain.final))
    # another one has issued no certificate of theirs
    other = Certificates(tmp_path / "other")
    assert_not_used(world, group.url, "(?i)certificate", ca=str(other.ca))
