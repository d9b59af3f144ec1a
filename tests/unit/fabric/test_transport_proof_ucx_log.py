"""Lines of UCX, and junk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.fabric.transport_proof.evidence import LogLines
from ringleader.fabric.transport_proof.library_logs import Connection, connections


def read(*lines: str) -> tuple[Connection, ...]:
    return connections(LogLines(rank=0, lines=lines))


@pytest.mark.parametrize(
    ("line", "place", "transports"),
    [
        (
            "[1.2] [n1:7:0] ucp_worker.c:1720 UCX  INFO    ep_cfg[0]: tag(tcp/br0 tcp/lo)",
            "",
            ["tcp/br0", "tcp/lo"],
        ),
        ("UCX  INFO    ep_cfg[1]: tag(sysv/memory cma/memory)", "", ["sysv/memory", "cma/memory"]),
        ("UCX  INFO    ep_cfg[3]: tag(rc_mlx5/mlx5_0:1); rma(rc_mlx5/mlx5_1:1)", "", ["rc_mlx5/mlx5_0:1"]),
        (
            "UCX  INFO  0x55c9 inter-node cfg#3 tag(rc_mlx5/mlx5_0:1 rc_mlx5/mlx5_1:1)",
            "inter-node",
            ["rc_mlx5/mlx5_0:1", "rc_mlx5/mlx5_1:1"],
        ),
        (
            "UCX  INFO  0x55c9 intra-node cfg#1 tag(sysv/memory cma/memory)",
            "intra-node",
            ["sysv/memory", "cma/memory"],
        ),
        (
            "UCX  INFO    0x2d96740 intra-node cfg#2tag(sysv/memory) rma(sysv/memory)",
            "intra-node",
            ["sysv/memory"],
        ),
        ("UCX  INFO    perftest inter-node cfg#0 tag(rc_verbs/hns_2:1)", "inter-node", ["rc_verbs/hns_2:1"]),
        ("UCX  INFO  0x55c9 self cfg#0 tag(self/memory cma/memory)", "self", ["self/memory", "cma/memory"]),
        ("UCX  INFO  0x55c9 inter-node cfg#3 am(srd/rdmap0s6:1)", "inter-node", ["srd/rdmap0s6:1"]),
    ],
)
def test_connections(line: str, place: str, transports: list[str]) -> None:
    (found,) = read(line)
    assert found.place == place
    assert [f"{one.name}/{one.device}" for one in found.transports] == transports


FRAGMENTS = st.sampled_from([b"ep_cfg[", b"inter-node cfg#1 tag(", b"rc_mlx5/mlx5_0:1", b"\n", b"UCX  WARN "])


@given(st.lists(FRAGMENTS | st.binary(max_size=40), max_size=30))
def test_junk_never_raises(parts: list[bytes]) -> None:
    read(*b"".join(parts).decode(errors="replace").splitlines())
