"""Options for NICs: which profile of the cluster, and what it leaves open; shared by all that make a job."""

from __future__ import annotations

from ringleader.cli.typed_command import Option

RDMA_OPTIONS: tuple[Option, ...] = (
    Option(
        ["--rdma"],
        metavar="PROFILE",
        help="How the cluster gives NICs to Pods: none, shared, sriov, host-device, efa, erdma, aks-ib, "
        "aks-shared, coreweave-ib, oke-vf, dra or host-network. [default: none]",
    ),
    Option(
        ["--rdma-resource"], metavar="NAME", help="Extended resource of the NICs. [default: the profile's]"
    ),
    Option(["--rdma-count"], metavar="N", help="NICs of each worker. [default: as many as networks, or one]"),
    Option(
        ["--rdma-network"],
        multiple=True,
        metavar="[NAMESPACE/]NAME",
        help="Multus' network of the NICs: one for all, or given again for each.",
    ),
    Option(
        ["--node-label"],
        multiple=True,
        metavar="NAME=VALUE|nfd|nfd-0.12",
        help="Label that the workers' nodes must have; nfd: those that node-feature-discovery gives to nodes "
        "with RDMA, by its names since 0.13 or up to 0.12.",
    ),
    Option(
        ["--rdma-spread"],
        metavar="even|apart|none",
        help="Workers evenly over the nodes, never two on one, or anywhere. [default: the profile's]",
    ),
    Option(
        ["--rdma-ssh-port"],
        metavar="PORT",
        help="Port of the workers' sshd on the host's network. [default: the profile's]",
    ),
    Option(
        ["--rdma-claim-template"],
        metavar="NAME",
        help="With --rdma dra: a ResourceClaimTemplate that is there already, with GPUs and NICs.",
    ),
    Option(
        ["--rdma-device-class"],
        metavar="NAME",
        help="With --rdma dra: DeviceClass of the NICs. [default: dranet.net]",
    ),
)
