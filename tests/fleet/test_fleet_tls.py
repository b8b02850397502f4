"""A fleet over TLS: certificates are verified, and a connection that cannot be trusted is not used."""

import subprocess

import pytest
from certificates import Certificates
from machines import balance, secret_file, share


@pytest.fixture
def secure_world(world, tmp_path):
    """A world with a redis-server whose certificate has a CA of its own."""
    world.certificates = Certificates(tmp_path / "certificates")
    return world


def secure_url(redis, host="127.0.0.1"):
    return f"rediss://{host}:{redis.tls_port}"


def assert_shared(world, redis, **settings):
    chain = world.chain()
    a, b = (world.machine(chain, secure_url(redis), **settings) for _ in range(2))
    share(a, redis, balance(chain.final))
    assert b.requested(balance(chain.final)) == 0


def assert_not_used(world, url, reason, **settings):
    """Checks that responses are right without the fleet, and that the log has the reason."""
    chain = world.chain()
    machine = world.machine(chain, url, is_used=False, **settings)
    machine.wait_for(lambda: reason in machine.owner.log().lower(), f"a log line with {reason!r}")
    for account in range(1, 20):
        assert machine.requested(balance(chain.final, account)) == 1
    assert not machine.fleet.is_used
    assert machine.fleet.hits == 0


def test_entries_are_shared_over_tls(secure_world):
    certificates = secure_world.certificates
    redis = secure_world.redis(tls=certificates)
    assert_shared(secure_world, redis, ca=str(certificates.ca))


def test_client_certificate_is_sent(secure_world, tmp_path):
    certificates = secure_world.certificates
    redis = secure_world.redis(tls=certificates, client_certificates=True)
    key = secret_file(tmp_path, "client-key", certificates.client_key.read_text())
    own = {"cert": str(certificates.client_certificate), "cert_key": key}
    assert_shared(secure_world, redis, ca=str(certificates.ca), **own)
    assert_not_used(secure_world, secure_url(redis), "certificate", ca=str(certificates.ca))


def test_certificate_of_another_ca_is_rejected(secure_world, tmp_path):
    redis = secure_world.redis(tls=secure_world.certificates)
    other = Certificates(tmp_path / "other")
    assert_not_used(secure_world, secure_url(redis), "certificate", ca=str(other.ca))
    # without a CA, the system's are trusted
    assert_not_used(secure_world, secure_url(redis), "certificate")


def test_certificate_of_another_name_is_rejected(secure_world):
    certificates = secure_world.certificates
    redis = secure_world.redis(tls=certificates)
    assert_not_used(secure_world, secure_url(redis, "localhost"), "certificate", ca=str(certificates.ca))


def test_expired_certificate_is_rejected(world, tmp_path):
    certificates = Certificates(tmp_path / "expired", days=0)
    redis = world.redis(tls=certificates)
    chain = world.chain()
    machine = world.machine(chain, secure_url(redis), is_used=False, ca=str(certificates.ca))
    machine.wait_for(certificates.has_expired, "the certificate to expire")
    redis.disconnect_clients()
    machine.wait_until_unused()
    # another owner names the reason, which the first one has met again meanwhile
    other = world.machine(chain, secure_url(redis), is_used=False, ca=str(certificates.ca))
    other.wait_for(lambda: "certificate" in other.owner.log().lower(), "a log line")
    assert not machine.fleet.is_used
    machine.assert_right(balance(chain.final))


def test_server_without_tls_is_not_used(world):
    redis = world.redis()
    assert_not_used(world, redis.url.replace("redis:", "rediss:"), "fleet")


def test_server_with_tls_is_not_used_without_it(secure_world):
    redis = secure_world.redis(tls=secure_world.certificates)
    assert_not_used(secure_world, f"redis://127.0.0.1:{redis.tls_port}", "fleet")


def test_certificate_that_is_renewed_is_accepted(secure_world):
    """The server reads its new certificate; connections after that are accepted."""
    certificates = secure_world.certificates
    redis = secure_world.redis(tls=certificates)
    chain = secure_world.chain()
    a, b = (secure_world.machine(chain, secure_url(redis), ca=str(certificates.ca)) for _ in range(2))
    before = subprocess.check_output(["openssl", "x509", "-in", certificates.certificate, "-noout", "-serial"])
    certificates.renew()
    after = subprocess.check_output(["openssl", "x509", "-in", certificates.certificate, "-noout", "-serial"])
    assert before != after
    assert redis.execute("CONFIG", "SET", "tls-cert-file", certificates.certificate, "tls-key-file", certificates.key) == "OK"
    redis.disconnect_clients()
    for machine in (a, b):
        # the owner notices the end of the old connections a moment later
        for kind in ("lookup", "store"):
            line = f"{kind} connection: used again"
            machine.wait_for(lambda line=line, owner=machine.owner: line in owner.log(), line)
        machine.wait_until_used()
    share(a, redis, balance(chain.final))
    assert b.requested(balance(chain.final)) == 0
