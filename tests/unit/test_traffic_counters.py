"""Counters of interfaces and RDMA ports, read below our own root."""

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from ringleader.agents import rank_identity, traffic_counters
from ringleader.dataclass_json import from_document
from ringleader.fabric.readers.host import read_host
from ringleader.fabric.transport_proof.evidence import CounterSnapshot

PROC = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    7       1    0    0    0     0          0         0     8       1    0    0    0     0       0          0
  ib0: 1000       1    0    0    0     0          0         0  2000       1    0    0    0     0       0          0
"""  # noqa: E501


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def snapshot(root: Path) -> CounterSnapshot:
    return from_document(CounterSnapshot, traffic_counters.snapshot(str(root)))


def test_the_process_own_network_namespace_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/net/dev": PROC,
            "proc/self/net/if_inet6": "fe80000000000000000000000000abcd 02 40 20 80 ib0\n"
            "fd000000000000000000000000000002 02 40 00 80 ib0\n",
            "sys/class/net/ib0/type": "32\n",
            "sys/class/net/ib0/speed": "100000\n",
            "sys/class/net/ib0/device/infiniband/mlx5_0/node_type": "1: CA\n",
            "sys/class/net/ib0/statistics/rx_bytes": "5\n",
            "sys/class/net/other/type": "1\n",
        },
    )
    found = snapshot(tmp_path).net_devices
    assert set(found) == {"lo", "ib0"}
    assert found["lo"].kind == "loopback"
    card = found["ib0"]
    assert card.values == {"rx_bytes": 1000, "tx_bytes": 2000}
    assert (card.kind, card.is_virtual, card.speed, card.rdma_device) == ("infiniband", False, 1e11, "mlx5_0")


def test_what_there_was_no_time_for_is_named(tmp_path: Path) -> None:
    write(
        tmp_path, {"proc/self/net/dev": PROC, "sys/class/infiniband/mlx5_0/ports/1/link_layer": "Ethernet\n"}
    )
    found = from_document(CounterSnapshot, traffic_counters.snapshot(str(tmp_path), patience=-1.0))
    assert (found.unread, found.rdma_ports, found.net_devices) == ("RDMA ports", {}, {})
    assert snapshot(tmp_path).unread == ""


def test_without_proc_sysfs_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "sys/class/net/bond0/type": "1\n",
            "sys/class/net/bond0/lower_eth0/type": "1\n",
            "sys/class/net/bond0/statistics/rx_bytes": "5\n",
            "sys/class/net/bond0/statistics/tx_bytes": "6\n",
            "sys/class/net/bond0/speed": "-1\n",
        },
    )
    bond = snapshot(tmp_path).net_devices["bond0"]
    assert bond.values == {"rx_bytes": 5, "tx_bytes": 6}
    assert (bond.is_virtual, bond.lower, bond.speed) == (True, ("eth0",), None)


def test_ports_of_several_kinds(tmp_path: Path) -> None:
    at = "sys/class/infiniband"
    write(
        tmp_path,
        {
            f"{at}/mlx5_0/node_type": "1: CA\n",
            f"{at}/mlx5_0/device/net/eth2/type": "1\n",
            f"{at}/mlx5_0/ports/1/link_layer": "Ethernet\n",
            f"{at}/mlx5_0/ports/1/counters/port_xmit_data": "12\n",
            f"{at}/mlx5_0/ports/1/counters/port_rcv_data": "N/A (no PMA)\n",
            f"{at}/rdmap0/node_type": "7: unspecified\n",
            f"{at}/rdmap0/ports/1/link_layer": "Unspecified\n",
            f"{at}/rdmap0/ports/1/hw_counters/tx_bytes": "34\n",
        },
    )
    found = snapshot(tmp_path).rdma_ports
    card = found["mlx5_0/1"]
    assert card.values == {"port_xmit_data": 12}
    assert card.unreadable == {"port_rcv_data": "N/A (no PMA)"}
    assert (card.node_type, card.link_layer, card.netdevs) == (1, "Ethernet", ("eth2",))
    assert found["rdmap0/1"].values == {"tx_bytes": 34}
    assert (found["rdmap0/1"].node_type, found["rdmap0/1"].link_layer) == (7, "")


def test_a_file_that_comes_in_pieces_is_read_to_its_end(tmp_path, monkeypatch):
    """The kernel's list of interfaces comes in pieces of 4 KiB at most."""
    monkeypatch.setattr(traffic_counters, "READ_SECONDS", 60.0)
    whole = os.read
    monkeypatch.setattr("os.read", lambda descriptor, size: whole(descriptor, min(size, 4096)))
    lines = "".join(f" veth{number}: {' '.join('9' * 16)}\n" for number in range(200))
    write(tmp_path, {"proc/self/net/dev": "first\nsecond\n" + lines})
    assert len(snapshot(tmp_path).net_devices) == 200
    lines = "".join(f" veth{number}: {' '.join('9' * 16)}\n" for number in range(1000))
    write(tmp_path, {"proc/self/net/dev": "first\nsecond\n" + lines})
    assert len(snapshot(tmp_path).net_devices) == traffic_counters.MOST_DEVICES
    monkeypatch.setattr(traffic_counters, "READ_SECONDS", -1.0)
    assert snapshot(tmp_path).net_devices == {}, "when the time is over the rest is left out"


def answering(names: list[str], values: list[int], *, told: int | None = None) -> Any:
    """Stand for the kernel: the statistics of one driver; ``told``: how many there are at the end."""

    def ask(interface: str, request: Any) -> bool:
        (command,) = struct.unpack_from("=I", request)
        if interface != "eth0":
            return False
        if command == 0x37:  # the mask of sets that there are, and their sizes
            struct.pack_into("=QI", request, 8, 1 << 1 if names else 0, len(names))
        elif command == 0x1B:
            for index, name in enumerate(names):
                struct.pack_into("=32s", request, 12 + 32 * index, name.encode())
        else:
            struct.pack_into("=I", request, 4, len(values) if told is None else told)
            struct.pack_into(f"={len(values)}Q", request, 8, *values)
        return True

    return ask


def test_names_and_values() -> None:
    ask = answering(["rx_packets", "tx_vport_rdma_unicast_bytes"], [7, 2**63])
    found = traffic_counters.driver_statistics("eth0", ask)
    assert found == {"rx_packets": 7, "tx_vport_rdma_unicast_bytes": 2**63}
    assert traffic_counters.driver_statistics("eth1", ask) == {}
    assert traffic_counters.driver_statistics("eth0", answering([], [])) == {}
    assert traffic_counters.driver_statistics("eth0", answering(["a"], [1, 2], told=2)) == {}
    for name in ("lo", "no-such-0", "a name that is too long"):  # of the kernel itself
        assert traffic_counters.driver_statistics(name) == {}


def test_interfaces_of_silent_ports_are_asked() -> None:
    ports = {
        "mlx5_0/1": {"values": {"port_xmit_data": 5, "port_rcv_data": 0}},
        "mlx5_1/1": {"values": {"port_xmit_data": 0}},
        "mlx5_2/1": {"values": {}},
    }
    interfaces = {
        name: {"values": {"rx_bytes": 1}, "rdma_device": device}
        for name, device in (("a", "mlx5_0"), ("b", "mlx5_1"), ("c", "mlx5_2"), ("d", ""))
    }
    told = {"tx_vport_rdma_unicast_bytes": 9, "rx_vport_rdma_unicast_bytes": 8, "rx_bytes": 99}
    late = iter((False, True))
    traffic_counters.add_driver_statistics(ports, interfaces, lambda: next(late), lambda name: told)
    assert [len(one["values"]) for one in interfaces.values()] == [1, 3, 1, 1]
    assert interfaces["b"]["values"]["tx_vport_rdma_unicast_bytes"] == 9


def test_addresses_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe says so, and does not take an interface for one without addresses; counters do without."""

    def refuse(*_arguments: Any) -> bytes:
        raise OSError("no memory")

    monkeypatch.setattr("fcntl.ioctl", refuse)
    with pytest.raises(OSError, match="no memory"):
        rank_identity.ipv4()
    assert "no memory" in str(
        [one.reason for one in read_host().unreadable if one.path == "network interfaces"]
    )
    assert traffic_counters.snapshot("/")["net_devices"]


def test_a_sample_has_the_bytes_of_interfaces_and_of_ports_that_count_them(tmp_path: Path) -> None:
    at = "sys/class/infiniband"
    counters = {
        "mlx5_0": ("counters/port_xmit_data", "counters/port_rcv_data"),
        "rdmap0": ("hw_counters/tx_bytes", "hw_counters/rx_bytes"),
        "erdma_0": ("hw_counters/hw_tx_bytes_cnt", "hw_counters/hw_rx_bytes_cnt"),
        "rxe0": ("hw_counters/sent_pkts", "hw_counters/rcvd_pkts"),
        "mlx5_1": ("counters/port_xmit_data", "counters/port_rcv_packets"),
    }
    for device, (sent, received) in counters.items():
        port = f"{at}/{device}/ports/1"
        write(tmp_path, {f"{port}/{sent}": "10\n", f"{port}/{received}": "20\n"})
    write(tmp_path, {"proc/self/net/dev": PROC})
    found = traffic_counters.sample(str(tmp_path))
    assert found["interfaces"] == {"lo": [7, 8], "ib0": [1000, 2000]}
    assert found["ports"] == {"mlx5_0/1": [80, 40], "rdmap0/1": [20, 10], "erdma_0/1": [20, 10]}
    (tmp_path / "proc/self/net/dev").unlink()
    (tmp_path / f"{at}/rdmap0/ports/1/hw_counters/tx_bytes").write_text("N/A\n")
    vanished = traffic_counters.sample(str(tmp_path))
    assert vanished == {"interfaces": {}, "ports": {"mlx5_0/1": [80, 40], "erdma_0/1": [20, 10]}}
