"""An HTTP/2 client on PyPI's h2, which leaves the windows to the test."""

import socket
import ssl
import time

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

from .client import decoded

from harness.guards import GUARD_SECONDS

# The signer of the certificate is unknown.
_tls = ssl.create_default_context()
_tls.check_hostname = False
_tls.verify_mode = ssl.CERT_NONE
_tls.set_alpn_protocols(["h2"])


class Http2Client:
    """A client whose flow control windows are opened by the test."""

    def __init__(self, port, window=None, tls=False):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(GUARD_SECONDS)
        self.scheme = "https" if tls else "http"
        if tls:
            self.socket = _tls.wrap_socket(self.socket, server_hostname="localhost")
            assert self.socket.selected_alpn_protocol() == "h2"
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        if window is not None:
            self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.bodies = {}
        self.heads = {}
        self.trailers = {}
        self.ended = set()
        # error codes of the streams that the server reset
        self.resets = {}
        self.unread = {}
        self.pongs = 0
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def reset(self, stream):
        self.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        self.flush()

    def fetch(self, path, accept="gzip", method="GET", body=None, headers=()):
        stream = self.h2.get_next_available_stream_id()
        head = [
            (":method", method),
            (":path", path),
            (":scheme", self.scheme),
            (":authority", "localhost"),
        ]
        if accept:
            head.append(("accept-encoding", accept))
        if body:
            head += [("content-type", "application/json"), ("content-length", str(len(body)))]
        head += headers
        self.h2.send_headers(stream, head, end_stream=not body)
        if body:
            self.h2.send_data(stream, body, end_stream=True)
        self.bodies[stream] = bytearray()
        self.flush()
        return stream

    def step(self, acknowledge=True):
        received = self.socket.recv(65536)
        assert received, "the connection ended"
        for event in self.h2.receive_data(received):
            if isinstance(event, h2.events.ResponseReceived):
                self.heads[event.stream_id] = dict(event.headers)
            elif isinstance(event, h2.events.TrailersReceived):
                self.trailers[event.stream_id] = dict(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] += event.data
                if acknowledge and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                else:
                    self.unread[event.stream_id] = (
                        self.unread.get(event.stream_id, 0) + event.flow_controlled_length
                    )
            elif isinstance(event, h2.events.PingAckReceived):
                self.pongs += 1
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.add(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                self.resets[event.stream_id] = event.error_code
                self.ended.add(event.stream_id)
        self.flush()

    def finish(self, *streams):
        while not set(streams) <= self.ended:
            self.step()

    def answers_pings(self):
        """Waits until the server has read everything that was sent."""
        self.h2.ping(b"anything")
        self.flush()
        before = self.pongs
        while self.pongs == before:
            self.step()

    def finish_pinging(self, *streams):
        """Finishes streams while others are silent: nginx queues a RST_STREAM, and sends it
        with other frames."""
        self.socket.settimeout(0.05)
        deadline = time.monotonic() + GUARD_SECONDS
        while time.monotonic() < deadline:
            if set(streams) <= self.ended:
                return
            try:
                self.step()
            except TimeoutError:
                self.h2.ping(b"anything")
                self.flush()
        raise AssertionError(f"not ended: {set(streams) - self.ended}")

    def checked_body(self, stream):
        """The decoded body of a successful response."""
        head = self.heads[stream]
        assert stream not in self.resets
        assert head[":status"] == "200"
        body = bytes(self.bodies[stream])
        assert int(head.get("content-length", len(body))) == len(body)
        assert head["vary"] == "Accept-Encoding"
        return decoded(head.get("content-encoding"), body)

    def check_response(self, stream, body, coding="gzip"):
        assert self.checked_body(stream) == body
        assert self.heads[stream].get("content-encoding") == coding
        assert "content-length" in self.heads[stream]
