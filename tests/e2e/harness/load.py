"""Clients that send requests all the time, and record faults."""

import threading
import time

from .client import Connection, Truncated, request_bytes
from tiers import times

# seconds between the requests of every other client, which leave the processor to the server; the
# others have a request in flight at most times
PAUSE = times(0.003, 0)


class ClientThreads:
    """Clients in threads: each runs `_send_requests` until `_stop` is set, counts responses and
    records faults."""

    def __init__(self, clients):
        self.answered = 0
        self.faults = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._send_requests, args=(number,)) for number in range(clients)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)

    def _send_requests(self, number):
        raise NotImplementedError


class Load(ClientThreads):
    """Keep-alive clients. Every response is checked; a connection that the server closes
    *between* responses is replaced, as HTTP allows."""

    def __init__(self, port, requests, clients=6):
        """`requests`: pairs of (target, headers), or (target, headers, body), and the expected
        body."""
        super().__init__(clients)
        # the longest response time in seconds
        self.longest = 0
        self._port = port
        self._requests = requests
        self._lock = threading.Lock()

    def _send_requests(self, number):
        connection = None
        pause = PAUSE if number % 2 else 0
        while not self._stop.is_set():
            (target, headers, *sent), body = self._requests[number % len(self._requests)]
            sent = {"method": "POST", "body": sent[0]} if sent else {}
            number += 1
            received = None
            began = time.monotonic()
            try:
                if connection is None:
                    connection = Connection(self._port)
                else:
                    received = connection.received
                connection.send(request_bytes(target, headers=headers, **sent))
                response = connection.read()
            except (OSError, Truncated) as error:
                # Closed while idle: nginx does so when a worker ends. Within a response, or
                # on a new connection, it is a fault, and so is a request without a response.
                is_idle = received is not None and connection.received == received
                if isinstance(error, TimeoutError) or not is_idle:
                    self._fault(f"{target}: {error!r}")
                if connection is not None:
                    connection.close()
                    connection = None
                continue
            except Exception as error:  # raised in the test's thread
                self._fault(f"{target}: {error!r}")
                return
            if response.status != 200 or response.decoded != body:
                self._fault(f"{target}: {response.status}, {len(response.body)} bytes")
            with self._lock:
                self.answered += 1
                self.longest = max(self.longest, time.monotonic() - began)
            time.sleep(pause)
            if response.header("Connection") == "close":
                connection.close()
                connection = None

    def _fault(self, text):
        with self._lock:
            self.faults.append(text)
