"""What settings of transports follow from, read on a host of a job and printed for its launcher.

``agents/host_facts_script.py`` runs ``main`` in a process of its own on hosts that have an RDMA device.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from ringleader.fabric.facts import TOO_LATE, HostFacts, document
from ringleader.fabric.readers.host import SECONDS, read_host


def without_measurements(facts: HostFacts) -> HostFacts:
    """Return the facts without what no setting follows from: counters, packages, programs, most notes."""
    devices = tuple(
        replace(one, ports=tuple(replace(port, counters={}) for port in one.ports))
        for one in facts.rdma_devices
    )
    return replace(
        facts,
        rdma_devices=devices,
        net_devices=tuple(replace(one, statistics={}) for one in facts.net_devices),
        software=replace(facts.software, packages={}, programs={}),
        sysctls={},
        modules=(),
        unreadable=tuple(one for one in facts.unreadable if one.reason == TOO_LATE),
    )


def main(root: str, patience: float) -> None:
    """Print the facts of the host below ``root`` as one line of JSON. ``patience``: see ``Job.patience``."""
    facts = read_host(Path(root), seconds=SECONDS * patience)
    sys.stdout.write(json.dumps(document(without_measurements(facts))) + "\n")
