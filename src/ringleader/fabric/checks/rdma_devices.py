"""Checks of RDMA devices: whether a process here can see and open them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import RDMA, RDMA_DEVICE, is_rdma_nic, usable_devices
from ringleader.fabric.facts import HostFacts

_check = partial(check, group="RDMA devices")


@_check(
    "dev.sysfs",
    "RDMA devices are visible",
    reads="/sys/class/infiniband, /dev/infiniband",
    why="NCCL, UCX and libibverbs find devices in sysfs; without it they use TCP without a word",
    remedy="mount /sys into the container; with exclusive RDMA namespaces (rdma system), move the RDMA device"
    " into this one",
    passes="sysfs lists at least one RDMA device",
    fails="there are files in /dev/infiniband but no device in sysfs",
    warns="a NIC that can do RDMA is there, but no RDMA device",
    needs=RDMA,
)
def sysfs(facts: HostFacts) -> Iterator[CheckResult]:
    if facts.rdma_devices:
        yield passed(f"{len(facts.rdma_devices)} in /sys/class/infiniband")
    elif facts.rdma_files:
        yield failed(f"{facts.rdma_files[0].path} is there, but /sys/class/infiniband is empty")
    else:
        names = ", ".join(one.address for one in facts.pci_devices if is_rdma_nic(one))
        yield warned(
            f"no RDMA device, although there is a NIC that can do RDMA ({names or 'by its verbs file'})",
            remedy="load the NIC's RDMA driver on the host: modprobe mlx5_ib (erdma, efa)",
        )


@_check(
    "dev.chardev",
    "The devices' files can be opened",
    reads="/dev/infiniband/uverbs*",
    why="every verbs call goes through such a file; without it NCCL says 'No device found' and uses sockets",
    remedy="request the RDMA resource of the cluster's device plugin; with Docker: --device=/dev/infiniband",
    passes="each uverbs file that is there can be opened",
    fails="there is none, or one cannot be opened",
    needs=RDMA_DEVICE,
)
def chardev(facts: HostFacts) -> Iterator[CheckResult]:
    files = [one for one in facts.rdma_files if "uverbs" in one.path]
    if not files:
        yield failed("no /dev/infiniband/uverbs* here", expected="one for each RDMA device")
    for one in files:
        if one.error:
            yield failed(
                f"cannot be opened: {one.error}",
                subject=one.path,
                remedy="the device control group forbids it: a hostPath without privileged, or a docker run"
                " without"
                " --device; request the RDMA resource instead",
            )
    if files and not any(one.error for one in files):
        yield passed(f"{len(files)} in /dev/infiniband can be opened")


@_check(
    "dev.match",
    "Each device has its file, each file its device",
    reads="/sys/class/infiniband_verbs/uverbs*/ibdev, /dev/infiniband/uverbs*",
    why="a container in a shared namespace lists the host's devices, also those that it was not given;"
    " NCCL tries them",
    remedy="name the devices that may be used in NCCL_IB_HCA and UCX_NET_DEVICES, or request all of them",
    passes="every RDMA device has an uverbs file here",
    warns="a device is visible but has no file",
    fails="a file belongs to no device that is visible",
    needs=RDMA_DEVICE,
)
def match(facts: HostFacts) -> Iterator[CheckResult]:
    names = {one.name for one in facts.rdma_devices}
    files = [one for one in facts.rdma_files if "uverbs" in one.path]
    if not files:
        yield skipped("no uverbs file here")
        return
    usable = {one.rdma_device for one in files}
    lost = [one for one in files if one.rdma_device and one.rdma_device not in names]
    for one in lost:
        yield failed(f"belongs to {one.rdma_device}, which sysfs does not list", subject=one.path)
    if not any(usable):
        yield skipped("sysfs does not say to which device a file belongs")
    elif without := sorted(names - usable):
        yield warned(f"{', '.join(without)}: visible, but without a file here")
    elif not lost:
        yield passed(f"each of {len(names)} has its file")


@_check(
    "dev.rdma_cm",
    "The connection manager's file is there",
    reads="/dev/infiniband/rdma_cm",
    why="rdma_cm makes connections by IP address: perftest -R, UCX's sockaddr, iWARP and eRDMA need it",
    remedy="modprobe rdma_ucm on the host; with Docker: --device=/dev/infiniband",
    passes="it is there and can be opened; EFA does without",
    warns="it is not there or cannot be opened",
    needs=RDMA_DEVICE,
)
def connection_manager(facts: HostFacts) -> Iterator[CheckResult]:
    file = next((one for one in facts.rdma_files if one.path.endswith("/rdma_cm")), None)
    if all(one.driver == "efa" for one in facts.rdma_devices):
        yield passed("not needed: EFA does without")
    elif file is None:
        yield warned("no /dev/infiniband/rdma_cm here")
    elif file.error:
        yield warned(f"cannot be opened: {file.error}", subject=file.path)
    else:
        yield passed("can be opened")


@_check(
    "dev.driver",
    "Each NIC that can do RDMA has an RDMA device",
    reads="/sys/bus/pci/devices/*/{vendor,class,driver}, /sys/class/infiniband/*/device",
    why="a NIC without its RDMA driver carries TCP alone, and a rail is missing",
    remedy="bind the NIC to its own driver and load its RDMA module (mlx5_ib); one that a virtual machine"
    " took (vfio-pci) is not ours",
    passes="each has one",
    warns="one has none",
    needs=RDMA_DEVICE,
)
def driver(facts: HostFacts) -> Iterator[CheckResult]:
    with_device = {one.pci_address for one in facts.rdma_devices}
    nics = [one for one in facts.pci_devices if is_rdma_nic(one)]
    without = [one for one in nics if one.address not in with_device]
    for one in without:
        yield warned(f"its driver is {one.driver or 'none'}, and it has no RDMA device", subject=one.address)
    if not nics:
        yield skipped("no PCI device is known that can do RDMA")
    elif not without:
        yield passed(f"each of {len(nics)} NICs has an RDMA device")


@_check(
    "dev.soft",
    "The devices are hardware",
    reads="/sys/class/infiniband/*/{device,parent}",
    why="the drivers rxe and siw do RDMA in software: they work, but the CPU moves the bytes, slower than"
    " TCP does",
    remedy="leave them to tests: name the hardware's devices in NCCL_IB_HCA and UCX_NET_DEVICES",
    passes="each RDMA device is a PCI device",
    warns="one is made in software",
    needs=RDMA_DEVICE,
)
def soft(facts: HostFacts) -> Iterator[CheckResult]:
    found = [one for one in facts.rdma_devices if not one.pci_address]
    for one in found:
        above = f" over {one.parent}" if one.parent else ""
        yield warned(f"RDMA in software{above}", subject=one.name)
    if not found:
        yield passed(f"{len(facts.rdma_devices)} PCI devices")


@_check(
    "dev.guid",
    "Each device has a GUID of its own",
    reads="/sys/class/infiniband/*/node_guid",
    why="the subnet manager gives no LID to a virtual function whose GUID is zero, and takes two devices of"
    " one GUID for one",
    remedy="set the virtual function's GUID on the host (ip link set DEV vf N node_guid …), then rebind it",
    passes="no GUID is zero, and each is there once",
    warns="two devices have the same",
    fails="a GUID is zero",
    skips="no GUID is readable",
    needs=RDMA_DEVICE,
)
def guid(facts: HostFacts) -> Iterator[CheckResult]:
    known = [one for one in usable_devices(facts) if one.node_guid]
    zero = [one for one in known if not one.node_guid.strip("0:")]
    for one in zero:
        yield failed("its GUID is zero", subject=one.name)
    twice = {guid for guid, count in Counter(one.node_guid for one in known).items() if count > 1}
    for one in known:
        if one.node_guid in twice and one not in zero:
            yield warned(f"shares its GUID {one.node_guid}", subject=one.name)
    if not known:
        yield skipped("no GUID is readable")
    elif not zero and not twice:
        yield passed(f"{len(known)} different")


CHECKS: tuple[Check, ...] = (sysfs, chardev, match, connection_manager, driver, soft, guid)
