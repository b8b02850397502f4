"""The valkey-server of Debian 13, which scripts/setup unpacks for `make test-all`."""

import os
import pathlib
import shutil

_UNPACKED = pathlib.Path(os.environ.get("SSZIP_CACHE", "~/.cache/sszip")).expanduser() / "valkey/valkey-server"
VALKEY_SERVER = shutil.which("valkey-server") or shutil.which(_UNPACKED)
