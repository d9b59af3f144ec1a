"""Checks of the variables of UCX, MPI, libfabric and Gloo. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import EFA_DEVICE, NVIDIA, RDMA_DEVICE, usable_devices
from ringleader.fabric.checks.nccl_variables import judge_interfaces
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.versions import version_of

_check = partial(check, group="Variables of UCX and MPI")

RDMA_TRANSPORTS = {
    "all",
    "rc",
    "rc_x",
    "rc_v",
    "rc_mlx5",
    "rc_verbs",
    "dc",
    "dc_x",
    "dc_mlx5",
    "ud",
    "ud_x",
    "ud_v",
}
"""Names in UCX_TLS that reach RDMA (UCX, FAQ)."""
CUDA_TRANSPORTS = {"all", "cuda", "cuda_copy", "cuda_ipc", "gdr_copy"}


def words(text: str) -> list[str]:
    """Return the entries of a list behind commas, without a leading ``^``."""
    return [one.strip() for one in text.lstrip("^").split(",") if one.strip()]


def _ucx_has(value: str, transports: set[str], essential: set[str]) -> bool:
    """Tell whether a value of UCX_TLS leaves one; one with ``^`` must not name all essential ones."""
    named = set(words(value))
    return not essential <= named if value.startswith("^") else bool(transports & named)


@_check(
    "env.ucx-cuda",
    "UCX may touch GPU memory",
    reads="UCX_TLS",
    why="a list without cuda_copy lets MPI crash, or fall to slow copies, when it is given GPU memory",
    remedy="add cuda_copy,cuda_ipc (or cuda) to UCX_TLS, or unset it",
    passes="not set, or with cuda",
    warns="a list without",
    source="UCX, FAQ, 'Working with GPU'",
    needs=NVIDIA,
)
def ucx_cuda(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.environment.get("UCX_TLS", "")
    if value and not _ucx_has(value, CUDA_TRANSPORTS, {"cuda_copy"}):
        yield warned(f"UCX_TLS={value}", expected="with cuda_copy and cuda_ipc")
    else:
        yield passed(value or "not set: UCX chooses")


@_check(
    "env.ucx-rdma",
    "UCX may use RDMA",
    reads="UCX_TLS",
    why="a list without rc, dc or ud leaves MPI on TCP, although the NICs are here",
    remedy="add rc (or rc_x) to UCX_TLS, or unset it; NCCL does not read it",
    passes="not set, or with rc, dc or ud",
    warns="a list without",
    source="UCX, FAQ",
    needs=RDMA_DEVICE,
)
def ucx_rdma(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.environment.get("UCX_TLS", "")
    if value and not _ucx_has(value, RDMA_TRANSPORTS, {"rc", "dc", "ud"}):
        yield warned(f"UCX_TLS={value}", expected="with rc, dc or ud")
    else:
        yield passed(value or "not set: UCX chooses")


@_check(
    "env.ucx-devices",
    "UCX_NET_DEVICES names devices that are here",
    reads="UCX_NET_DEVICES, /sys/class/infiniband, /sys/class/net",
    why="UCX warns 'network device is not available' and goes on with what is left, or fails",
    remedy="RDMA devices are named with their port (mlx5_0:1), interfaces without (eth0)",
    passes="not set, or each is here",
    warns="one is not",
    fails="none is",
    source="UCX, FAQ",
)
def ucx_devices(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.environment.get("UCX_NET_DEVICES", "")
    if not value or value == "all" or value.startswith("^"):
        yield passed(value or "not set: UCX chooses")
        return
    here = {f"{device.name}:{port.number}" for device in usable_devices(facts) for port in device.ports}
    here |= {one.name for one in facts.net_devices}
    lost = [one for one in words(value) if one not in here]
    if not lost:
        yield passed(value)
    else:
        told = failed if len(lost) == len(words(value)) else warned
        yield told(f"{', '.join(lost)} is not here", expected=", ".join(sorted(here)))


@_check(
    "env.ucx-log",
    "UCX does not log each message",
    reads="UCX_LOG_LEVEL, UCX_PROTO_INFO",
    why="the levels debug, trace and data write lines for each message",
    remedy="UCX_LOG_LEVEL=info tells the transports; warn is the default",
    passes="not set, or at most info",
    warns="debug or more",
)
def ucx_log(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.environment.get("UCX_LOG_LEVEL", "")
    if value.lower() in (
        "debug",
        "trace",
        "trace_req",
        "trace_data",
        "data",
        "trace_async",
        "trace_func",
        "poll",
    ):
        yield warned(f"UCX_LOG_LEVEL={value}", expected="info or less")
    else:
        yield passed(value or "not set")


@_check(
    "env.ompi-openib",
    "Open MPI's openib is not asked for",
    reads="OMPI_MCA_btl",
    why="openib was the way to InfiniBand before UCX; Open MPI 5 has no such component and fails at its"
    " start",
    remedy="unset OMPI_MCA_btl and let pml ucx do it",
    passes="not set, or without openib",
    warns="it asks for openib",
    fails="it asks for openib, and the MPI is Open MPI 5 or newer",
    source="Open MPI 5, changes: openib was removed",
)
def openib(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.environment.get("OMPI_MCA_btl", "")
    if value.startswith("^") or "openib" not in words(value):
        yield passed(value or "not set")
        return
    first = next(iter(facts.software.mpis), None)
    is_new = first is not None and first.family == "Open MPI" and first.version.split(".")[0] not in "1234"
    yield (failed if is_new else warned)(f"OMPI_MCA_btl={value}", expected="without openib")


@_check(
    "env.ompi-pml",
    "Open MPI may use UCX",
    reads="OMPI_MCA_pml",
    why="with pml ob1 Open MPI sends by TCP and shared memory, even where RDMA is here",
    remedy="unset it, or OMPI_MCA_pml=ucx; NCCL's traffic does not go this way",
    passes="not set, or ucx or cm",
    warns="it is ob1, or leaves ucx out",
    needs=RDMA_DEVICE,
)
def pml(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.environment.get("OMPI_MCA_pml", "")
    without = "ucx" in words(value) if value.startswith("^") else not {"ucx", "cm"} & set(words(value))
    if value and without:
        yield warned(f"OMPI_MCA_pml={value}", expected="ucx")
    else:
        yield passed(value or "not set: Open MPI chooses")


@_check(
    "env.mpi-interfaces",
    "MPI's variables name interfaces that are here",
    reads="OMPI_MCA_btl_tcp_if_include, OMPI_MCA_oob_tcp_if_include, PRTE_MCA_prte_if_include, HYDRA_IFACE,"
    " …",
    why="with a name that is not here, MPI does not start, or hangs while connecting",
    remedy="name an interface of this host, or a subnet (10.0.0.0/8)",
    passes="each is here, or none is set",
    fails="one is not here",
)
def mpi_interfaces(facts: HostFacts) -> Iterator[CheckResult]:
    names = (
        "OMPI_MCA_btl_tcp_if_include",
        "OMPI_MCA_oob_tcp_if_include",
        "PRTE_MCA_prte_if_include",
        "PMIX_MCA_pmix_if_include",
        "HYDRA_IFACE",
        "I_MPI_HYDRA_IFACE",
    )
    here = {one.name for one in facts.net_devices}
    found = {name: facts.environment[name] for name in names if facts.environment.get(name)}
    lost = 0
    for name, value in found.items():
        for one in words(value):
            if one not in here and not re.match(r"[0-9a-fA-F.:]+/\d+$", one):
                lost += 1
                yield failed(f"{name}={value}: {one} is not here", subject=name)
    if not lost:
        yield passed(", ".join(f"{name}={value}" for name, value in found.items()) or "not set")


@_check(
    "env.gloo-interface",
    "Gloo's interface is here",
    reads="GLOO_SOCKET_IFNAME",
    why="PyTorch's gloo listens there; with a name that is not here its start fails",
    remedy="name the interface on which hosts reach each other, or unset it",
    passes="not set, or up",
    warns="no other host is reached on it",
    fails="not here, or down",
)
def gloo(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.environment.get("GLOO_SOCKET_IFNAME", "")
    # Gloo takes whole names.
    yield judge_interfaces(facts, "GLOO_SOCKET_IFNAME", f"={value}") if value else passed("not set")


@_check(
    "env.fi-provider",
    "libfabric's provider fits the NICs",
    reads="FI_PROVIDER",
    why="a provider for other hardware leaves MPI and NCCL's libfabric plugin without a network",
    remedy="unset it: libfabric chooses",
    passes="not set, or fits",
    warns="tcp or sockets although RDMA is here; efa without an EFA device; verbs with EFA alone",
    needs=RDMA_DEVICE,
)
def fi_provider(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.environment.get("FI_PROVIDER", "")
    chosen = {re.split(r"[;:]", one)[0] for one in words(value)}
    is_efa = any(one.driver == "efa" for one in facts.rdma_devices)
    only_efa = all(one.driver == "efa" for one in facts.rdma_devices)
    odd = chosen and (
        chosen <= {"tcp", "sockets", "udp"}
        or (chosen == {"efa"} and not is_efa)
        or (chosen == {"verbs"} and only_efa)
    )
    if odd:
        yield warned(f"FI_PROVIDER={value}", expected="efa" if only_efa else "not set")
    else:
        yield passed(value or "not set: libfabric chooses")


@_check(
    "efa.fork",
    "EFA survives a fork",
    reads="FI_EFA_FORK_SAFE, RDMAV_FORK_SAFE; the kernel's release",
    why="before Linux 5.15 a program that forks (data loaders do) may lose registered memory; NCCL and UCX"
    " tell"
    " libibverbs of it, libfabric waits to be told",
    remedy="set FI_EFA_FORK_SAFE=1, or let data loaders start by spawn",
    passes="Linux 5.15 or newer, or the variable is set",
    warns="an older kernel, and it is not set",
    source="AWS's documentation of FI_EFA_FORK_SAFE",
    needs=EFA_DEVICE,
)
def fork(facts: HostFacts) -> Iterator[CheckResult]:
    version = version_of(facts.kernel)
    told = any(facts.environment.get(name, "0") != "0" for name in ("FI_EFA_FORK_SAFE", "RDMAV_FORK_SAFE"))
    if told:
        yield passed("libfabric was told")
    elif version is None:
        yield skipped("the kernel's release is not known")
    elif version < (5, 15):
        yield warned(
            f"Linux {facts.kernel}, FI_EFA_FORK_SAFE is not set", expected="5.15, or FI_EFA_FORK_SAFE=1"
        )
    else:
        yield passed(f"Linux {facts.kernel}")


CHECKS: tuple[Check, ...] = (
    ucx_cuda,
    ucx_rdma,
    ucx_devices,
    ucx_log,
    openib,
    pml,
    mpi_interfaces,
    gloo,
    fi_provider,
    fork,
)
