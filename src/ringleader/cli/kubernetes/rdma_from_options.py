"""The options for NICs become what each worker gets; each fault names its option. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ringleader.cli.options.kubernetes_options import NicOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.errors import collected
from ringleader.render.rdma.allocation import NicAllocation, allocate
from ringleader.render.rdma.node_labels import OFFERED, pairs_of
from ringleader.render.rdma.profiles import Spread
from ringleader.render.rdma.request import NIC_CLASS, RdmaRequest

_OPTIONS = {
    "profile": "--rdma",
    "resource": "--rdma-resource",
    "count": "--rdma-count",
    "networks": "--rdma-network",
    "node_labels": "--node-label",
    "spread": "--rdma-spread",
    "ssh_port": "--rdma-ssh-port",
    "claim_template": "--rdma-claim-template",
    "nic_class": "--rdma-device-class",
    "shm_size": "--shm-size",
    "has_cpu_or_memory": "--memory",
}
"""Field of a request → option that says it."""


def allocation(
    given: NicOptions, *, gpus: int, asked: Iterable[str], shm_size: str | None, faults: Faults
) -> NicAllocation | None:
    """Return what each worker gets; ``None``: nothing was said of NICs, or it was wrong.

    ``asked``: resources that the worker asks for besides. ``shm_size`` as it was read.
    """
    if given == NicOptions():
        return None
    request = RdmaRequest(
        profile=given.rdma or "",
        resource=given.rdma_resource or "",
        count=given.rdma_count,
        networks=given.rdma_network,
        node_labels=_labels(given, faults),
        shm_size=shm_size,
        gpus=gpus,
        claim_template=given.rdma_claim_template or "",
        nic_class=given.rdma_device_class or NIC_CLASS,
        ssh_port=given.rdma_ssh_port,
        spread=None if given.rdma_spread is None else Spread(given.rdma_spread),
        has_cpu_or_memory=bool({"cpu", "memory"} & set(asked)),
    )
    found: NicAllocation | None = None
    with collected(faults.found):
        found = allocate(request, _OPTIONS.__getitem__)
    return found


def _labels(given: NicOptions, faults: Faults) -> tuple[tuple[str, str], ...]:
    pairs, unread = pairs_of(given.node_label)
    for word in unread:
        faults.add(f"--node-label {word}", "there is no value", f"NAME=VALUE, or {' or '.join(OFFERED)}")
    return pairs
