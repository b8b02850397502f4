"""sszip_cache_fleet: the errors and warnings of `nginx -t`."""

import re

import pytest

from harness.nginx import Nginx

PATH = "sszip_cache_path @prefix@/cache max_size=64m memory=32m;"
HEAD = "sszip_cache_namespace main; sszip_cache_head http://127.0.0.1:8545;"

HTTP = """
sszip on;
sszip_cache on;
client_body_buffer_size 128k;
proxy_http_version 1.1;
@path@
@http@
server {
    listen 127.0.0.1:@port@;
    @server@
    location / {
        @location@
        proxy_pass http://127.0.0.1:9;
    }
}
"""
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nMAMCAQU=\n-----END CERTIFICATE-----\n"
PRIVATE_KEY = b"-----BEGIN PRIVATE KEY-----\nMAMCAQU=\n-----END PRIVATE KEY-----\n"
# files of the configuration with their modes
FILES = {
    "password": (0o600, b"secret\n"),
    "group": (0o640, b"secret\n"),
    "lines": (0o600, b"secret\nsecret\n"),
    "key": (0o600, b"k" * 32),
    "short": (0o600, b"k" * 31),
    "long": (0o600, b"k" * 4097),
    "public": (0o644, b"secret key, which has 32 bytes.."),
    "ca.pem": (0o644, CERTIFICATE),
    "cert.key": (0o600, PRIVATE_KEY),
    "public.key": (0o604, PRIVATE_KEY),
}


def nginx_t(fleet="", *, path=PATH, http=None, server="", location=HEAD):
    """The status and the output of `nginx -t`, and the lines of the configuration."""
    http = f"sszip_cache_fleet {fleet};" if http is None else http
    parts = {"path": path, "http": http, "server": server, "location": location}
    config = re.sub(r"@(path|http|server|location)@", lambda match: parts[match[1]], HTTP)
    nginx = Nginx(config)
    try:
        for name, (mode, contents) in FILES.items():
            (nginx.prefix / name).write_bytes(contents)
            (nginx.prefix / name).chmod(mode)
        status, output = nginx.test()
        lines = (nginx.prefix / "nginx.conf").read_text().splitlines()
        return status, output.replace(str(nginx.prefix), "@prefix@"), lines
    finally:
        nginx.stop()


def refused(fleet="", **parts):
    """The one error of `nginx -t`, which names the line of the directive."""
    status, output, lines = nginx_t(fleet, **parts)
    assert status != 0, output
    (complaint,) = [text for text in output.splitlines() if "[emerg]" in text]
    number = re.search(r"@prefix@/nginx.conf:(\d+)$", complaint)
    assert number and "sszip_cache_fleet" in lines[int(number[1]) - 1], complaint
    assert "secret" not in complaint
    return complaint


def warned(fleet, **parts):
    """The warnings of `nginx -t` about the fleet."""
    status, output, _ = nginx_t(fleet, **parts)
    assert status == 0, output
    assert "secret" not in output
    return [text for text in output.splitlines() if "[warn]" in text and "sszip_cache_fleet" in text]


URL = 'a URL that begins with "redis://", "rediss://", "redis+cluster://", "rediss+cluster://", "redis+sentinel://" or'
SERVER = '"redis://HOST[:PORT][/DATABASE]"'
TIME = "a time with its unit (ms, s, m, h or d), from "


class TestWords:
    @pytest.mark.parametrize(
        "words, reported, reason",
        [
            ('""', "", URL),
            ("127.0.0.1:6379", "127.0.0.1:6379", URL),
            ("http://a", "http://a", URL),
            ("redis://", "redis://", SERVER),
            ("redis://a:0", "redis://a:0", SERVER),
            ("redis://a:65536", "redis://a:65536", SERVER),
            ("redis://a/main", "redis://a/main", SERVER),
            ("redis://a,b", "redis://a,b", "a URL of one server"),
            ("redis+clustr://a,b", "redis+clustr://a,b", 'did you mean "redis+cluster://"?'),
            ("redis+cluster://a,b/1", "redis+cluster://a,b/1", "a cluster has database 0 only"),
            ("redis+cluster://a,a:6379", "redis+cluster://a,a:6379", "a URL of different servers"),
            ("redis+sentinel://a,b", "redis+sentinel://a,b", "with the name under which the Sentinels monitor the primary"),
            ("redis://a sentinel_user=a", "sentinel_user=a", 'used with a "redis+sentinel://"'),
            ("unix:/run/redis.sock", "unix:/run/redis.sock", URL),
            ("redis://me:secret@a", "redis://...@a", 'without user and password; set "user=NAME" and "password_file=FILE" instead'),
            ("redis://a?password=secret", "redis://a?...", SERVER),
            ("redis://a timeout=0ms", "timeout=0ms", TIME + "1ms to 1s"),
            ("redis://a timeout=2s", "timeout=2s", TIME + "1ms to 1s"),
            ("redis://a timeout=10", "timeout=10", TIME + "1ms to 1s"),
            ("redis://a connect_timeout=9ms", "connect_timeout=9ms", TIME + "10ms to 10s"),
            ("redis://a max_entry=1k", "max_entry=1k", "a size from 4k to 16m"),
            ("redis://a max_entry=1mb", "max_entry=1mb", 'a size from 4k to 16m; did you mean "1m"?'),
            ("redis://a ttl=1s", "ttl=1s", TIME + "1m to 365d"),
            ("redis://a cost=2h", "cost=2h", "at most 1h"),
            ("redis://a purge_wait=6s", "purge_wait=6s", "at most 5s"),
            ("redis://a prefix={a}", "prefix={a}", "1 to 64 letters, digits"),
            ('redis://a "user=a b"', "user=a b", "a name of 1 to 128 bytes"),
            ("redis://a user=a", "user=a", 'used together with "password_file=FILE"'),
            ("redis://a key_file=key,key,key", "key_file=key,key,key", "one or two files"),
            ("redis://a ca=ca.pem", "ca=@prefix@/ca.pem", 'used with a "rediss://" URL'),
            ("rediss://a cert=ca.pem", "cert=@prefix@/ca.pem", 'used together with "cert_key=FILE"'),
            ("rediss://a cert_key=cert.key", "cert_key=@prefix@/cert.key", 'used together with "cert=FILE"'),
            ("redis://a timout=1ms", "timout=...", 'did you mean "timeout="?'),
            ("redis://a password=secret", "password=...", 'did you mean "password_file="?'),
            ("redis://a herd=1s", "herd=...", '"user=NAME", "password_file=FILE", "sentinel_user=NAME", "sentinel_password_file=FILE", "key_file=FILE[,FILE]"'),
        ],
    )
    def test_invalid_word_is_rejected_without_its_secret(self, words, reported, reason):
        if "{" in words:
            words = words.replace("prefix={a}", '"prefix={a}"')
        complaint = refused(words)
        assert f'"sszip_cache_fleet" directive has an invalid value "{reported}": it must be' in complaint
        assert reason in complaint

    @pytest.mark.parametrize("name", ["timeout=1ms", "prefix=a", "key_file=key"])
    def test_duplicate_parameter_is_rejected(self, name):
        complaint = refused(f"redis://a {name} {name}")
        assert f'has the parameter "{name.split("=")[0]}=" twice' in complaint

    @pytest.mark.parametrize(
        "words",
        [
            "redis://127.0.0.1",
            "REDIS://localhost:6380/15 timeout=5ms connect_timeout=1s max_entry=16m",
            "rediss://[fe80::1]:7000 ttl=365d cost=0 purge_wait=0 prefix=eth:1.a-b_c",
            "redis://[::1] user=a password_file=password key_file=key",
            "redis://[::1] password_file=group key_file=key,@prefix@/key",
            "rediss://a ca=ca.pem cert=ca.pem cert_key=cert.key",
        ],
    )
    def test_valid_words_are_accepted_without_a_warning(self, words):
        assert warned(words) == []


class TestFiles:
    @pytest.mark.parametrize(
        "words, message",
        [
            ("password_file=none", 'cannot read the password file "@prefix@/none" (2: No such file or directory); check the path and its permissions'),
            ("password_file=/", 'has an invalid password file "/": it must be a regular file'),
            ("password_file=public", 'has a password file that other users can read: "@prefix@/public" (mode 0644); run chmod o-rwx on it'),
            ("password_file=lines", 'has an invalid password file "@prefix@/lines": it must contain one line in UTF-8'),
            ("password_file=long", 'has an invalid password file "@prefix@/long": it must be at most 1k long'),
            ("key_file=none", 'cannot read the key file "@prefix@/none" (2: No such file or directory)'),
            ("key_file=key,public", 'has a key file that other users can read: "@prefix@/public" (mode 0644)'),
            ("key_file=short", 'has an invalid key file "@prefix@/short": it must have 32 to 4096 bytes'),
            ("key_file=long", 'has an invalid key file "@prefix@/long": it must be at most 4k long'),
            ("ca=none", 'cannot read the CA file "@prefix@/none" (2: No such file or directory)'),
            ("ca=key", 'has an invalid CA file "@prefix@/key": it must contain complete certificates in PEM'),
            ("cert=key cert_key=cert.key", 'has an invalid certificate file "@prefix@/key": it must contain complete certificates'),
            ("cert=ca.pem cert_key=key", 'has an invalid certificate key file "@prefix@/key": it must contain a private key in PEM'),
            ("cert=ca.pem cert_key=public.key", 'has a certificate key file that other users can read: "@prefix@/public.key" (mode 0604)'),
        ],
    )
    def test_unusable_file_is_rejected(self, words, message):
        assert f'"sszip_cache_fleet" directive {message}' in refused(f"rediss://a {words}")


class TestConfiguration:
    def test_second_fleet_is_rejected_with_the_line_of_the_first(self):
        complaint = refused(http="sszip_cache_fleet redis://a;\nsszip_cache_fleet redis://b;")
        places = r'already set at @prefix@/nginx.conf:(\d+) in @prefix@/nginx.conf:(\d+)$'
        found = re.search(rf'"sszip_cache_fleet" directive is duplicate: "sszip_cache_fleet" is {places}', complaint)
        assert found and int(found[2]) == int(found[1]) + 1, complaint

    @pytest.mark.parametrize("where", ["server", "location"])
    def test_fleet_is_rejected_outside_http(self, where):
        complaint = refused(http="", **{where: "sszip_cache_fleet redis://a;"})
        assert '"sszip_cache_fleet" directive is not allowed here' in complaint

    def test_fleet_without_arguments_is_rejected(self):
        assert "invalid number of arguments" in refused(http="sszip_cache_fleet;")

    def test_fleet_without_a_store_is_rejected(self):
        complaint = refused("redis://a", path="", location="")
        assert '"sszip_cache_fleet" needs "sszip_cache_path" in @prefix@' in complaint

    def test_fleet_with_the_daemon_is_rejected(self):
        complaint = refused("redis://a", path="sszip_cache_owner unix:@prefix@/s;", location="")
        assert '"sszip_cache_fleet" needs "sszip_cache_path": with "sszip_cache_owner" the daemon connects to the fleet' in complaint
        assert "move it to the table [fleet] of cached.toml" in complaint

    def test_fleet_may_precede_the_store(self):
        status, output, _ = nginx_t(path="", http=f"sszip_cache_fleet redis://127.0.0.1;\n{PATH}")
        assert status == 0, output

    def test_fleet_without_a_head_is_warned_of(self):
        (warning,) = warned("redis://127.0.0.1", location="")
        assert '"sszip_cache_fleet" shares no entries: no namespace has a "sszip_cache_head"; add one' in warning

    @pytest.mark.parametrize(
        "words, texts",
        [
            ("redis://10.0.0.1", ["shares entries through redis://10.0.0.1:6379 without encryption and without a key"]),
            (
                "redis://a password_file=password",
                ["sends its password to redis://a:6379 without encryption", "without a key"],
            ),
            ("redis://a key_file=key password_file=password", ["sends its password"]),
            ("redis://a key_file=key", []),
            ("rediss://a password_file=password", []),
            ("redis://127.0.0.2 password_file=password", []),
        ],
    )
    def test_connection_without_tls_over_a_network_is_warned_of(self, words, texts):
        warnings = "\n".join(warned(words))
        assert warnings.count("use a \"rediss://\" URL") == len(texts)
        for text in texts:
            assert text in warnings

    @pytest.mark.parametrize("timeout, is_warned", [("500ms", False), ("501ms", True)])
    def test_timeout_above_half_of_the_lookup_timeout_is_warned_of(self, timeout, is_warned):
        path = f"sszip_cache_lookup_timeout 1s; {PATH}"
        warnings = warned(f"redis://127.0.0.1 timeout={timeout}", path=path)
        assert len(warnings) == is_warned
        text = f'has a timeout of {timeout}, above half of "sszip_cache_lookup_timeout" (1s)'
        assert all(text in warning for warning in warnings)
