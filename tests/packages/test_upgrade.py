"""Upgrades of the packages, and their way back, while clients send requests."""

from chroot import MODULE, wait_for
from nginx_site import NginxSite

MAPPED = "/usr/lib/nginx/modules/ngx_http_sszip_module.so"


def installed_version(system):
    return system.run("dpkg-query", "-W", "-f", "${Version}", MODULE).stdout


def replace_under_load(system, site, build, *options):
    """Installs another build while clients send requests, and then loads it with the commands of its message."""
    with site.under_load():
        output = system.install(build, MODULE, options=options)
        assert "systemctl restart nginx" in output
        assert "Triggering nginx reload" in output
        # the master continues with its module, and the workers and the owner of the reload with it
        assert site.mapped_modules() == {f"{MAPPED} (deleted)"}
        wait_for("the store is open after the reload", site.has_store)
        site.fetch_hit()
        site.upgrade_binary()
        assert site.mapped_modules() == {MAPPED}
        wait_for("the store is open after the upgrade", site.has_store)
        site.fetch_hit()


def test_requests_succeed_during_an_upgrade(system, node):
    system.install("first", MODULE)
    site = NginxSite(system, node)
    site.start()
    replace_under_load(system, site, "next")
    assert installed_version(system).startswith("999.0.0-")


def test_requests_succeed_during_a_downgrade(system, node):
    system.install("next", MODULE)
    site = NginxSite(system, node)
    site.start()
    replace_under_load(system, site, "first", "--allow-downgrades")
    assert not installed_version(system).startswith("999.0.0-")
