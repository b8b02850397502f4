"""nginx with Debian's Lua module, lua-resty-core and sszip's library for it
(configs/openresty/lua), to which tests send code to run."""

import pathlib

from .client import fetch
from .copied_configs import CONFIGS
from .nginx import MODULE

FOLDER = pathlib.Path("/usr/lib/nginx/modules")
LIBRARY = CONFIGS / "openresty/lua"
NAMES = ("ndk_http_module", "ngx_http_lua_module")

# The results: each value with its type and its length.
FRAME = """
client_max_body_size 64m;
lua_package_path "@library@/?.lua;;";
lua_shared_dict heard 10m;
init_by_lua_block {
    function show(...)
        local texts = {}
        for i = 1, select('#', ...) do
            local value = select(i, ...)
            local text = tostring(value)
            texts[i] = type(value) .. ' ' .. #text .. ' ' .. text
        end
        return table.concat(texts)
    end
    -- what a phase has to run is in a field; what comes of it is for a later request
    function run(phase)
        local code = ngx.req.get_headers()['x-' .. phase]
        if code then
            local said = show(pcall(assert(loadstring(ngx.unescape_uri(code)))))
            ngx.shared.heard:set(phase, said)
        end
    end
    @init@
    sszip = require 'resty.sszip'
    -- a busy machine exceeds the times that users have
    local owner = require 'resty.sszip.owner'
    local ask = owner.ask
    function owner.ask(request, timeout)
        return ask(request, timeout * 12)
    end
}
@http@
"""

SERVER = """
    location = /lua {
        client_body_buffer_size 64m;
        content_by_lua_block {
            ngx.req.read_body()
            ngx.print(show(pcall(assert(loadstring(ngx.req.get_body_data())))))
        }
    }
    location = /heard { content_by_lua_block { ngx.print(ngx.shared.heard:get(ngx.var.arg_phase) or '') } }
"""


def modules(*names):
    return "".join(f"load_module {FOLDER / name}.so;\n" for name in names)


def frame(http, library=LIBRARY, init=""):
    text = FRAME.replace("@library@", str(library)).replace("@init@", init)
    return text.replace("@http@", http).replace("@lua@", SERVER)


def lua_nginx(start_nginx, http, order="before", library=LIBRARY, init="", **options):
    """nginx that loads sszip first, or last with `order` "after"."""
    http = frame(http, library, init)
    if order == "before":
        return start_nginx(http, main=modules(*NAMES), **options)
    ours = f"load_module {pathlib.Path(MODULE).resolve()};\n"
    return start_nginx(http, main=modules(*NAMES[1:]) + ours, module=FOLDER / f"{NAMES[0]}.so", **options)


class LuaError(Exception):
    """An error that Lua code has raised."""


def values(output):
    """The values that `show` has written."""
    found = []
    while output:
        kind, length, rest = output.split(b" ", 2)
        text, output = rest[: int(length)], rest[int(length) :]
        convert = {
            b"nil": lambda _: None,
            b"boolean": lambda text: text == b"true",
            b"number": lambda text: float(text) if b"." in text or b"e" in text else int(text),
        }
        found.append(convert.get(kind, lambda text: text)(text))
    return found


def outcome(output):
    """The values that a chunk has returned; an error of Lua is raised."""
    worked, *rest = values(output)
    if not worked:
        raise LuaError(rest[0].decode(errors="replace"))
    return rest


def lua(nginx, code, port="port"):
    """The result of a chunk: one value, or a list of values."""
    code = code.encode() if isinstance(code, str) else code
    response = fetch(nginx.ports[port], "/lua", method="POST", body=code)
    assert response.status == 200, response
    found = outcome(response.body)
    return found[0] if len(found) == 1 else found


def phase_result(nginx, phase):
    """The result of the code that a phase ran, when it has run."""
    output = nginx.wait_for(lambda: fetch(nginx.port, f"/heard?phase={phase}").body, f"{phase} to run")
    found = outcome(output)
    return found[0] if len(found) == 1 else found


def quoted(data):
    """Bytes as a string literal of Lua."""
    return '"' + "".join(f"\\{byte:03d}" for byte in data) + '"'
