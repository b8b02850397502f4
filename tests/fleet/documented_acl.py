"""The ACL that docs/fleet.md gives the owners."""

import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs/fleet.md"

_ACL_USER = re.compile(r"(?:\bACL SETUSER|^user)[ \t]+\S+[ \t]+(on\b[^\n`]+)", re.MULTILINE | re.IGNORECASE)
_FURTHER_RULES = re.compile(r"`(\+[a-z|-]+(?: \+[a-z|-]+)*)`")


def documented_rules(*commands):
    """The ACL rules that docs/fleet.md gives the user of the owners, without its password, and the
    further rules that it gives for the use of `commands`, such as `role`."""
    rules = _documented_users()[0]
    for command in commands:
        further = [words.split() for words in _FURTHER_RULES.findall(DOCS.read_text())]
        found = [words for words in further if f"+{command}" in words]
        assert found, f"{DOCS} has no further rules with `+{command}`"
        rules += found[0]
    return rules


def documented_sentinel_rules():
    """The ACL rules that docs/fleet.md gives the user of the owners on a Sentinel."""
    found = [rules for rules in _documented_users() if any(rule.startswith("+sentinel|") for rule in rules)]
    assert found, f"{DOCS} has no line with ACL SETUSER for a Sentinel"
    return found[0]


def _documented_users():
    users = [
        [word.strip("'\"") for word in words.split()[1:]]
        for words in _ACL_USER.findall(DOCS.read_text().replace("\\\n", " "))
    ]
    assert users, f"{DOCS} has no line with ACL SETUSER"
    return [[rule for rule in rules if not rule.startswith((">", "#"))] for rules in users]
