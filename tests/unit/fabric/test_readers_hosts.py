"""What the readers make of whole hosts."""

from __future__ import annotations

from tests.fabric_hosts import NAMES, facts

from ringleader.fabric.facts import HostFacts, document, from_document
from ringleader.fabric.readers.host import AREA_FAULT


def test_every_host_is_read_without_a_fault_and_survives_json():
    for name in NAMES:
        found = facts(name)
        assert found.hostname == name.replace("_", "-")
        assert not [one for one in found.unreadable if one.reason.startswith(AREA_FAULT)]
        assert from_document(HostFacts, document(found)) == found


def test_hgx_pairs_each_gpu_with_the_nic_below_its_switch():
    found = facts("hgx_ndr")
    assert [one.pci_address for one in found.rdma_devices] == [
        f"0000:{bus}:00.0" for bus in ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")
    ]
    switches = [found.pci_device(one.pci_address).ancestors[:3] for one in found.rdma_devices]
    assert [found.pci_device(one.pci_address).ancestors[:3] for one in found.gpus] == switches
    swapped = [one.name for one in sorted(facts("hgx_ndr_swapped").rdma_devices, key=lambda d: d.pci_address)]
    assert swapped == [f"mlx5_{index}" for index in (0, 1, 2, 4, 3, 5, 6, 7)]


def test_a_pod_sees_every_device_and_one_device_file():
    found = facts("connectx_pod")
    assert len(found.rdma_devices) == len(found.verbs_devices) == 6
    usable = [one for one in found.rdma_files if one.rdma_device]
    assert [(one.path, one.rdma_device, one.error) for one in usable] == [
        ("/dev/infiniband/uverbs4", "mlx5_4", "")
    ]
    netdevs = {one.name: one.netdevs for one in found.rdma_devices if one.netdevs}
    assert netdevs == {"mlx5_4": ("net1",)}
    kinds = [{gid.kind for gid in one.ports[0].gids} for one in found.rdma_devices]
    assert kinds == [{""}, {""}, {""}, {""}, {"IB/RoCE v1", "RoCE v2"}, {""}]
    assert found.unreadable == ()


def test_a_laptop_has_nothing_of_it():
    found = facts("laptop")
    assert found.rdma_devices == found.gpus == found.rdma_files == found.unreadable == ()
    assert [one.name for one in found.net_devices] == ["docker0", "lo", "wlp0s20f3"]
