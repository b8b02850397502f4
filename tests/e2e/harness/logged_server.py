"""Requests to a server under test, and the lines of its access log about them."""

import itertools
import json

_numbers = itertools.count(1)


class LoggedServer:
    """A server with a `prefix`, in which access.log has lines of JSON with `uri` and
    `status`, with `wait_for` and with `get`."""

    _log_read = 0
    # Number of repetitions of a request if an earlier one's response is to be stored, or its update to end.
    late_stores = 0
    # Process ids of nginx's cache managers from before its reloads.
    former_managers = frozenset()

    def logged(self, uri):
        """The access log's line about a request; it is written after the response was
        sent."""
        lines = self.__dict__.setdefault("_log_lines", {})

        def look():
            with open(self.prefix / "access.log", "rb") as log:
                log.seek(self._log_read)
                new = log.read()
            # an incomplete line is read when its end is there
            complete = new.rfind(b"\n") + 1
            self._log_read += complete
            for line in new[:complete].splitlines():
                entry = json.loads(line)
                entry["status"] = int(entry["status"])  # "009" for HTTP/0.9
                lines[entry["uri"]] = entry
            return lines.get(uri)

        return self.wait_for(look, f"the log line of {uri}")

    def uri(self, path):
        """The path, made unique so that its log line can be found."""
        return f"{path}{'&' if '?' in path else '?'}n={next(_numbers)}"

    def named(self, response, uri):
        response.uri = uri
        response.nginx = self
        return response

    def head(self, path, accept="gzip", **request):
        return self.get(path, accept, method="HEAD", **request)

    def post(
        self,
        path,
        body=b'{"jsonrpc":"2.0","id":1,"method":"x"}',
        accept="gzip",
        headers=(),
        **request,
    ):
        headers = [("Content-Type", "application/json"), *headers]
        return self.get(path, accept, method="POST", body=body, headers=headers, **request)

    def fetch(self, path, body=None, accept="gzip", headers=(), **request):
        """A response to a call, or to a GET, on the path itself, so that it can be stored."""
        headers = list(headers)
        if accept is not None:
            headers.append(("Accept-Encoding", accept))
        if body is not None:
            headers.append(("Content-Type", "application/json"))
        method = request.pop("method", "GET" if body is None else "POST")
        # with Connection: close, Envoy waits for a second after a local reply
        with self.connect() as connection:
            return connection.exchange(path, method=method, headers=headers, body=body, **request)
