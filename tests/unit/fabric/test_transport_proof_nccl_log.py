"""Lines of UCX and of NCCL 2.3 to 2.30, written by hand after its sources, and junk."""

from hypothesis import given
from hypothesis import strategies as st

from ringleader.fabric.transport_proof.evidence import LogLines
from ringleader.fabric.transport_proof.library_logs import Channel, Device, NcclLog, connections, nccl_log

PREFIX = "node-1.example:4242:4301 [0] NCCL INFO "


def read(*messages: str, prefix: str = PREFIX) -> NcclLog:
    return nccl_log(LogLines(rank=0, lines=tuple(f"{prefix}{message}" for message in messages)))


def test_devices_of_each_version() -> None:
    for message, devices in (
        (
            "NET/IB : Using [0]rocep-a.0:1/RoCE [1]ib-1.x:2/IB ; OOB eth0:10.0.0.1<0>",
            [("rocep-a.0", 1, "RoCE"), ("ib-1.x", 2, "IB")],
        ),
        (
            "NET/IB : Using [0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE} [RO]; OOB eth0:10.0.0.1<0>",
            [("mlx5_0", 1, "RoCE"), ("mlx5_1", 1, "RoCE")],
        ),
        ("NET/IB : Using [0]mlx5_0:1:0:0/IB [RO]; OOB eth0:10.0.0.1<0>", [("mlx5_0", 1, "IB")]),
        (
            "NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP",
            [("mlx5_0", 1, "IB"), ("mlx5_1", 1, "IB")],
        ),
        ("NET/IB: [2] mlx5_2:uverbs2:1/RoCE provider=Mlx5 speed=400000 ar=0", [("mlx5_2", 1, "RoCE")]),
        ("NET/IB : Using [RO]; OOB eth0:10.0.4.51<0>", []),
    ):
        found = read(message).devices
        assert found == tuple(Device(name=name, port=port, link=link) for name, port, link in devices)


def test_channels_between_hosts() -> None:
    for message, expected in (
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
            "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA",
            {"direction": "receive", "network": "AWS Libfabric", "device": 0, "gpudirect": True},
        ),
    ):
        (channel,) = read(message).channels
        assert (channel.source, channel.target, channel.transport) == (1, 0, "NET")
        values = {"direction": "", "gpudirect": False, **expected}
        assert {name: getattr(channel, name) for name in values} == values


def test_channels_by_transport() -> None:
    for message, transport in (
        ("Ring 00 : 1[0] -> 0[1] via P2P/direct pointer", "P2P"),
        ("Channel 00/0 : 1[1] -> 0[0] via P2P/MNNVL", "P2P"),
        ("Channel 00/0 : 1[1] -> 0[0] via SHM/direct/direct", "SHM"),
        ("CollNet 00/0 : 1 -> 0 [send] via COLLNET/SHARP/0/GDRDMA", "COLLNET"),
        ("Channel 00/0 : 1[1] -> 0[0] via a new wire", ""),
    ):
        assert [channel.transport for channel in read(message).channels] == [transport]


def test_network_that_was_chosen() -> None:
    for messages, network in (
        (["Using network Socket", "NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>"], "Socket"),
        (["Initialized NET plugin IB", "Assigned NET plugin IB to comm"], "IB"),
        (["NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>"], "IB"),
        (["NET/IB : No device found.", "NET/Socket : Using [0]eth0:192.168.0.5<0>"], "Socket"),
    ):
        assert read(*messages).network == network


def test_gpudirect_lines() -> None:
    for message, everywhere, devices in (
        ("Connected all rings, use ring PXN 0 GDR 1", True, ()),
        (
            "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)",
            None,
            (("mlx5_0", False, "no module"),),
        ),
        ("NET/IB : GPU Direct RDMA Enabled for HCA 1 'mlx5_1'", None, (("mlx5_1", True, ""),)),
    ):
        found = read(message)
        assert (found.gpudirect_everywhere, found.gpudirect_devices) == (everywhere, devices)


def test_other_lines() -> None:
    assert read("NET/OFI Selected provider is efa, fabric is efa").provider == "efa"
    found = read("NET/Socket : Using [0]eth0:192.168.0.5<0> [1]ib0:10.1.0.5<0> [2]ens5:fe80::1%ens5<0>")
    assert found.interfaces == ("eth0", "ib0", "ens5")
    found = read("\x00\xff epoch 1 loss 0.1", "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0")
    assert [one.network for one in found.channels] == ["IB"]
    # Two ranks wrote into one line.
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
        *(b"ep_cfg[", b"inter-node cfg#1 tag(", b"rc_mlx5/mlx5_0:1", b"UCX  WARN "),
    ]
)


@given(st.lists(FRAGMENTS | st.binary(max_size=40), max_size=30))
def test_junk_never_raises(parts: list[bytes]) -> None:
    log = LogLines(rank=0, lines=tuple(b"".join(parts).decode(errors="replace").splitlines()))
    assert all(isinstance(one, Channel) for one in nccl_log(log).channels)
    connections(log)


def test_connections_of_ucx() -> None:
    for line, place, transports in (
        (
            "[1.2] [n1:7:0] ucp_worker.c:1720 UCX  INFO    ep_cfg[0]: tag(tcp/br0 tcp/lo)",
            "",
            "tcp/br0 tcp/lo",
        ),
        ("UCX  INFO    ep_cfg[3]: tag(rc_mlx5/mlx5_0:1); rma(rc_mlx5/mlx5_1:1)", "", "rc_mlx5/mlx5_0:1"),
        ("UCX  INFO  0x5 inter-node cfg#3 tag(rc_mlx5/m:1 tcp/e)", "inter-node", "rc_mlx5/m:1 tcp/e"),
        ("UCX  INFO    0x2d96740 intra-node cfg#2tag(sysv/memory) rma(a/b)", "intra-node", "sysv/memory"),
        ("UCX  INFO    perftest inter-node cfg#0 tag(rc_verbs/hns_2:1)", "inter-node", "rc_verbs/hns_2:1"),
        ("UCX  INFO  0x55c9 self cfg#0 tag(self/memory cma/memory)", "self", "self/memory cma/memory"),
        ("UCX  INFO  0x55c9 inter-node cfg#3 am(srd/rdmap0s6:1)", "inter-node", "srd/rdmap0s6:1"),
    ):
        (found,) = connections(LogLines(rank=0, lines=(line,)))
        assert found.place == place
        assert " ".join(f"{one.name}/{one.device}" for one in found.transports) == transports
