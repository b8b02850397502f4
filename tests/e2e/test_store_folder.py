"""`sszip_cache_path` accepts a folder of its own only: nginx gives it to the workers' user when
it reads the configuration."""

import os
import pathlib
import pwd
import re
import socket
import stat
import subprocess

import pytest

from harness.nginx import MODULE, NGINX, Nginx

HTTP = """
sszip on;
sszip_cache on;
sszip_cache_path @path@ max_size=64m memory=16m;
server { listen 127.0.0.1:@port@; location / { return 200; } }
"""


@pytest.fixture
def nginx_t(tmp_path):
    """`nginx -t` with a path, as root with workers of another user."""
    tmp_path.chmod(0o755)

    def nginx_t(path):
        nginx = Nginx(HTTP.replace("@path@", f'"{path}"'))
        if os.geteuid() == 0:
            nginx.values["user"] = "user nobody nogroup;"
            nginx.write(HTTP.replace("@path@", f'"{path}"'))
        try:
            return nginx.test()
        finally:
            nginx.stop()

    return nginx_t


def complaint(output):
    (complaint,) = [line for line in output.splitlines() if "[emerg]" in line]
    assert re.search(r"nginx\.conf:\d+$", complaint), complaint
    return complaint


def workers_user():
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()


def file_attributes(path):
    attributes = os.lstat(path)
    return attributes.st_uid, attributes.st_gid, attributes.st_mode, attributes.st_ino


@pytest.mark.parametrize("kind", ["file", "device", "socket", "link to a file", "fifo"])
def test_path_that_is_no_folder_is_rejected_and_unchanged(nginx_t, tmp_path, kind):
    path = tmp_path / "path"
    if kind == "file":
        path.write_text("precious")
    elif kind == "device":
        path = pathlib.Path("/dev/null")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        (tmp_path / "file").write_text("precious")
        path.symlink_to("file")
    before = [file_attributes(path), os.stat(path).st_uid]
    status, output = nginx_t(path)
    assert status != 0
    assert "it must be a folder of its own, and this is not a folder" in complaint(output)
    assert [file_attributes(path), os.stat(path).st_uid] == before


@pytest.mark.parametrize("name", ["precious", "owner.sock", "owner.sock.12", "store"])
def test_folder_with_other_files_is_rejected_and_unchanged(nginx_t, tmp_path, name):
    path = tmp_path / "path"
    path.mkdir()
    (path / name).write_text("precious")
    before = file_attributes(path)
    status, output = nginx_t(path)
    assert status != 0
    assert f'it contains "{name}", which is not part of a store' in complaint(output)
    assert file_attributes(path) == before
    assert (path / name).read_text() == "precious"


@pytest.mark.parametrize("name", ["an empty one", "a mounted one", "one of before", "a link to one"])
def test_folder_of_a_store_is_accepted(nginx_t, tmp_path, name):
    path = tmp_path / "path"
    path.mkdir(mode=0o755)
    if name == "a mounted one":
        (path / "lost+found").mkdir()
    if name == "one of before":
        (path / "store").mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path / "owner.sock"))
    if name == "a link to one":
        path = tmp_path / "link"
        path.symlink_to("path")
    status, output = nginx_t(path)
    assert status == 0, output
    assert os.stat(path).st_uid == workers_user()


@pytest.mark.parametrize("end", ["", "/", "//"])
def test_folder_is_created_with_its_parents(nginx_t, tmp_path, end):
    umask = os.umask(0o077)
    try:
        status, output = nginx_t(f"{tmp_path}/var/cache/sszip{end}")
    finally:
        os.umask(umask)
    assert status == 0, output
    made = [tmp_path / "var", tmp_path / "var/cache", tmp_path / "var/cache/sszip"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o755, 0o755, 0o700]
    assert made[-1].stat().st_uid == workers_user()
    assert made[-2].stat().st_uid == os.geteuid()


def test_folder_that_cannot_be_created_is_reported_with_its_line(nginx_t, tmp_path):
    (tmp_path / "file").write_text("precious")
    status, output = nginx_t(f"{tmp_path}/file/sszip")
    assert status != 0
    assert f'"sszip_cache_path" directive cannot use the folder "{tmp_path}/file/sszip" (20: Not a directory)' in complaint(output)
    (tmp_path / "dangling").symlink_to("nowhere")
    status, output = nginx_t(f"{tmp_path}/dangling")
    assert status != 0
    assert f'"sszip_cache_path" directive cannot create the folder "{tmp_path}/dangling"' in complaint(output)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("twice", ["max_size=64m", "memory=16m", "inactive=1h", "recompress=off"])
def test_duplicate_parameter_is_rejected(twice, tmp_path):
    nginx = Nginx(HTTP.replace("@path@", f"{tmp_path}/path {twice}").replace("max_size=64m memory=16m", twice))
    try:
        status, output = nginx.test()
    finally:
        nginx.stop()
    assert status != 0
    assert f'"sszip_cache_path" directive has the parameter "{twice.partition("=")[0]}=" twice' in complaint(output)


def test_example_nginx_configuration_creates_its_cache_folder(tmp_path):
    """configs/nginx/sszip.conf passes `nginx -t` on Debian, which has no /var/cache/nginx."""
    text = (pathlib.Path(__file__).parents[2] / "configs/nginx/sszip.conf").read_text()
    assert "sszip_cache_path /var/cache/nginx/sszip " in text
    (tmp_path / "var/log/nginx").mkdir(parents=True)
    text = text.replace("modules/ngx_http_sszip_module.so", str(pathlib.Path(MODULE).resolve()))
    text = text.replace("/var/", f"{tmp_path}/var/")
    config = tmp_path / "nginx.conf"
    config.write_text(f"pid {tmp_path}/nginx.pid;\n{text}")
    command = [NGINX, "-t", "-p", tmp_path, "-c", config, "-e", f"{tmp_path}/error.log"]
    # as in the harness: with a sanitizer nginx and its module have a global of one name
    asan = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "detect_leaks=0:detect_odr_violation=0")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **asan})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "var/cache/nginx/sszip").is_dir()


def test_store_is_accessible_to_its_user_only(start_nginx):
    """A daemon has no umask."""
    nginx = start_nginx(HTTP.replace("@path@", "@prefix@/deep/cache"), daemon=True)
    path = nginx.prefix / "deep/cache"
    nginx.wait_for(lambda: (path / "owner.sock").exists(), "the owner")
    modes = {name: stat.S_IMODE((path / name).stat().st_mode) for name in ("", "store", "store/LOCK", "store/sszip-store", "owner.sock")}
    assert modes == {"": 0o700, "store": 0o700, "store/LOCK": 0o600, "store/sszip-store": 0o600, "owner.sock": 0o600}
