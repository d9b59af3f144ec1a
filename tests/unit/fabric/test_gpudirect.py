"""Verdicts on GPUDirect: both sides of every condition."""

from dataclasses import replace

from tests.unit.fabric.machines import changed, gpu_machine

from ringleader.fabric.facts import NvidiaDriver
from ringleader.fabric.topology.gpudirect import Direct, p2p_verdicts, rdma_verdicts


def verdict(facts, gpu: str = "GPU0", nic: str = "mlx5_0"):
    return next(one for one in rdma_verdicts(facts) if (one.one, one.other) == (gpu, nic))


def with_acs(facts):
    bridges = tuple(
        replace(one, acs_redirects=True) if one.acs_redirects is False else one for one in facts.pci_devices
    )
    return changed(facts, pci_devices=bridges)


def with_gpus(facts, **values):
    return changed(facts, gpus=tuple(replace(one, **values) for one in facts.gpus))


GOOD = gpu_machine()


def test_near_and_far():
    near, far = verdict(GOOD), verdict(GOOD, nic="mlx5_1")
    assert near.verdict is Direct.YES and "nvidia_peermem" in near.reason
    assert far.verdict is Direct.SLOW and "NODE apart" in far.reason
    assert len(rdma_verdicts(GOOD)) == 64


def test_conditions_of_rdma():
    for facts, expected, reason in (
        (changed(GOOD, modules=()), Direct.YES, "DMA-BUF"),
        (changed(GOOD, modules=(), kernel="5.10.0"), Direct.NO, "needs Linux 5.12"),
        (
            changed(GOOD, modules=(), nvidia=NvidiaDriver(open_modules=False)),
            Direct.NO,
            "open kernel modules",
        ),
        (changed(GOOD, modules=(), nvidia=NvidiaDriver()), Direct.UNKNOWN, "unknown"),
        (changed(GOOD, modules=("nv_peer_mem",)), Direct.YES, "nv_peer_mem"),
        (changed(GOOD, modules=("nvidia-peermem",)), Direct.YES, ""),
        (with_acs(GOOD), Direct.SLOW, "ACS"),
        (changed(with_acs(GOOD), hypervisor="kvm"), Direct.YES, "nvidia_peermem"),
        (changed(GOOD, iommus=("dmar0",)), Direct.SLOW, "iommu=pt"),
        (changed(GOOD, iommus=("dmar0",), kernel_command_line="quiet iommu=pt"), Direct.YES, ""),
        (with_gpus(GOOD, bar1_memory=256 << 20, memory=80 << 30), Direct.NO, "256 MiB"),
        (with_gpus(GOOD, bar1_memory=128 << 30, memory=80 << 30), Direct.YES, ""),
        (with_gpus(GOOD, driver="vfio-pci"), Direct.NO, "vfio-pci"),
        (with_gpus(GOOD, vendor=0x1002), Direct.UNKNOWN, "NVIDIA"),
    ):
        found = verdict(facts)
        assert found.verdict is expected and reason in found.reason, found


def test_p2p():
    assert len(p2p_verdicts(GOOD)) == 28
    assert {one.verdict for one in p2p_verdicts(GOOD)} == {Direct.UNKNOWN}
    everyone = dict.fromkeys(range(8), "ok")
    linked = with_gpus(GOOD, p2p=everyone, nvlinks_active=18)
    assert {(one.verdict, one.reason) for one in p2p_verdicts(with_acs(linked))} == {(Direct.YES, "NVLink")}
    plain = with_gpus(GOOD, p2p=everyone)
    assert {one.verdict for one in p2p_verdicts(plain)} == {Direct.YES}
    assert {one.verdict for one in p2p_verdicts(with_acs(plain))} == {Direct.SLOW}
    refused = with_gpus(GOOD, p2p=dict.fromkeys(range(8), "chipset not supported"))
    first = p2p_verdicts(refused)[0]
    assert first.verdict is Direct.NO and first.reason == "the driver says chipset not supported"
