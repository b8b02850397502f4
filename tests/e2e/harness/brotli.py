"""The C library of brotli, as far as tests need it."""

import ctypes
import ctypes.util


def _library(name):
    return ctypes.CDLL(ctypes.util.find_library(name) or f"lib{name}.so.1")


_size = ctypes.c_size_t
_place = ctypes.POINTER(_size)
_compress = _library("brotlienc").BrotliEncoderCompress
_compress.argtypes = [ctypes.c_int] * 3 + [_size, ctypes.c_char_p, _place, ctypes.c_char_p]
_decompress = _library("brotlidec").BrotliDecoderDecompress
_decompress.argtypes = [_size, ctypes.c_char_p, _place, ctypes.c_char_p]


def compress(body, quality=4):
    room = ctypes.create_string_buffer(len(body) + 1000)
    length = _size(len(room))
    assert _compress(quality, 22, 0, len(body), body, length, room)
    return room.raw[: length.value]


def decompress(coded, most=1 << 26):
    room = ctypes.create_string_buffer(most)
    length = _size(most)
    assert _decompress(len(coded), coded, length, room) == 1
    return room.raw[: length.value]
