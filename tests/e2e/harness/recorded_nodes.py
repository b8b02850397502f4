"""Typical nodes, as scripts for the origin."""

from . import bodies
from .origin import answer

BODY = bodies.json(30000)


def plain(body=BODY, **options):
    """A node that responds in identity to any request."""
    return answer(body, **options)


def geth(body=BODY, **options):
    """A node that compresses whenever the request allows, and then sends no length, as geth's
    HTTP server does."""

    def respond(request):
        if "gzip" in (request.header("Accept-Encoding") or ""):
            return answer(body, coding="gzip", framing="chunked", **options)
        return answer(body, **options)

    return respond
