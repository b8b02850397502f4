"""Debian's third-party modules of nginx, and bodies that brotli has compressed."""

import pathlib
import subprocess

FOLDER = pathlib.Path("/usr/lib/nginx/modules")


def modules(*names):
    return "".join(f"load_module {FOLDER / name}.so;\n" for name in names)


def decoded(response):
    if response.coding == "br":
        script = "process.stdout.write(require('zlib').brotliDecompressSync(require('fs').readFileSync(0)))"
        return subprocess.run(["node", "-e", script], input=response.body, capture_output=True, check=True).stdout
    return response.decoded
