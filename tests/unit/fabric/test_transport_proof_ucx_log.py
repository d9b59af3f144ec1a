"""Lines of UCX, Open MPI and libfabric, and junk."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringleader.fabric.transport_proof.ucx_log import MOST_LINES, UcxLog, parsed, relevant_lines


def read(text: str) -> UcxLog:
    return parsed(relevant_lines([text.encode()]))


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
    (found,) = read(line + "\n").connections
    assert found.place == place
    assert [f"{one.name}/{one.device}" for one in found.transports] == transports


TABLE = """\
[n1:7:0] | 0x1 inter-node cfg#3 | tagged message by ucp_tag_send*(multi) from cuda/GPU0 |
[n1:7:0] |        0..8246 | eager short                               | rc_mlx5/mlx5_0:1 |
[n1:7:0] |     17298..inf | (?) rendezvous zero-copy read from remote | rc_mlx5/mlx5_0:1 |
[n1:7:0] | 0x1 inter-node cfg#3 | tagged message by ucp_tag_send* from host memory |
[n1:7:0] |     17298..inf | (?) rendezvous zero-copy read from remote | rc_mlx5/mlx5_0:1 |
[n1:7:0] | 0x1 inter-node cfg#3 | tagged message by ucp_tag_send* from cuda/GPU0 |
[n1:7:0] |       9000..10 | rendezvous pipeline, cuda_copy | rc_mlx5/mlx5_0:1 |
"""


def test_tables_of_protocols() -> None:
    assert [(one.memory, one.first, one.last, one.protocol) for one in read(TABLE).rows] == [
        ("cuda/GPU0", 0, 8246, "eager short"),
        ("cuda/GPU0", 17298, None, "rendezvous zero-copy read from remote"),
        ("host memory", 17298, None, "rendezvous zero-copy read from remote"),
        ("cuda/GPU0", 9000, 10, "rendezvous pipeline, cuda_copy"),
    ]


BY_UCX_1_20 = """\
[vm:7:0] +--------------------------------+------------------------------------------------------------+
[vm:7:0] | ucp_context_0 intra-node cfg#1 | tagged message by ucp_tag_send*(fast-completion) from host memory|
[vm:7:0] +--------------------------------+-----------------------------------+------------------------+
[vm:7:0] |                        0..8184 | eager short                       | sysv/memory            |
[vm:7:0] |                      256K..inf | (?) rendezvous zero-copy flushed  | cma/memory             |
"""


def test_sizes_with_units() -> None:
    assert [(one.place, one.first, one.last, one.transports) for one in read(BY_UCX_1_20).rows] == [
        ("intra-node", 0, 8184, "sysv/memory"),
        ("intra-node", 256 << 10, None, "cma/memory"),
    ]


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("[n1:7] select: component ob1 selected", "pml", "ob1"),
        ("[n1:7] select: component ucx selected", "pml", "ucx"),
        ("mca: bml: Using tcp btl for send to [[1,1],1] on node n2", "btls", ("tcp",)),
        ("[0] MPI startup(): libfabric provider: tcp", "provider", "tcp"),
        ("[0] MPI startup(): libfabric provider: verbs;ofi_rxm", "provider", "verbs;ofi_rxm"),
        (
            "UCX  WARN  network device 'mlx5_9:1' is not available, please use one or more of: 'eth0'(tcp)",
            "warnings",
            ("network device 'mlx5_9:1' is not available, please use one or more of: 'eth0'(tcp)",),
        ),
        (
            "common_ucx.c:332 tcp/eth0: did not match transport list",
            "refused",
            ("common_ucx.c:332 tcp/eth0: did not match transport list",),
        ),
        ("step 1 of 2", "pml", ""),
    ],
)
def test_single_lines(line: str, field: str, value: object) -> None:
    assert getattr(read(line + "\n"), field) == value


def test_lines_are_bounded_and_the_rest_is_counted() -> None:
    log = relevant_lines(f"UCX  WARN  number {count}\n".encode() for count in range(MOST_LINES + 3))
    assert len(log.lines) == MOST_LINES and log.left_out == 3


FRAGMENTS = st.sampled_from(
    [
        b"ep_cfg[",
        b"inter-node cfg#1 tag(",
        b"| 0..inf |",
        b"select: component ",
        b"\n",
        b"from cuda/GPU0 |",
        b"UCX  WARN ",
    ]
)


@settings(max_examples=50, deadline=None)
@given(st.lists(FRAGMENTS | st.binary(max_size=40), max_size=30))
def test_junk_never_raises(parts: list[bytes]) -> None:
    parsed(relevant_lines(parts))
