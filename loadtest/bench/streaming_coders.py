"""The coders of the streaming suite."""

from dataclasses import replace

from stack import PASS, gzip_coder, sszip_coder

GZIP = gzip_coder(1)
SSZIP = sszip_coder(None, "sszip")
SSZIP_ZLIB_RS = replace(SSZIP, name="sszip, zlib-rs", without_igzip=True)
# A window that holds all of these answers: one shot in spite of the chunks.
SSZIP_HELD = replace(
    SSZIP, name="sszip, held whole", directives=SSZIP.directives + " sszip_hold 1m 10s;"
)
THROUGHPUT = [PASS, GZIP, gzip_coder(6), SSZIP, SSZIP_ZLIB_RS, SSZIP_HELD]
LATENCY = [PASS, GZIP, SSZIP, SSZIP_ZLIB_RS]
MEMORY = [PASS, GZIP, SSZIP, SSZIP_ZLIB_RS]
