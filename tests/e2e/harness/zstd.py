"""The C library of zstd, as far as tests need one that is independent of sszip."""

import ctypes
import ctypes.util

_library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
for _name in ("ZSTD_compressBound", "ZSTD_compress", "ZSTD_decompress"):
    getattr(_library, _name).restype = ctypes.c_size_t
_library.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
_library.ZSTD_compress.argtypes = [
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_int,
]
_library.ZSTD_decompress.argtypes = [
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_char_p,
    ctypes.c_size_t,
]


def compress(body, level=3):
    room = ctypes.create_string_buffer(_library.ZSTD_compressBound(len(body)))
    length = _library.ZSTD_compress(room, len(room), body, len(body), level)
    assert not _library.ZSTD_isError(ctypes.c_size_t(length))
    return room.raw[:length]


def decompress(coded, most=1 << 26):
    room = ctypes.create_string_buffer(most)
    length = _library.ZSTD_decompress(room, most, coded, len(coded))
    assert not _library.ZSTD_isError(ctypes.c_size_t(length))
    return room.raw[:length]
