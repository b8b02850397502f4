"""One JSON-RPC call at a time, and what comes of it."""

import gzip
import http.client
import json
import urllib.parse


class Failed(Exception):
    """What is to be said of it."""


def call(method, params, id_=1):
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def fetch(url, method, body=None, headers=()):
    """Status, fields (of lower case), and the body, decoded."""
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=20)
    try:
        connection.request(method, parts.path or "/", body, dict(headers))
        answer = connection.getresponse()
        content = answer.read()
        fields = {name.lower(): value for name, value in answer.getheaders()}
    except (OSError, http.client.HTTPException) as error:
        raise Failed(f"{url} does not answer: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if fields.get("content-encoding") == "gzip":
        content = gzip.decompress(content)
    return answer.status, fields, content


def ask(url, request, coding="identity"):
    headers = {"Content-Type": "application/json", "Accept-Encoding": coding}
    status, _, content = fetch(url, "POST", json.dumps(request), headers)
    if status != 200:
        raise Failed(f"{url} answers {status}: {content[:200].decode(errors='replace')}")
    try:
        return json.loads(content)
    except ValueError:
        raise Failed(f"{url} answers what is no JSON: {content[:200].decode(errors='replace')}") from None


def get(url, path):
    status, _, content = fetch(url.rstrip("/") + path, "GET")
    if status != 200:
        raise Failed(f"{url}{path} answers {status}")
    return json.loads(content)


def result_of(answer):
    if "result" not in answer:
        raise Failed(f"the node answers {answer}")
    return answer["result"]
