"""The generated bodies of the parity table.

tests/cases/README.md defines them; the Rust test of the core builds the same
bytes, so nothing here may change alone.
"""

import functools

_MASK = (1 << 64) - 1


def _lcg():
    state = 1
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) & _MASK
        yield state


@functools.lru_cache(maxsize=64)
def json(length):
    out = bytearray(b'{"jsonrpc":"2.0","id":1,"result":[')
    number = 0
    states = _lcg()
    while len(out) < length:
        out += b'{"number":"0x%x","hash":"0x%064x"},' % (number, next(states))
        number += 1
    return bytes(out[:length])


@functools.lru_cache(maxsize=64)
def random(length):
    states = _lcg()
    return bytes(next(states) >> 56 for _ in range(length))


def zeros(length):
    return bytes(length)


def text(length):
    phrase = b"the quick brown fox "
    return (phrase * (length // len(phrase) + 1))[:length]


def object(length):
    """JSON whose end is its closing bracket."""
    return b'{"result":"' + b"a" * (length - 13) + b'"}'


_GENERATORS = {"json": json, "object": object, "random": random, "zeros": zeros, "text": text}


def generate(spec):
    """The body that a table names as `GENERATOR:LENGTH` or `hex:DIGITS`; "" is empty."""
    if not spec:
        return b""
    name, length = spec.split(":")
    return bytes.fromhex(length) if name == "hex" else _GENERATORS[name](int(length))
