"""Changes to a WebAssembly file that tests need."""

PAGE = 1 << 16
_MEMORY = 5


def with_memory(wasm, most):
    """The file with at most `most` bytes of memory in addition to the initial memory."""
    at, out = 8, bytearray(wasm[:8])
    while at < len(wasm):
        kind = wasm[at]
        length, start = _number(wasm, at + 1)
        end = start + length
        if kind == _MEMORY:
            # one memory, with a maximum
            assert wasm[start : start + 2] == b"\x01\x01", wasm[start:end]
            least, _ = _number(wasm, start + 2)
            limits = b"\x01\x01" + _bytes(least) + _bytes(least + most // PAGE)
            out += bytes([kind]) + _bytes(len(limits)) + limits
        else:
            out += wasm[at:end]
        at = end
    return bytes(out)


def _number(text, at):
    """A number in LEB128, and the position of its end."""
    number = shift = 0
    while True:
        byte = text[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def _bytes(number):
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])
