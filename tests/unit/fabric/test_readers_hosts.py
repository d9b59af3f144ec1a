"""What the readers make of whole hosts."""

from tests.fabric_hosts import NAMES, facts

from ringleader.dataclass_json import document, from_document
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.readers.host import AREA_FAULT


def test_every_host_is_read_without_a_fault_and_survives_json():
    for name in NAMES:
        found = facts(name)
        assert found.hostname == name.replace("_", "-")
        assert not [one for one in found.unreadable if one.reason.startswith(AREA_FAULT)]
        assert from_document(HostFacts, document(found)) == found


def test_device_kinds():
    assert [one.name for one in facts("laptop").net_devices] == ["docker0", "lo", "wlp0s20f3"]
    (rxe,) = facts("soft_rxe").rdma_devices
    assert (rxe.node_type, rxe.driver, rxe.pci_address, rxe.parent) == (1, "", "", "eno1")
    assert [(gid.index, gid.kind, gid.netdev) for gid in rxe.ports[0].gids] == [
        (0, "RoCE v2", "eno1"),
        (1, "RoCE v2", "eno1"),
    ]
    erdma = facts("erdma").rdma_devices[0]
    assert (erdma.node_type, erdma.driver, erdma.ports[0].link_layer) == (4, "erdma", "Ethernet")
    adapters = facts("efa").rdma_devices
    assert [one.name for one in adapters] == [f"rdmap{index}s27" for index in (16, 17, 18, 19)]
    assert {(one.node_type, one.driver, one.ports[0].link_layer) for one in adapters} == {(7, "efa", "")}
    assert adapters[0].ports[0].counters["tx_bytes"] == 81_000_000


def test_a_virtual_machine_shows_no_topology_and_one_usable_gpu():
    found = facts("cloud_vm")
    assert (found.hypervisor, found.container) == ("KVM", "docker")
    assert [one.ancestors for one in found.pci_devices] == [("pci0000:00",)] * 3
    assert [(one.index, one.device_file) for one in found.gpus] == [(0, "/dev/nvidia0"), (1, "")]
    assert (found.nvidia.version, found.nvidia.open_modules) == ("535.183.01", False)
    other = facts("hgx_ndr")
    (mpi,) = other.software.mpis
    assert (mpi.family, mpi.version, mpi.built_with["ucx"]) == ("Open MPI", "5.0.8", True)
    assert [(one.version, one.source) for one in other.software.nccl] == [("2.27.5", "wheel")]
    assert other.library("libcuda.so.1").version == other.nvidia.version == "570.133.20"
    assert ("eth0", "virtio_net") in [(one.name, one.driver) for one in found.net_devices]
    assert found.shm_size == 64 << 20
