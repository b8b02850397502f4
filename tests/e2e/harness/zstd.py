"""The C library of zstd, as far as tests need one that is independent of sszip."""

import ctypes
import ctypes.util

_library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
_size = ctypes.c_size_t
# RFC 9659: the longest window in a content coding, as a logarithm
_MAX_WINDOW_LOG = 23
_WINDOW_LOG_MAX = 100  # ZSTD_d_windowLogMax
_UNKNOWN, _ERROR = (1 << 64) - 1, (1 << 64) - 2


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer."""

    _fields_ = [("bytes", ctypes.c_void_p), ("size", _size), ("position", _size)]


def _function(name, result, *arguments):
    function = getattr(_library, name)
    function.restype = result
    function.argtypes = arguments
    return function


_bound = _function("ZSTD_compressBound", _size, _size)
_compress = _function("ZSTD_compress", _size, ctypes.c_char_p, _size, ctypes.c_char_p, _size, ctypes.c_int)
_decompress = _function("ZSTD_decompress", _size, ctypes.c_char_p, _size, ctypes.c_char_p, _size)
_is_error = _function("ZSTD_isError", ctypes.c_uint, _size)
_content_size = _function("ZSTD_getFrameContentSize", ctypes.c_ulonglong, ctypes.c_char_p, _size)
_create = _function("ZSTD_createDCtx", ctypes.c_void_p)
_free = _function("ZSTD_freeDCtx", _size, ctypes.c_void_p)
_set = _function("ZSTD_DCtx_setParameter", _size, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
_decompress_stream = _function(
    "ZSTD_decompressStream", _size, ctypes.c_void_p, ctypes.POINTER(_Buffer), ctypes.POINTER(_Buffer)
)


class DamagedFrame(AssertionError):
    """The bytes are no zstd frame, or its window is longer than a content coding may have."""


def _checked(code):
    if _is_error(code):
        raise DamagedFrame(f"zstd: error {(1 << 64) - code}")
    return code


def compress(body, level=3):
    room = ctypes.create_string_buffer(_bound(len(body)))
    length = _checked(_compress(room, len(room), body, len(body), level))
    return ctypes.string_at(room, length)


def decompress(coded, most=1 << 26):
    """The content of all frames, of any window."""
    room = ctypes.create_string_buffer(most)
    length = _checked(_decompress(room, most, coded, len(coded)))
    return ctypes.string_at(room, length)


def content_size(coded):
    """The content size that the first frame declares, or None."""
    size = _content_size(coded, len(coded))
    if size == _ERROR:
        raise DamagedFrame(f"no frame in {len(coded)} bytes")
    return None if size == _UNKNOWN else size


class Decompressor:
    """One frame that is decoded while it arrives, with the interface of zlib.decompressobj."""

    def __init__(self):
        self._context = _create()
        _checked(_set(self._context, _WINDOW_LOG_MAX, _MAX_WINDOW_LOG))
        self._room = ctypes.create_string_buffer(128 << 10)
        self.eof = False
        self.unused_data = b""

    def __del__(self):
        _free(self._context)

    def decompress(self, piece):
        if self.eof:
            self.unused_data += piece
            return b""
        piece = bytes(piece)
        source = _Buffer(ctypes.cast(ctypes.c_char_p(piece), ctypes.c_void_p), len(piece), 0)
        decoded = []
        while True:
            target = _Buffer(ctypes.addressof(self._room), len(self._room), 0)
            left = _checked(_decompress_stream(self._context, ctypes.byref(target), ctypes.byref(source)))
            decoded.append(ctypes.string_at(self._room, target.position))
            if left == 0:
                self.eof = True
                self.unused_data = piece[source.position :]
                break
            if source.position == len(piece) and target.position < len(self._room):
                break
        return b"".join(decoded)
