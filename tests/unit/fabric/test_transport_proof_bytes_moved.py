"""Counters between two snapshots: wraps, resets, saturation, what cannot be read, stacks of interfaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.fabric.transport_proof import bytes_moved
from ringleader.fabric.transport_proof.evidence import (
    CounterSnapshot,
    Exchanged,
    NetDeviceCounters,
    PortCounters,
)
from ringleader.fabric.wires import Wire


def test_one_counter() -> None:
    for before, after, value, unusable in (
        (5, 12, 7, ""),
        (2**64 - 10, 20, 30, ""),
        (2**32 - 10, 2**32 + 10, 20, ""),
        (1000, 20, 0, "was reset"),
        (2**32 - 5, 2**32 - 1, 0, "saturated"),
        (None, 5, 0, "before the job"),
        (5, None, 0, "after the job"),
        (-1, 5, 0, "not a 64-bit count"),
        (5, 2**64, 0, "not a 64-bit count"),
    ):
        first = {} if before is None else {"x": before}
        last = {} if after is None else {"x": after}
        moved, why = bytes_moved.counter_difference(first, last, "x")
        assert moved == value
        assert unusable in why and bool(why) == bool(unusable)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**60))
def test_a_counter_that_moved_by_any_number(first: int, moved: int) -> None:
    last = (first + moved) % 2**64
    found, unusable = bytes_moved.counter_difference({"x": first}, {"x": last}, "x")
    assert found == moved or "saturated" in unusable


def snapshot(ports=None, devices=None):
    return CounterSnapshot(at=0.0, rdma_ports=ports or {}, net_devices=devices or {})


def port(sent: int, received: int, **more: object) -> PortCounters:
    values = {"port_xmit_data": sent, "port_rcv_data": received}
    return PortCounters(values=values, link_layer="InfiniBand", node_type=1, **more)


def interface(sent: int, received: int = 0, **more: object) -> NetDeviceCounters:
    return NetDeviceCounters(
        **{"values": {"tx_bytes": sent, "rx_bytes": received}, "kind": "ethernet", **more}
    )


@pytest.mark.parametrize("stuck", [port(0, 0, netdevs=("eth1",)), PortCounters(netdevs=("eth1",))])
def test_virtual_functions_are_read_by_ethtool(stuck: PortCounters) -> None:
    def netdev(count: int) -> dict[str, NetDeviceCounters]:
        names = ("tx_vport_rdma_unicast_bytes", "rx_vport_rdma_unicast_bytes")
        return {"eth1": NetDeviceCounters(values=dict.fromkeys(names, count), kind="ethernet")}

    (found,) = bytes_moved.ports_carried(
        snapshot({"mlx5_2/1": stuck}, netdev(5)), snapshot({"mlx5_2/1": stuck}, netdev(9))
    )
    assert found.moved == Exchanged(sent=4, received=4) and not found.unusable


def test_a_port_that_tells_no_number_says_what_it_tells() -> None:
    mute = PortCounters(unreadable={"port_xmit_data": "N/A (no PMA)"})
    (found,) = bytes_moved.ports_carried(snapshot({"mlx5_0/1": mute}), snapshot({"mlx5_0/1": mute}))
    assert "N/A (no PMA)" in found.unusable and found.moved.total == 0


def test_wire_of_a_port() -> None:
    for one, wire in (
        (PortCounters(link_layer="InfiniBand", node_type=1), Wire.INFINIBAND),
        (PortCounters(link_layer="Ethernet", node_type=1), Wire.ROCE),
        (PortCounters(link_layer="Ethernet", node_type=4), Wire.IWARP),
        (PortCounters(link_layer="Ethernet", node_type=1, driver="erdma"), Wire.ROCE),
        (PortCounters(node_type=7), Wire.EFA),
        (PortCounters(), Wire.UNKNOWN),
    ):
        assert bytes_moved.port_wire(one) is wire


def test_interfaces_that_count() -> None:
    for devices, counted in (
        ({"eth0": interface(9), "lo": interface(9, kind="loopback")}, ["eth0"]),
        ({"eth0": interface(9), "eth0.5": interface(9, lower=("eth0",), is_virtual=True)}, ["eth0"]),
        (
            {
                "bond0": interface(9, lower=("eth0", "eth1"), is_virtual=True),
                "eth0": interface(4),
                "eth1": interface(5),
            },
            ["eth0", "eth1"],
        ),
        # A Pod: its own interface is virtual, and the only one.
        ({"eth0": interface(9, is_virtual=True, addresses=("10.0.0.7",))}, ["eth0"]),
        # A Pod with a virtual function beside it.
        (
            {"eth0": interface(9, is_virtual=True, addresses=("10.0.0.7",)), "net1": interface(1)},
            ["eth0", "net1"],
        ),
        # A host with containers: their ends of the pairs have no address.
        (
            {
                "eth0": interface(9),
                "wg0": interface(9, is_virtual=True, kind="other", addresses=("10.1.0.1",)),
            },
            ["eth0"],
        ),
    ):
        found = bytes_moved.interfaces_carried(snapshot(devices=devices), snapshot(devices=devices))
        assert [one.name for one in found] == counted


def test_ports_and_interfaces_have_their_wires() -> None:
    (found,) = bytes_moved.ports_carried(
        snapshot({"mlx5_0/1": port(10, 20)}), snapshot({"mlx5_0/1": port(110, 70)})
    )
    assert (found.name, found.wire) == ("mlx5_0 port 1", Wire.INFINIBAND)
    assert found.moved == Exchanged(sent=400, received=200), "port data is counted in four bytes"
    before, after = {"ib0": interface(0, kind="infiniband")}, {"ib0": interface(8, 2, kind="infiniband")}
    (found,) = bytes_moved.interfaces_carried(snapshot(devices=before), snapshot(devices=after))
    assert found.wire is Wire.IPOIB and found.moved.total == 10
    before, after = {"lo": interface(1, 1, kind="loopback")}, {"lo": interface(6, 6, kind="loopback")}
    looped = bytes_moved.loopback_carried(snapshot(devices=before), snapshot(devices=after))
    assert looped is not None and looped.moved == Exchanged(sent=5, received=5)
    assert bytes_moved.loopback_carried(snapshot(), snapshot()) is None


def test_an_interface_that_came_or_went_while_the_job_ran() -> None:
    (came,) = bytes_moved.interfaces_carried(snapshot(), snapshot(devices={"eth0": interface(5)}))
    assert "before the job" in came.unusable
    assert bytes_moved.interfaces_carried(snapshot(devices={"eth0": interface(5)}), snapshot()) == ()


def test_ports_without_the_standard_counters() -> None:
    for names in (("tx_bytes", "rx_bytes"), ("hw_tx_bytes_cnt", "hw_rx_bytes_cnt")):
        counters = (dict.fromkeys(names, 0), dict(zip(names, (30, 40), strict=True)))
        before, after = (snapshot({"rdmap0/1": PortCounters(values=one, driver="efa")}) for one in counters)
        (found,) = bytes_moved.ports_carried(before, after)
        assert found.moved == Exchanged(sent=30, received=40) and found.wire is Wire.EFA
