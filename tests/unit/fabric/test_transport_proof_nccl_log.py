"""Lines of NCCL 2.3 to 2.30, written by hand after its sources, and junk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.fabric.transport_proof.evidence import LogLines
from ringleader.fabric.transport_proof.library_logs import Channel, Device, NcclLog, nccl_log

PREFIX = "node-1.example:4242:4301 [0] NCCL INFO "


def read(*messages: str, prefix: str = PREFIX) -> NcclLog:
    return nccl_log(LogLines(rank=0, lines=tuple(f"{prefix}{message}" for message in messages)))


@pytest.mark.parametrize(
    ("message", "devices"),
    [
        ("NET/IB: [0] mlx5_0:1/RoCE ", [("mlx5_0", 1, "RoCE")]),
        (
            "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB eth0:10.0.0.1<0>",
            [("mlx5_0", 1, "IB"), ("mlx5_1", 1, "IB")],
        ),
        ("NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", [("mlx5_0", 1, "RoCE")]),
        (
            "NET/IB : Using [0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} [RO]; OOB eth0:10.0.0.1<0>",
            [("mlx5_0", 1, "RoCE"), ("mlx5_1", 1, "RoCE")],
        ),
        ("NET/IB : Using [0]mlx5_0:1:0:0/IB [RO]; OOB eth0:10.0.0.1<0>", [("mlx5_0", 1, "IB")]),
        ("NET/IB : Using [0]rocep0s5:1/RoCE [RO]; OOB eth0:fe80::1%eth0<0>", [("rocep0s5", 1, "RoCE")]),
        (
            "NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP",
            [("mlx5_0", 1, "IB"), ("mlx5_1", 1, "IB")],
        ),
        ("NET/IB: [2] mlx5_2:uverbs2:1/RoCE provider=Mlx5 speed=400000 ar=0", [("mlx5_2", 1, "RoCE")]),
        ("NET/IB : Using [RO]; OOB eth0:10.0.4.51<0>", []),
        ("NET/IB : No device found.", []),
    ],
)
def test_devices_of_each_version(message: str, devices: list[tuple[str, int, str]]) -> None:
    found = read(message).devices
    assert found == tuple(Device(name=name, port=port, link=link) for name, port, link in devices)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "Ring 00 : 1 -> 0 [send] via NET/IB/0/GDRDMA",
            {"direction": "send", "network": "IB", "device": 0, "gpudirect": True},
        ),
        ("Ring 00 : 1 -> 0 via NET/IB/2", {"direction": "", "network": "IB", "device": 2}),
        (
            "Channel 00 : 1[1a000] -> 0[1b000] [receive] via NET/Socket/0",
            {"direction": "receive", "network": "Socket", "device": 0},
        ),
        (
            "Channel 00/0 : 1[1a000] -> 0[1b000] [send] via NET/IB/1(3)/GDRDMA/Shared",
            {"direction": "send", "network": "IB", "device": 1, "gpudirect": True},
        ),
        (
            "Channel 63/1 : 1[7] -> 0[0] [send] via NET/IB/7/GDRDMA(PCI)",
            {"direction": "send", "network": "IB", "device": 7, "gpudirect": True},
        ),
        (
            "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA",
            {"direction": "receive", "network": "AWS Libfabric", "device": 0, "gpudirect": True},
        ),
        (
            "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IBext_v8/3/GDRDMA/Shared",
            {"direction": "receive", "network": "IBext_v8", "device": 3, "gpudirect": True},
        ),
    ],
)
def test_channels_between_hosts(message: str, expected: dict[str, object]) -> None:
    (channel,) = read(message).channels
    assert (channel.source, channel.target, channel.transport) == (1, 0, "NET")
    values = {"direction": "", "gpudirect": False, **expected}
    assert {name: getattr(channel, name) for name in values} == values


@pytest.mark.parametrize(
    ("message", "transport"),
    [
        ("Ring 00 : 1[0] -> 0[1] via P2P/direct pointer", "P2P"),
        ("Channel 00 : 1[1a000] -> 0[1b000] via P2P/IPC/read", "P2P"),
        ("Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM/read", "P2P"),
        ("Channel 00/0 : 1[1] -> 0[0] via P2P/indirect/2[2]", "P2P"),
        ("Channel 00 : 1[1a000] -> 0[1b000] via direct shared memory", "SHM"),
        ("Channel 00/0 : 1[1] -> 0[0] via P2P/MNNVL", "P2P"),
        ("Channel 00/0 : 1[1] -> 0[0] via SHM/direct/direct", "SHM"),
        ("Channel 00/0 : 1[1] -> 0[0] via SHM/direct/CE", "SHM"),
        ("CollNet 00/0 : 1 -> 0 [send] via COLLNET/SHARP/0/GDRDMA", "COLLNET"),
        ("Channel 00/0 : 1[1] -> 0[0] via a new wire", ""),
    ],
)
def test_channels_by_transport(message: str, transport: str) -> None:
    assert [channel.transport for channel in read(message).channels] == [transport]


@pytest.mark.parametrize(
    ("messages", "network"),
    [
        (["Using network IB"], "IB"),
        (["Using network AWS Libfabric"], "AWS Libfabric"),
        (["Using network Socket", "NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>"], "Socket"),
        (["Initialized NET plugin IB", "Assigned NET plugin IB to comm"], "IB"),
        (["NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>"], "IB"),
        (["NET/IB : No device found.", "NET/Socket : Using [0]eth0:192.168.0.5<0>"], "Socket"),
        (["Bootstrap : Using eth0:192.168.0.5<0>"], ""),
    ],
)
def test_network_that_was_chosen(messages: list[str], network: str) -> None:
    assert read(*messages).network == network


def test_socket_interfaces() -> None:
    found = read("NET/Socket : Using [0]eth0:192.168.0.5<0> [1]ib0:10.1.0.5<0> [2]ens5:fe80::1%ens5<0>")
    assert found.interfaces == ("eth0", "ib0", "ens5")


@pytest.mark.parametrize(
    ("message", "everywhere", "devices"),
    [
        ("Connected all rings, use ring PXN 0 GDR 1", True, ()),
        ("Connected all rings, use ring PXN 0 GDR 0", False, ()),
        ("Connected all rings", None, ()),
        (
            "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)",
            None,
            (("mlx5_0", False, "no module"),),
        ),
        ("NET/IB : GPU Direct RDMA Enabled for HCA 1 'mlx5_1'", None, (("mlx5_1", True, ""),)),
    ],
)
def test_gpudirect_lines(message: str, everywhere: bool | None, devices: tuple[object, ...]) -> None:
    found = read(message)
    assert (found.gpudirect_everywhere, found.gpudirect_devices) == (everywhere, devices)


def test_the_provider_of_libfabric() -> None:
    assert read("NET/OFI Selected provider is efa, fabric is efa").provider == "efa"


def test_two_ranks_wrote_into_one_line() -> None:
    found = read(
        "Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0/GDRDMAn1:3:4 [1] "
        "NCCL INFO Channel 00/0 : 3[1] -> 2[1] [send] via NET/IB/1/GDRDMA/Shared"
    )
    assert [(one.source, one.device, one.gpudirect) for one in found.channels] == [(1, 0, True), (3, 1, True)]


def test_channels_that_differ_only_by_number_are_kept_once() -> None:
    found = read(
        *(f"Channel {number:02d}/0 : 0[0] -> 1[0] [send] via NET/IB/{number % 2}" for number in range(64))
    )
    assert [one.device for one in found.channels] == [0, 1]


def test_what_other_programs_print_is_passed_over() -> None:
    channel = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0"
    found = read("\x00\xff epoch 1 loss 0.1", channel)
    assert [one.network for one in found.channels] == ["IB"]


FRAGMENTS = st.sampled_from(
    [
        PREFIX.encode(),
        b"Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0/GDRDMA",
        b"NET/IB : Using [0]={[0] mlx5_0:1/IB",
        b"NCCL ",
        b"NCCL WARN ",
        b"\n",
        b"GPU Direct RDMA Enabled for HCA 0 '",
        b"NET/Socket : Using [0]eth0:",
        b"Connected all rings, use ring PXN ",
    ]
)


@given(st.lists(FRAGMENTS | st.binary(max_size=40), max_size=30))
def test_junk_never_raises(parts: list[bytes]) -> None:
    lines = b"".join(parts).decode(errors="replace").splitlines()
    found = nccl_log(LogLines(rank=0, lines=tuple(lines)))
    assert all(isinstance(one, Channel) for one in found.channels)


def test_names_of_devices_with_hyphens_and_dots() -> None:
    log = read("NET/IB : Using [0]rocep-a.0:1/RoCE [1]ib-1.x:2/IB [RO]; OOB eth0:10.0.0.1<0>")
    assert [(one.name, one.port) for one in log.devices] == [("rocep-a.0", 1), ("ib-1.x", 2)]
