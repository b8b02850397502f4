"""Rows of the cache suite, and the requests for each of them."""

from dataclasses import dataclass, replace

from stack import Coder, sszip_coder

FRESH, SAME, FILE = "a new id each", "one id", "GET of a file"
VALID = " ".join(f"sszip_cache_valid {c} 1h;" for c in ("immutable", "unfinalized", "tip"))
# Small enough for misses to evict one another.
SMALL_TIER = "sszip_cache_memory 16m;"


@dataclass(frozen=True)
class Row:
    """An encoder and its requests: with one id if only that leads to hits."""

    coder: Coder
    request_kind: str
    # Name in a target; of several rows with the same name the target means the one with the least
    # CPU time.
    peer: str = ""

    @property
    def name(self):
        return self.coder.name

    @property
    def has_cache(self):
        """Whether sszip's cache is on, so that misses are stored."""
        return "sszip_cache on;" in self.coder.directives


def identity(coder, name):
    return replace(coder, name=name, accept="", coding="")


def zstd(coder, name):
    """Returns sszip for a client that prefers zstd."""
    directives = f"{coder.directives} sszip_zstd on;"
    return replace(coder, name=name, directives=directives, accept="zstd", coding="zstd")


def sszip_cache(name, methods=(), http=""):
    """Returns sszip with a cache. `methods` are methods that the method table does not
    contain."""
    known = "".join(f" sszip_cache_valid {m} 1h;" for m in sorted(methods))
    coder = sszip_coder(None, name)
    directives = f"{coder.directives} sszip_cache on; {VALID}{known}"
    return replace(coder, directives=directives, http=http)


# Ways to send a file: the best one depends on its length.
READ, SENDFILE, NOPUSH = "", "sendfile on;", "sendfile on; tcp_nopush on;"
WAYS = {READ: "", SENDFILE: ", sendfile", NOPUSH: ", sendfile, tcp_nopush"}
OPEN_FILES = "open_file_cache max=1000; open_file_cache_valid 1h;"
GZIP_1 = "gzip on; gzip_comp_level 1; gzip_types application/json; gzip_proxied any;"


def static(way, more="", coding="gzip"):
    return Coder(
        peer_name("static file", more) + WAYS[way],
        "root @PREFIX@/static; default_type application/json; "
        f"add_header Content-Encoding {coding}; add_header Vary Accept-Encoding; {way} {more}",
        coding,
        accept=coding,
        handler="",
    )


def static_zstd(way, more=""):
    return static(way, more, "zstd")


def peer_name(name, more):
    return name + (", open_file_cache" if more else "")


def ways(make, name, request_kind, *among):
    """Returns rows for each way, without and with nginx's cache of open files."""
    return [
        Row(make(way, more), request_kind, peer_name(name, more))
        for more in ("", OPEN_FILES)
        for way in among
    ]


ZONE = (
    "proxy_cache_path @PREFIX@/cache levels=1:2 use_temp_path=off "
    "keys_zone=answers:10m inactive=1h max_size=1g;"
)
KEPT = "proxy_cache answers; proxy_cache_methods POST; proxy_cache_valid 200 1h;"
# The id is not a part of the key; the node receives a number that occurs nowhere else, and
# sub_filter replaces it in each response.
STOOD_IN = "555000555"
SPLIT = r"""map $request_body $call_before { "~^(.*?\"id\":)[0-9]+" $1; }
    map $request_body $call_id { "~\"id\":([0-9]+)" $1; }
    map $request_body $call_after { "~\"id\":[0-9]+(.*)$" $1; }"""


def proxy_cache(name, more="", coding="", handler="proxy_pass http://node/;"):
    return Coder(
        name,
        f'{KEPT} proxy_cache_key "$request_uri $request_body"; {more}',
        coding,
        accept="gzip" if coding else "",
        handler=handler,
        http=ZONE,
    )


def proxy_cache_identity(way, more):
    return proxy_cache(peer_name("proxy_cache", more) + WAYS[way], f"{way} {more}")


def any_id(name, more="", coding=""):
    return Coder(
        name,
        f'{KEPT} proxy_cache_key "$request_uri $call_before$call_after"; '
        f'proxy_set_body "${{call_before}}{STOOD_IN}$call_after"; '
        f"sub_filter {STOOD_IN} $call_id; sub_filter_types application/json; {more}",
        coding,
        accept="gzip" if coding else "",
        handler='proxy_pass http://node/; proxy_set_header Accept-Encoding "";',
        http=f"{ZONE}\n    {SPLIT}",
    )


def gzip_rows(methods):
    """Returns rows of hits for a client that accepts gzip. The first one is sszip's."""
    return [
        Row(sszip_cache("sszip", methods), FRESH),
        *ways(static, "static file", FILE, READ, NOPUSH),
        Row(
            proxy_cache(
                "proxy_cache of the node's gzip",
                f"{NOPUSH} {OPEN_FILES}",
                coding="gzip",
                handler="proxy_pass http://node/?gzip=on;",
            ),
            SAME,
        ),
        Row(proxy_cache("proxy_cache, gzip 1", GZIP_1, "gzip"), SAME),
        Row(any_id("proxy_cache, sub_filter, gzip 1", GZIP_1, "gzip"), FRESH),
    ]


def zstd_rows(methods):
    """Returns rows of hits for a client that prefers zstd. The first one is sszip's."""
    cached = sszip_cache("", methods)
    return [
        Row(zstd(cached, "sszip"), FRESH),
        *ways(static_zstd, "static file", FILE, READ, NOPUSH),
        Row(replace(cached, name="sszip, gzip"), FRESH, "sszip's gzip hit"),
    ]


def identity_rows(methods):
    return [
        Row(identity(sszip_cache("", methods), "sszip"), FRESH),
        *ways(proxy_cache_identity, "proxy_cache", SAME, SENDFILE, NOPUSH),
        Row(any_id("proxy_cache, sub_filter"), FRESH),
    ]


def batch_rows(methods):
    """Returns rows for both codings of the same server; each body is requested in both."""
    coder = sszip_cache("sszip", methods)
    return [
        Row(replace(coder, name="gzip"), FRESH),
        Row(identity(coder, "identity"), FRESH),
    ]


def miss_rows():
    off, on = sszip_coder(None, "cache off"), sszip_cache("cache on", http=SMALL_TIER)
    return [
        Row(off, FRESH),
        Row(on, FRESH),
        # the encoder of machines without ISA-L
        Row(replace(off, name="cache off, without igzip", without_igzip=True), FRESH),
        Row(replace(on, name="cache on, without igzip", without_igzip=True), FRESH),
        Row(identity(off, "cache off, identity client"), FRESH),
        Row(identity(on, "cache on, identity client"), FRESH),
        Row(zstd(off, "cache off, zstd client"), FRESH),
        Row(zstd(on, "cache on, zstd client"), FRESH),
    ]
