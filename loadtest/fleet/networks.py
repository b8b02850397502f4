"""Network namespaces of two machines, each with a link of its own to this machine."""

import os
import subprocess

# One subnet for each machine: this machine has .1, the namespace .2.
SUBNETS = ["10.213.77", "10.213.78"]


class Networks:
    def __init__(self):
        if os.geteuid() != 0:
            raise SystemExit("network namespaces require root; run the section as root, or use --only")
        self.names = [f"sszip-fleet-{os.getpid()}-{number}" for number in range(len(SUBNETS))]
        self._links = [f"sf{os.getpid() % 10**6}x{number}" for number in range(len(SUBNETS))]

    @property
    def addresses(self):
        """The addresses of this machine, by machine."""
        return [f"{subnet}.1" for subnet in SUBNETS]

    def __enter__(self):
        try:
            for name, link, subnet in zip(self.names, self._links, SUBNETS, strict=True):
                self._ip("netns", "add", name)
                self._ip("link", "add", link, "type", "veth", "peer", "name", "uplink", "netns", name)
                self._ip("address", "add", f"{subnet}.1/24", "dev", link)
                self._ip("link", "set", link, "up")
                self._ip("-n", name, "address", "add", f"{subnet}.2/24", "dev", "uplink")
                for device in ("uplink", "lo"):
                    self._ip("-n", name, "link", "set", device, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            # the link ends with it
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def spawn(self, number, command, **options):
        """Starts a process in the namespace of a machine."""
        return subprocess.Popen(["ip", "netns", "exec", self.names[number], *command], **options)

    @staticmethod
    def _ip(*arguments):
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"ip {' '.join(arguments)} failed: {done.stderr.strip()}")
