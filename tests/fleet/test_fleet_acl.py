"""The ACL of docs/fleet.md suffices, and contains no more than the documented commands.

All other tests of this folder use this ACL too, and fail if a command was denied."""

import re

import pytest
from documented_acl import DOCS, documented_rules, documented_sentinel_rules
from fleet_status import assert_confirmed
from machines import balance, receipts, share, wait_until_shared_again
from resp_client import ErrorReply
from servers import PREFIX

# commands that a connection may send before it has a user, or that only another database needs
CONNECTION_COMMANDS = {"auth", "hello", "select"}


def commands_of_the_table():
    """The commands of the table of docs/fleet.md, as in the rules of an ACL."""
    section = DOCS.read_text().partition("## Security")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|((?: *`[A-Z -]+`,?)+) *\|", section, re.MULTILINE)
    return {command.lower().replace(" ", "|") for row in rows for command in re.findall(r"`([A-Z -]+)`", row)}


def test_acl_has_the_commands_of_the_table():
    rules, sentinel_rules = documented_rules("role", "cluster|slots"), documented_sentinel_rules()
    commands = {rule[1:] for rule in rules + sentinel_rules if rule.startswith("+")}
    assert commands | CONNECTION_COMMANDS == commands_of_the_table()
    unlimited = ("allcommands", "allkeys", "~*")
    assert not [rule for rule in rules + sentinel_rules if rule.startswith("+@") or rule in unlimited]
    assert {"-@all", f"~{PREFIX}:*"} <= set(documented_rules())
    assert "-@all" in sentinel_rules


def test_documented_commands_suffice_for_all_that_an_owner_does(world):
    redis = world.redis()
    chain = world.chain()
    a, b = world.machine(chain, redis.url), world.machine(chain, redis.url)
    purges = ({"method": "eth_getBalance"}, {"everything": True}, {"key": "0" * 64})
    for turn, purge in enumerate(purges):
        calls = balance(chain.final - turn), receipts(chain.final - turn)
        share(a, redis, *calls)
        b.assert_right(*calls)
        assert_confirmed(b.purge(**purge), owners=2)
        a.wait_until_used()
    redis.execute("FLUSHALL")
    a.wait_for(lambda: a.fleet.fences + b.fleet.fences > 0, "a fence")
    status, _, body = a.owner.request("POST", "/v1/fleet/ping", '{"bytes":30000}')
    assert status == 200, body
    redis.kill()
    a.wait_until_unused()
    redis.start()
    for machine in (a, b):
        machine.restart_owner()
        machine.wait_until_used()
    wait_until_shared_again(a, b, redis)
    assert redis.denied_commands() == []


def test_database_needs_the_documented_right(world):
    redis = world.redis(rules=[*documented_rules(), "+select"])
    chain = world.chain()
    a, b = (world.machine(chain, f"{redis.url}/3") for _ in range(2))
    # the administrator's commands use database 0
    a.wait_for(lambda: a.fetch(balance(chain.final)) and a.fleet.stores() > 0, "a store")
    assert b.requested(balance(chain.final)) == 0
    assert redis.values() == {}


def test_other_prefix_is_another_fleet(world):
    rules = [rule.replace(f"~{PREFIX}:", "~other.prefix:") for rule in documented_rules()]
    redis = world.redis(rules=[*rules, f"~{PREFIX}:*"])
    chain = world.chain()
    a = world.machine(chain, redis.url)
    b = world.machine(chain, redis.url, prefix="other.prefix")
    share(a, redis, balance(chain.final))
    assert b.requested(balance(chain.final)) == 1
    assert_confirmed(a.purge(everything=True), owners=1)


@pytest.mark.parametrize("command", ["KEYS", "FLUSHALL", "CONFIG", "EVAL", "SCAN", "DEL", "SUBSCRIBE"])
def test_user_of_the_owners_has_no_other_commands(world, command):
    redis = world.redis()
    arguments = {"CONFIG": ["GET", "*"], "EVAL": ["return 1", 0], "KEYS": ["*"], "SCAN": [0], "DEL": ["sszip:purges"], "SUBSCRIBE": ["x"]}
    with redis.connect_as_owner() as client, pytest.raises(ErrorReply, match="NOPERM"):
        client.execute(command, *arguments.get(command, []))
    redis.forget_denied_commands()
