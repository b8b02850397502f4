"""WebSocket servers of tests: nodes behind the proxies."""

import contextlib
import threading

import websockets.sync.server


def echo(connection):
    for message in connection:
        connection.send(message)


@contextlib.contextmanager
def websocket_server(serve=echo, port=0, **options):
    """Serves connections on a port of this machine, by default a free one; yields the port."""
    server = websockets.sync.server.serve(serve, "127.0.0.1", port, **options)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.socket.getsockname()[1]
    finally:
        server.shutdown()
        thread.join(10)
