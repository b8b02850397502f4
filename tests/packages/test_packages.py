"""The Debian packages: installation, configuration, the daemon, removal and purge."""

import re

import pytest

from chroot import ALL, MODULE, package_file, wait_for
from nginx_site import NginxSite, stop_nginx

ENABLED = "/etc/nginx/modules-enabled/70-mod-http-sszip.conf"


@pytest.mark.parametrize("name", ALL)
def test_packages_of_the_same_files_are_identical(name):
    assert package_file("first", name).read_bytes() == package_file("again", name).read_bytes()


def test_installed_packages_are_complete_and_configure_nothing(system):
    before = system.run("nginx", "-T").stdout
    system.install("first", *ALL)
    after = system.run("nginx", "-T").stdout
    assert system.path(ENABLED).is_symlink()
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert [line for line in added if line and not line.startswith("#")] == ["load_module modules/ngx_http_sszip_module.so;"]
    libraries = ["/usr/lib/nginx/modules/ngx_http_sszip_module.so", "/usr/lib/nginx/modules/libsszip_owner.so"]
    libraries += ["/usr/lib/sszip/libsszip_envoy.so", "/usr/lib/sszip/libsszip_owner.so"]
    assert "not found" not in system.run("ldd", *libraries, "/usr/sbin/sszip-cached", "/usr/bin/sszip").stdout
    assert system.path("/usr/lib/sszip/sszip_envoy.wasm").read_bytes()[:4] == b"\0asm"
    assert system.run("sszip", "--version").stdout.startswith("sszip ")
    for page in ("man1/sszip.1.gz", "man8/sszip-cached.8.gz"):
        assert system.path(f"/usr/share/man/{page}").exists()
    assert "sszip" in system.read("/usr/share/bash-completion/completions/sszip")
    scripts = [one for name in ALL for one in system.path("/var/lib/dpkg/info").glob(f"{name}.p*")]
    assert len(scripts) >= 7
    for line in (line for script in scripts for line in script.read_text().splitlines()):
        # what the operator has to do is printed
        assert "restart" not in line or line.lstrip().startswith("echo "), line


def test_copied_examples_make_nginx_a_cache(system, node):
    system.install("first", MODULE)
    site = NginxSite(system, node)
    site.start()
    assert site.fetch_hit().coding == "gzip"
    # the folders of tmpfiles.d, which the workers' user can write
    assert any(system.path("/var/cache/nginx/sszip").iterdir())
    logged = '"request":"POST /","status":"200"'
    wait_for("the request is logged", lambda: logged in system.read("/var/log/sszip/access.log"))


def test_daemon_serves_nginx_as_its_unit_starts_it(system, node):
    system.install("first", MODULE, "sszip-cached")
    unit = system.read("/lib/systemd/system/sszip-cached.service")
    user = re.search(r"^User=(.+)$", unit, flags=re.M)[1]
    for setting, parent in (("RuntimeDirectory", "/run"), ("CacheDirectory", "/var/cache")):
        name = re.search(rf"^{setting}=(.+)$", unit, flags=re.M)[1]
        system.run("install", "-d", "-m", "700", "-o", user, "-g", user, f"{parent}/{name}")
    check, start = (
        re.search(rf"^{setting}=(.+)$", unit, flags=re.M)[1].split() for setting in ("ExecStartPre", "ExecStart")
    )
    as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    system.run(*as_user, *check)
    system.start(*as_user, *start, log="/tmp/cached.log")
    wait_for("the daemon responds", lambda: system.run("sszip-cached", "--status", check=False).returncode == 0)
    site = NginxSite(system, node)
    site.use_daemon("/run/sszip/cached.sock")
    site.start()
    assert site.fetch_hit().coding == "gzip"


def test_edited_conffile_is_kept_by_an_upgrade_and_a_removal(system):
    system.install("first", "sszip-cached")
    text = system.read("/etc/sszip/cached.toml") + "# edited\n"
    system.write("/etc/sszip/cached.toml", text)
    output = system.install("next", "sszip-cached")
    assert "systemctl restart sszip-cached" in output
    assert system.read("/etc/sszip/cached.toml") == text
    system.apt("remove", "sszip-cached")
    assert system.read("/etc/sszip/cached.toml") == text


def test_nginx_continues_when_the_module_is_removed_before_its_configuration(system, node):
    system.install("first", MODULE)
    site = NginxSite(system, node)
    site.start()
    output = system.apt("remove", MODULE)
    listed = re.findall(r"^  ((?:nginx\.conf|conf\.d/|sites-enabled/|snippets/).*)$", output, flags=re.M)
    assert sorted(f"/etc/nginx/{name}" for name in listed) == sorted(site.files)
    site.fetch()
    site.remove_configuration()
    system.run("nginx", "-t")


def test_module_is_loaded_again_after_its_removal(system):
    system.install("first", MODULE)
    system.apt("remove", MODULE)
    assert not system.path(ENABLED).is_symlink()
    system.install("first", MODULE)
    assert system.path(ENABLED).is_symlink()
    system.run("nginx", "-t")


def test_purge_leaves_no_file_of_the_packages(system, node):
    before = system.files()
    system.install("first", *ALL)
    site = NginxSite(system, node)
    site.start()
    site.fetch_hit()
    stop_nginx(system)
    assert any(system.path("/var/cache/nginx/sszip").iterdir())
    site.remove_configuration()
    system.apt("purge", *ALL)
    assert system.files() ^ before == set()
