"""NICs of local ranks, and the ports they are chosen from."""

import pytest
from tests.unit.fabric.machines import (
    LINK_LOCAL,
    ROCE_GIDS,
    V4_MAPPED,
    changed,
    gpu_machine,
    host,
    pci,
    port,
    rdma,
)

from ringleader.fabric.facts import UNLIMITED, Gid, Gpu, NumaNode
from ringleader.fabric.port_selection import line_rate, may_lock_memory, roce_gids, select_ports
from ringleader.fabric.topology.nic_assignment import assign_nics
from ringleader.fabric.topology.pci_distance import PciDistance


def names(facts) -> list[str]:
    return [one.nic.device.name for one in assign_nics(facts)]


def test_each_gpu_has_the_nic_at_its_switch():
    found = assign_nics(gpu_machine())
    assert [one.nic.name for one in found] == [f"mlx5_{at}:1" for at in range(8)]
    assert {one.distance for one in found} == {PciDistance.PIX} and not any(one.shared for one in found)
    assert [one.local_rank for one in found] == list(range(8))


def test_names_against_the_order_of_gpus():
    assert names(gpu_machine(swapped=True)) == [f"mlx5_{at}" for at in reversed(range(8))]
    facts = gpu_machine()
    reused = names(changed(facts, rdma_devices=facts.rdma_devices[:2]))[4:]
    assert sorted(reused) == ["mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1"], "spread over equally near ones"


def test_fewer_nics_than_gpus_are_used_again_on_their_numa_node():
    facts = gpu_machine(nics=8)
    kept = (facts.rdma_devices[0], facts.rdma_devices[4])
    found = assign_nics(changed(facts, rdma_devices=kept))
    assert [one.nic.device.name for one in found] == ["mlx5_0"] * 4 + ["mlx5_4"] * 4
    assert [one.shared for one in found] == [False, True, True, True] * 2
    assert found[1].distance is PciDistance.NODE


def test_without_a_common_root_numa_nodes_decide():
    """GB200: GPUs and NICs hang on different root complexes."""
    nodes = [0, 0, 1, 1]
    gpus = [pci(f"pci00{at:02x}:00/00{at:02x}:01:00.0", node) for at, node in enumerate(nodes, 8)]
    nics = [pci(f"pci01{at:02x}:00/01{at:02x}:03:00.0", node) for at, node in enumerate(nodes[::-1])]
    facts = host(
        devices=tuple(rdma(f"mlx5_{at}", port(), pci=one.address) for at, one in enumerate(nics)),
        gpus=tuple(Gpu(index=at, pci_address=one.address) for at, one in enumerate(gpus)),
        pci_devices=(*gpus, *nics),
        numa_nodes=tuple(NumaNode(number=at, cpus="", memory=None) for at in (0, 1)),
    )
    near = [{"mlx5_2", "mlx5_3"}, {"mlx5_2", "mlx5_3"}, {"mlx5_0", "mlx5_1"}, {"mlx5_0", "mlx5_1"}]
    found = names(facts)
    assert all(name in those for name, those in zip(found, near, strict=True)) and len(set(found)) == 4


def test_no_gpus_and_no_nics():
    facts = host(devices=(rdma("mlx5_0", port()), rdma("mlx5_1", port())))
    assert names(facts) == ["mlx5_0", "mlx5_1"]
    assert assign_nics(host()) == () == assign_nics(gpu_machine(nics=0))


IB, ROCE = rdma("mlx5_0", port()), rdma("mlx5_0", port("Ethernet"), pci="0000:01:00.0")
ALIEN = port("Ethernet", gids=(Gid(index=0, address=LINK_LOCAL),))
RXE = rdma("rxe0", port("Ethernet"), driver="")


def test_ports_that_are_used():
    for devices, without_files, used, why_not in (
        ([IB, rdma("mlx5_1", port())], (), ["mlx5_0:1", "mlx5_1:1"], ""),
        ([IB, rdma("mlx5_1", port(state="INIT"))], (), ["mlx5_0:1"], "its state is INIT"),
        ([IB, rdma("mlx5_1", port())], ("mlx5_1",), ["mlx5_0:1"], "no /dev/infiniband/uverbs file"),
        # Storage on Ethernet beside InfiniBand; and the other way round.
        ([IB, rdma("mlx5_1", port("Ethernet", gbits=100))], (), ["mlx5_0:1"], "it is roce"),
        ([rdma("mlx5_0", port(gbits=100)), rdma("mlx5_1", port("Ethernet"))], (), ["mlx5_1:1"], "infiniband"),
        # RoCE in a Pod without the interface, and without an IP address.
        ([rdma("mlx5_0", ALIEN)], (), [], "not in this network namespace"),
        ([rdma("mlx5_0", port("Ethernet", gids=ROCE_GIDS[:2]))], (), [], "all link-local"),
        ([ROCE, RXE], (), ["mlx5_0:1"], "soft device"),
        ([RXE], (), ["rxe0:1"], ""),
    ):
        found = select_ports(host(devices=tuple(devices), without_files=without_files))
        assert [one.name for one in found.ports] == used
        assert len(found.left_out) == bool(why_not) and all(why_not in one.reason for one in found.left_out)


@pytest.mark.parametrize(
    ("memlock", "capabilities", "may"),
    [(UNLIMITED, 0, True), (8 << 20, 0, False), (8 << 20, 1 << 14, True), (1 << 30, 0, True)],
)
def test_locked_memory(memlock, capabilities, may):
    assert may_lock_memory(host(memlock=memlock, capabilities=capabilities)) is may


def test_gids_for_roce_best_first():
    assert [one.index for one in roce_gids(port("Ethernet"))] == [3, 2]
    six = Gid(index=4, address="2001:0db8:0000:0000:0000:0000:0000:0001", kind="RoCE v2", netdev="eth1")
    auto = Gid(index=5, address=V4_MAPPED + "a9fe:0001", kind="RoCE v2", netdev="eth1")
    assert [one.index for one in roce_gids(port("Ethernet", gids=(six, auto, *ROCE_GIDS)))] == [3, 4, 2]


def test_the_slowest_host_counts_and_all_must_be_known():
    eight, four = gpu_machine(), gpu_machine(nics=4)
    one = select_ports(four).ports[0].rate / 8
    assert one > 0
    assert line_rate(["a", "b"], {"a": eight, "b": four}) == 4 * one
    assert line_rate(["a", "b"], {"a": eight}) is None
    assert line_rate(["a", "b"], {}, link=8e9) == 1e9
    assert line_rate(["a"], {"a": eight}, link=8e9) is None
