# Shared by the scripts beside it; sourced, never run.
# shellcheck shell=bash

SSZIP_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export SSZIP_ROOT
export SSZIP_CACHE="${SSZIP_CACHE:-$HOME/.cache/sszip}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$SSZIP_CACHE/target}"

# A registry that stumbles is asked again, for longer than cargo's three times.
export CARGO_NET_RETRY="${CARGO_NET_RETRY:-10}"

# The library that the nginx module links; its `config` reads this name.
export SSZIP_CORE_LIB="${SSZIP_CORE_LIB:-$CARGO_TARGET_DIR/release/libsszip_nginx.a}"

# Folders of this machine that must not be part of what is shipped, as FROM=TO. Of several that match,
# compilers use the last.
path_maps() {
    printf '%s\n' "$SSZIP_ROOT=/sszip" "${CARGO_HOME:-$HOME/.cargo}=/cargo" "$SSZIP_CACHE=/cache" \
        "$CARGO_TARGET_DIR=/target"
}
c_path_maps() { path_maps | sed 's/^/-ffile-prefix-map=/' | paste -sd ' '; }
rust_path_maps() { path_maps | sed 's/^/--remap-path-prefix=/' | paste -sd ' '; }

log() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { log "$*"; exit 1; }

# skip_stage STAGE REASON: ends without the stage's tests; the summary of scripts/run-tests has the reason.
skip_stage() {
    log "$2; the tests are skipped"
    mkdir -p "${SSZIP_REPORTS:-$SSZIP_CACHE/reports}"
    printf '{"reasons": ["all tests: %s"]}\n' "$2" >"${SSZIP_REPORTS:-$SSZIP_CACHE/reports}/$1.json"
    exit 0
}

# version_at_least HAVE WANT
version_at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# A cargo that is new enough and comes with rustfmt and clippy.
rust_is_usable() {
    local version
    version=$(cargo --version 2>/dev/null) || return 1
    version=${version#cargo }
    version_at_least "${version%% *}" 1.90 || return 1
    cargo fmt --version >/dev/null 2>&1 &&
        cargo clippy --version >/dev/null 2>&1
}

# An old rustup or /usr/local toolchain ahead of Debian's would win on PATH.
if ! rust_is_usable; then
    case $PATH in
        /usr/bin:*) ;;
        *) export PATH="/usr/bin:$PATH" ;;
    esac
fi

# Whether cargo's own toolchain has WebAssembly's std.
has_wasm() {
    [ -d "$(rustc --print sysroot 2>/dev/null)/lib/rustlib/wasm32-unknown-unknown" ]
}

# Name of a Python that can make a virtual environment, if there is one.
usable_python() {
    local python
    for python in python3 /usr/bin/python3; do
        if "$python" -c 'import sys, venv, ensurepip
sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}
