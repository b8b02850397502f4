"""Two machines with one node, on the traffic of loadtest/day (lib/traffic.py), with a fleet and
without: requests of the second machine that reach the node.

Each machine is a process in a network namespace of its own (machine_traffic.py). The node is a Unix
socket, the fleet is on the link between namespace and this machine."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

from fleet_servers import Redis
from networks import Networks
from stack import Node

HERE = Path(__file__).resolve().parent


def run(work, arguments, log):
    """Returns the results of both machines, with a fleet and without."""
    results = {}
    with Networks() as networks:
        for has_fleet in (False, True):
            log(f"machines, {'with' if has_fleet else 'without'} a fleet")
            results[has_fleet] = run_pair(work, networks, has_fleet, arguments)
    return results


def run_pair(work, networks, has_fleet, arguments):
    options = ["--chain", "--seed", "5", "--chain-length", "600", "--threads", "2"]
    options += ["--chain-slot-ms", str(arguments.slot_ms), "--chain-reorgs", "0.01", "--chain-missed", "0.01"]
    with Node(work, [], core=None, options=options) as node, contextlib.ExitStack() as servers:
        fleets = [None, None]
        if has_fleet:
            redis = servers.enter_context(Redis(work, addresses=networks.addresses))
            fleets = [redis.fleet("machines", address) for address in networks.addresses]
        machines = []
        try:
            for number, fleet in enumerate(fleets):
                settings = {
                    "number": number,
                    "fleet": fleet,
                    "node": str(node.socket),
                    "slot_ms": arguments.slot_ms,
                    "rate": arguments.rate,
                    "clients": arguments.clients,
                    "seconds": arguments.seconds + arguments.lead * (1 - number),
                    "work": str(work),
                }
                machines.append(spawn(networks, number, settings))
                if number == 0:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        machines[0].wait(arguments.lead)
            return [result_of(machine) for machine in machines]
        finally:
            for machine in machines:
                if machine.poll() is None:
                    machine.terminate()
                    machine.wait(30)


def spawn(networks, number, settings):
    command = [sys.executable, str(HERE / "machine_traffic.py"), json.dumps(settings)]
    return networks.spawn(number, command, stdout=subprocess.PIPE, text=True)


def result_of(machine):
    output, _ = machine.communicate()
    if machine.returncode:
        raise SystemExit(f"a machine ended with status {machine.returncode}; its errors are above")
    return json.loads(output)
