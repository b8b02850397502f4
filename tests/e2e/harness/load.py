"""Clients that ask all the time, and count what was not as it should be."""

import threading
import time

from .client import Connection, Truncated, request_bytes


class Load:
    """Keep-alive clients in threads. Every answer is judged; a connection
    that the server closes *between* answers is HTTP's right, and replaced."""

    def __init__(self, port, requests, clients=6):
        """`requests`: pairs of (target, headers), or (target, headers, body), and the body
        expected."""
        self.answered = 0
        # of an answer, in seconds
        self.longest = 0
        self.faults = []
        self._port = port
        self._requests = requests
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._ask, args=(number,)) for number in range(clients)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self, number):
        connection = None
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
                # Closed while idle: nginx does so when a worker goes. With a
                # part of an answer in hand, or on a new connection, a loss.
                if received is None or connection.received != received:
                    self._fault(f"{target}: {error!r}")
                if connection is not None:
                    connection.close()
                    connection = None
                continue
            except Exception as error:  # judged in the test's thread
                self._fault(f"{target}: {error!r}")
                return
            if response.status != 200 or response.decoded != body:
                self._fault(f"{target}: {response.status}, {len(response.body)} bytes")
            with self._lock:
                self.answered += 1
                self.longest = max(self.longest, time.monotonic() - began)
            if response.header("Connection") == "close":
                connection.close()
                connection = None

    def _fault(self, text):
        with self._lock:
            self.faults.append(text)
