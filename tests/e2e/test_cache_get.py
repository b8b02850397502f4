"""Stored responses to GET: cache directives of the node (RFC 9111), the Beacon API in
their absence, and conditional requests."""

import email.utils
import json
import threading
import time

import pytest

from harness import bodies
from harness.client import fetch
from harness.guards import GUARD_SECONDS
from harness.nginx_state import wait_for_followers
from harness.origin import answer

CONFIG = """
server {
    listen 127.0.0.1:@port@;
    proxy_http_version 1.1;
    sszip on;
    sszip_cache on;
    sszip_cache_valid tip 1h;
    sszip_cache_valid unfinalized 1h;
    location / { proxy_pass http://@origin@; }
    location /updating/ { sszip_cache_background_update on; proxy_pass http://@origin@; }
    location = /sszip-status { sszip_status on; }
    location /eth/ { sszip_cache_namespace beacon; proxy_pass http://@origin@; }
}
"""
JSON = bodies.generate("object:30000")
ROOT = "0x" + "ab" * 32
_places = iter(range(10**6))


@pytest.fixture
def resource(nginx, origin):
    """A resource of its own: `resource(...)` gets it; a list has the node's requests."""

    class Resource:
        def __init__(self):
            self.path = f"/resource/{next(_places)}"
            self.requests = []

        def answers(self, *arguments, **options):
            def respond(request):
                self.requests.append(request)
                return answer(*arguments, method=request.method, **options)

            origin.answers(respond)

        def __call__(self, accept="gzip", headers=(), method="GET", path=None):
            if accept:
                headers = [("Accept-Encoding", accept), *headers]
            with nginx.connect() as connection:
                return connection.exchange(path or self.path, method=method, headers=headers)

    return Resource()


def envelope(finalized=True, optimistic=False, data=b'{"x":1}'):
    return b'{"execution_optimistic":%s,"finalized":%s,"data":%s}' % (
        json.dumps(optimistic).encode(),
        json.dumps(finalized).encode(),
        data,
    )


FRESH = [("Cache-Control", "max-age=600")]


class TestNodeHeaders:
    @pytest.mark.parametrize("first", ["gzip", None])
    @pytest.mark.parametrize("second", ["gzip", None])
    @pytest.mark.parametrize("framing", ["length", "chunked", "close"])
    def test_fresh_response_is_a_hit_with_any_framing_and_coding(self, resource, first, second, framing):
        resource.answers(JSON, headers=FRESH, framing=framing)
        miss, hit = resource(first), resource(second)
        assert len(resource.requests) == 1
        assert miss.decoded == hit.decoded == JSON
        assert hit.coding == second and hit.length == len(hit.body)
        assert hit.header("Cache-Status").startswith("sszip; hit")
        assert int(hit.header("Age")) <= 5
        assert hit.header("Cache-Control") == "max-age=600"

    @pytest.mark.parametrize("dates", [[], ["yesterday"], [""], ["Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:38 GMT"]])
    def test_hit_has_the_valid_date_of_the_node_or_the_time_of_the_request(self, resource, dates):
        before = time.time()
        resource.answers(JSON, headers=[*FRESH, *(("Date", date) for date in dates)])
        resource()
        after, hit = time.time(), resource()
        assert hit.header("Cache-Status").startswith("sszip; hit")
        (sent,) = (value for name, value in hit.headers if name.lower() == "date")
        if len(dates) == 2:
            assert sent == dates[0]
        else:
            # a date has no fraction of a second
            assert before - 1 <= email.utils.parsedate_to_datetime(sent).timestamp() <= after

    @pytest.mark.parametrize("value", ["no-store", "private, max-age=9", "no-cache", "max-age=0", "no-transform, max-age=9"])
    def test_response_is_not_stored_when_cache_control_forbids_it(self, resource, value):
        resource.answers(JSON, headers=[("Cache-Control", value)])
        resource(), resource()
        assert len(resource.requests) == 2

    def test_response_without_cache_control_is_not_stored(self, resource):
        resource.answers(JSON)
        resource(), resource()
        assert len(resource.requests) == 2

    @pytest.mark.parametrize("status", [203, 204, 301, 404, 410, 500])
    def test_response_with_another_status_is_stored_when_cache_control_allows_it(self, resource, status):
        body = b"" if status == 204 else b"x" * 2000
        resource.answers(body, status=status, headers=FRESH, framing="none" if status == 204 else "length")
        assert [resource().status, resource().status] == [status] * 2
        assert len(resource.requests) == 1

    def test_hit_of_an_uncompressed_type_is_sent_in_identity_without_vary(self, resource):
        resource.answers(bytes(range(256)) * 100, type="application/octet-stream", headers=FRESH)
        for _ in range(2):
            response = resource()
            assert (response.coding, response.decoded) == (None, bytes(range(256)) * 100)
            assert response.header("Vary") is None
        assert len(resource.requests) == 1

    def test_repeated_headers_are_merged_in_a_hit(self, resource):
        resource.answers(JSON, headers=[*FRESH, ("Link", "<a>"), ("Link", "<b>"), ("X-One", "1")])
        resource()
        hit = resource()
        assert (hit.header("Link"), hit.header("X-One")) == ("<a>, <b>", "1")

    def test_truncated_response_is_not_stored(self, resource):
        resource.answers(JSON, headers=FRESH, cut_at=20000, framing="chunked")
        for _ in range(2):
            with pytest.raises(Exception):  # noqa: B017, PT011 - other tests check how it fails
                resource(None).decoded  # noqa: B018
        assert len(resource.requests) == 2

    def test_variants_are_stored_by_the_header_that_vary_names(self, resource):
        resource.answers(JSON, headers=[*FRESH, ("Vary", "X-Kind")])
        for kind in "aabba":
            resource(headers=[("X-Kind", kind)])
        assert len(resource.requests) <= 3

    def test_request_with_credentials_bypasses_the_cache(self, resource):
        resource.answers(JSON, headers=FRESH)
        for _ in range(2):
            resource(headers=[("Authorization", "x")])
        assert len(resource.requests) == 2

    def test_range_request_is_forwarded_when_nothing_is_stored(self, resource):
        resource.answers(JSON, headers=FRESH)
        resource(headers=[("Range", "bytes=0-9")])
        assert resource.requests[0].header("Range") == "bytes=0-9"
        resource()
        assert len(resource.requests) == 2


class TestStaleWhileRevalidate:
    """RFC 5861, 3."""

    @pytest.fixture
    def slow(self, resource, origin, nginx):
        """The node responds to the first request at once, and to later ones on the event."""
        gate = threading.Event()

        def start(path, control):
            resource.path = f"{path}/{next(_places)}"

            def respond(request):
                resource.requests.append(request)
                number = len(resource.requests)
                if number == 2:
                    gate.wait(GUARD_SECONDS)
                # only the first response expires
                return answer(b"%d" % number, headers=[("Cache-Control", control if number == 1 else "max-age=600")])

            origin.answers(respond)
            assert resource().decoded == b"1"
            # longer than max-age, whose unit is a second
            time.sleep(1.2)
            return resource, gate

        yield start
        gate.set()

    def test_stale_response_is_sent_at_once_while_it_is_revalidated(self, nginx, slow):
        resource, gate = slow("/updating", "max-age=1, stale-while-revalidate=600")
        first = resource()
        assert first.decoded == b"1" and first.header("Cache-Status") == "sszip; hit; ttl=0"
        assert [resource().decoded for _ in range(3)] == [b"1"] * 3
        gate.set()
        nginx.wait_for(lambda: resource().decoded == b"2", "the update")
        assert len(resource.requests) == 2

    def test_leader_waits_for_the_update_when_background_update_is_off(self, nginx, slow):
        resource, gate = slow("/resource", "max-age=1, stale-while-revalidate=600")
        answers = []
        leader = threading.Thread(target=lambda: answers.append(resource()))
        leader.start()
        nginx.wait_for(lambda: len(resource.requests) == 2, "the leader's request")
        assert resource().decoded == b"1"
        gate.set()
        leader.join()
        assert answers[0].decoded == b"2" and len(resource.requests) == 2

    @pytest.mark.parametrize("control", ["max-age=1", "max-age=1, stale-while-revalidate=0", "max-age=1, must-revalidate, stale-while-revalidate=600"])
    def test_stale_response_is_not_sent_when_cache_control_does_not_allow_it(self, slow, control):
        resource, gate = slow("/updating", control)
        gate.set()
        assert resource().decoded == b"2"


class TestManyAtOnce:
    """A request for a response that is being fetched waits for it."""

    @pytest.fixture
    def send_coalesced(self, nginx, resource, origin):
        def send(count, respond, waits=True, **options):
            """Sends `count` requests; the node holds its response to the first until
            all are waiting or, if they are not coalesced, have reached the node."""
            gate = threading.Event()

            def respond_when_released(request):
                resource.requests.append(request)
                gate.wait(GUARD_SECONDS)
                return respond(len(resource.requests))

            origin.answers(respond_when_released)
            answers = []
            threads = [threading.Thread(target=lambda: answers.append(resource(**options))) for _ in range(count)]
            for thread in threads:
                thread.start()
            if waits:
                wait_for_followers(nginx, count - 1)
            else:
                nginx.wait_for(lambda: len(resource.requests) == count, "the node to receive a request by all")
            gate.set()
            for thread in threads:
                thread.join()
            return answers

        return send

    def test_coalesced_requests_share_a_response_that_may_be_stored(self, resource, send_coalesced):
        answers = send_coalesced(8, lambda _: answer(JSON, headers=FRESH))
        assert len(resource.requests) == 1 and {response.decoded for response in answers} == {JSON}

    def test_coalesced_requests_get_responses_of_their_own_when_it_may_not_be_stored(self, resource, send_coalesced):
        answers = send_coalesced(8, lambda number: answer(b"%d" % number, headers=[("Cache-Control", "no-store")]))
        assert len(resource.requests) == 8 and len({response.decoded for response in answers}) == 8

    @pytest.mark.parametrize("field", [("Accept", "text/event-stream"), ("If-None-Match", '"x"')])
    def test_requests_for_event_streams_or_with_conditions_are_not_coalesced(self, resource, send_coalesced, field):
        answers = send_coalesced(4, lambda _: answer(JSON, headers=FRESH), waits=False, headers=[field])
        assert len(resource.requests) == len(answers) == 4


class TestHead:
    @pytest.mark.parametrize("accept", ["gzip", None])
    def test_head_is_answered_from_the_entry_of_get(self, resource, accept):
        resource.answers(JSON, headers=FRESH)
        resource()
        get, head = resource(accept), resource(accept, method="HEAD")
        assert len(resource.requests) == 1
        assert head.body == b""
        for name in ("Content-Length", "Content-Encoding", "Content-Type", "ETag", "Vary"):
            assert head.header(name) == get.header(name), name

    def test_response_to_head_is_not_stored(self, resource):
        resource.answers(JSON, headers=FRESH)
        resource(method="HEAD")
        assert resource().decoded == JSON
        assert len(resource.requests) == 2


class TestConditions:
    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    @pytest.mark.parametrize("accept", ["gzip", None])
    @pytest.mark.parametrize("tag", ['"a"', 'W/"a"', '"b", "a"', "*"])
    def test_304_is_sent_when_the_etag_of_the_node_matches(self, resource, accept, method, tag):
        resource.answers(JSON, headers=[*FRESH, ("ETag", '"a"')])
        resource(accept)
        hit = resource(accept, [("If-None-Match", tag)], method)
        assert (hit.status, hit.body) == (304, b"")
        assert hit.header("ETag") == ('W/"a"' if accept else '"a"')
        assert hit.header("Cache-Control") == "max-age=600"
        assert hit.header("Vary") == "Accept-Encoding"
        assert hit.header("Content-Encoding") is None
        assert len(resource.requests) == 1

    def test_200_is_sent_when_the_etag_differs(self, resource):
        resource.answers(JSON, headers=[*FRESH, ("ETag", '"a"')])
        resource()
        assert resource(headers=[("If-None-Match", '"b"')]).status == 200

    def test_304_is_sent_when_the_etag_of_sszip_matches(self, resource):
        resource.answers(JSON, headers=FRESH)
        resource()
        tag = resource().header("ETag")
        assert resource(headers=[("If-None-Match", tag)]).status == 304
        assert resource(None, [("If-None-Match", tag)]).status == 304
        other = resource.path
        resource.path += "x"
        resource.answers(JSON + b" ", headers=FRESH)
        resource()
        assert resource().header("ETag") != tag
        resource.path = other

    @pytest.mark.parametrize(
        "since, status",
        [("Sun, 06 Nov 1994 08:49:37 GMT", 304), ("Sun, 06 Nov 1994 08:49:36 GMT", 200), ("Mon, 07 Nov 1994 08:49:37 GMT", 304), ("x", 200)],
    )
    def test_status_depends_on_if_modified_since(self, resource, since, status):
        resource.answers(JSON, headers=[*FRESH, ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")])
        resource()
        assert resource(headers=[("If-Modified-Since", since)]).status == status

    def test_if_none_match_is_ignored_for_post(self, nginx, origin):
        from harness.rpc import Node, call

        origin.answers(Node({"eth_chainId": b'"0x1"'}))
        for _ in range(2):
            response = nginx.post("/eth/rpc", call("eth_chainId"), headers=[("If-None-Match", "*")])
            assert response.status == 200


class TestBeacon:
    PATH = "/eth/v2/beacon/blocks/"

    def is_stored(self, resource, path, body, **options):
        resource.answers(body, **options)
        resource(path=path), resource(path=path)
        return len(resource.requests) == 1

    @pytest.mark.parametrize("id", ["head", "finalized", "SLOT", ROOT, "genesis"])
    def test_beacon_response_is_stored_when_its_envelope_allows_it(self, resource, id):
        path = self.PATH + id.replace("SLOT", str(next(_places))) + f"?x={next(_places)}"
        assert self.is_stored(resource, path, envelope())

    @pytest.mark.parametrize(
        "body", [envelope(optimistic=True), b'{"data":{}}', envelope()[:-1], envelope() + b"x", b"<html>", b""]
    )
    def test_beacon_response_is_not_stored_when_its_envelope_is_optimistic_or_invalid(self, resource, body):
        assert not self.is_stored(resource, f"{self.PATH}{next(_places)}", body)

    @pytest.mark.parametrize("path", ["node/syncing", "validator/duties/proposer/1", "beacon/pool/attestations"])
    def test_state_of_the_beacon_node_is_not_stored(self, resource, path):
        assert not self.is_stored(resource, f"/eth/v1/{path}", envelope())

    def test_beacon_error_is_not_stored(self, resource):
        assert not self.is_stored(resource, f"{self.PATH}{next(_places)}", envelope(), status=404)

    def test_key_ignores_order_of_parameters_and_includes_the_format(self, resource):
        resource.answers(envelope())
        base = f"/eth/v1/beacon/states/{next(_places)}/validators"
        resource(path=base + "?id=1&status=a"), resource(path=base + "?status=a&id=1")
        assert len(resource.requests) == 1
        for _ in range(2):
            resource(path=base + "?id=1&status=a", headers=[("Accept", "application/octet-stream")])
        assert len(resource.requests) == 2

    def test_conditions_of_the_client_are_not_forwarded(self, resource):
        resource.answers(envelope())
        path = f"{self.PATH}{next(_places)}"
        resource(path=path, headers=[("If-None-Match", '"x"'), ("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")])
        assert resource.requests[0].all("If-None-Match") == resource.requests[0].all("If-Modified-Since") == []

    def test_hit_has_the_eth_headers_of_the_response(self, resource):
        resource.answers(envelope(), headers=[("Eth-Consensus-Version", "deneb")])
        path = f"{self.PATH}{next(_places)}"
        resource(path=path)
        assert resource(path=path).header("Eth-Consensus-Version") == "deneb"

    def test_coalesced_beacon_requests_reach_the_node_once(self, nginx, resource, origin):
        gate = threading.Event()
        path = f"{self.PATH}{next(_places)}"

        def respond(request):
            resource.requests.append(request)
            gate.wait(GUARD_SECONDS)
            return answer(envelope())

        origin.answers(respond)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(resource(path=path))) for _ in range(10)]
        for thread in threads:
            thread.start()
        wait_for_followers(nginx, 9)
        gate.set()
        for thread in threads:
            thread.join()
        assert len(resource.requests) == 1 and {a.decoded for a in answers} == {envelope()}


def test_entry_is_not_refreshed_by_a_304_that_nginx_made(start_nginx, origin):
    """The node has a newer response, which the client has: the expired entry stays expired."""
    nginx = start_nginx(
        "sszip on; sszip_cache on; proxy_http_version 1.1;"
        "server { listen 127.0.0.1:@port@; location / { proxy_pass http://@origin@; } }"
    )

    def set_resource(text, tag):
        origin.answers(answer(text, headers=[("Cache-Control", "max-age=1"), ("ETag", tag)]))

    def get(*headers):
        return fetch(nginx.port, "/thing", headers=list(headers))

    set_resource(b'"old"', '"1"')
    assert get().body == b'"old"'
    # longer than max-age, whose unit is a second
    time.sleep(1.2)
    set_resource(b'"new"', '"2"')
    response = get(("If-None-Match", '"2"'))
    assert response.status in (200, 304)
    assert get().body == b'"new"'


class TestNginxFeatures:
    CONFIG = """
sszip on;
sszip_cache on;
proxy_http_version 1.1;
upstream node { server @origin@; }
server {
    listen 127.0.0.1:@port@;
    location / { proxy_pass http://node; }
    location /shorter { proxy_redirect http://node.internal/ /; proxy_pass http://node; }
    location /longer { proxy_redirect http://node.internal/ https://$http_x_name.a-long-name.test/; proxy_pass http://node; }
    location /as-long { proxy_redirect http://node.internal/ http://$http_x_name/; proxy_pass http://node; }
    location /off { proxy_redirect off; proxy_pass http://node; }
    location /own { proxy_set_header Accept-Encoding $http_accept_encoding; proxy_pass http://node; }
    location /own/not { proxy_set_header X-Else 1; proxy_pass http://node; }
    location /lost { error_page 404 = /found; proxy_intercept_errors on; proxy_pass http://node; }
}
"""

    @pytest.fixture
    def nginx(self, start_nginx):
        return start_nginx(self.CONFIG)

    @pytest.mark.parametrize("field", ["Location", "Refresh"])
    @pytest.mark.parametrize("path", ["/plain", "/shorter", "/longer", "/as-long", "/off"])
    def test_redirect_is_rewritten_for_each_client(self, nginx, origin, path, field):
        """`proxy_redirect` overwrites the node's header for each client, in its memory
        where the new value fits: a name of the same length does."""
        path = f"{path}/{field}"
        node_value = {"Location": "http://node.internal/else", "Refresh": "5; url=http://node.internal/else"}[field]
        headers = [("Cache-Control", "max-age=60"), (field, node_value)]
        origin.answers(answer(b"0" * 3000, status=301, headers=headers), path)
        rewritten = not path.startswith(("/plain", "/off"))
        for _ in range(3):
            for name in ("aaaa.internal", "bbbb.internal", "other"):
                response = fetch(nginx.port, path, headers=[("X-Name", name)])
                place = {
                    "/shorter": f"http://localhost:{nginx.port}/" if field == "Location" else "/",
                    "/longer": f"https://{name}.a-long-name.test/",
                    "/as-long": f"http://{name}/",
                }.get(path.rsplit("/", 1)[0], "http://node.internal/")
                assert response.header(field) == node_value.replace("http://node.internal/", place)
                status = response.header("Cache-Status")
                assert status == "sszip; fwd=miss; detail=redirect" if rewritten else "sszip;" in status
        assert len(origin.received(path)) == (9 if rewritten else 1)

    def test_x_accel_headers_are_not_sent_to_clients(self, nginx, origin):
        node_headers = [("X-Accel-Limit-Rate", "1000000"), ("X-Accel-Buffering", "yes"), ("X-Accel-Charset", "utf-8"), ("X-Pad", "x")]
        origin.answers(answer(b"0" * 3000, headers=[("Cache-Control", "max-age=60"), *node_headers]), "/said")
        for turn in range(2):
            response = fetch(nginx.port, "/said")
            assert ("hit" in response.header("Cache-Status")) == bool(turn)
            assert not [name for name, _ in node_headers if response.header(name) is not None]

    def test_response_in_a_coding_is_stored_only_when_the_node_was_not_sent_accept_encoding(self, nginx, origin):
        """A body in a coding that the node was sent is not readable by all clients."""
        headers = [("Cache-Control", "max-age=60"), ("Content-Encoding", "br")]
        origin.answers(answer(b"as if it were br" * 200, headers=headers), "/own")
        for _ in range(2):
            response = fetch(nginx.port, "/own", headers=[("Accept-Encoding", "br")])
            assert response.header("Cache-Status") == "sszip; fwd=miss; detail=coding"
            assert origin.last("/own").header("Accept-Encoding") == "br"
        # the node was sent no Accept-Encoding: it always responds like that
        origin.answers(answer(b"as if it were br" * 200, headers=headers), "/own/not")
        for turn in range(2):
            response = fetch(nginx.port, "/own/not", headers=[("Accept-Encoding", "br")])
            assert ("hit" in response.header("Cache-Status")) == bool(turn)

    def test_resource_of_an_error_page_is_stored(self, nginx, origin):
        origin.answers(answer(b"no", status=404), "/lost")
        origin.answers(answer(b"0" * 3000, headers=[("Cache-Control", "max-age=60")]), "/found")
        for turn in range(2):
            response = fetch(nginx.port, "/lost")
            assert (response.status, response.body) == (200, b"0" * 3000)
            assert ("hit" in response.header("Cache-Status")) == bool(turn)

    def test_put_invalidates_the_entry_when_its_body_is_in_a_file(self, nginx, origin):
        origin.answers(answer(b"0" * 3000, headers=[("Cache-Control", "max-age=60")]), "/changed")
        for turn in range(2):
            assert ("hit" in fetch(nginx.port, "/changed").header("Cache-Status")) == bool(turn)
        # longer than client_body_buffer_size
        response = fetch(nginx.port, "/changed", method="PUT", body=b"1" * 200_000)
        assert response.status == 200 and len(origin.last("/changed").body) == 200_000
        assert "hit" not in fetch(nginx.port, "/changed").header("Cache-Status")
