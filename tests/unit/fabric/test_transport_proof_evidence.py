"""Evidence goes through JSON and returns as it was."""

import json

from ringleader.dataclass_json import document, from_document
from ringleader.fabric.transport_proof.evidence import (
    CounterSnapshot,
    EngineTraffic,
    Exchanged,
    HostEvidence,
    LibraryTraffic,
    LogLines,
    MpiTransport,
    NetDeviceCounters,
    PortCounters,
)

FULL = HostEvidence(
    host="node1",
    ranks=(0, 1),
    gpus=2,
    before=CounterSnapshot(
        at=1.0,
        rdma_ports={
            "mlx5_0/1": PortCounters(
                values={"port_xmit_data": 1 << 40},
                unreadable={"port_rcv_data": "N/A (no PMA)"},
                link_layer="InfiniBand",
                node_type=1,
            )
        },
        net_devices={"eth0": NetDeviceCounters(values={"rx_bytes": 5}, kind="ethernet", lower=("eth1",))},
    ),
    traffic=EngineTraffic(
        peers={"node2": Exchanged(sent=1, received=2)}, libraries={"nccl": LibraryTraffic(handed=7)}
    ),
    nccl=(LogLines(rank=0, lines=("NCCL INFO Using network IB",)),),
    mpi=MpiTransport(family="Open MPI", btls=("self", "tcp")),
)


def test_evidence_survives_json() -> None:
    assert from_document(HostEvidence, json.loads(json.dumps(document(FULL)))) == FULL


def test_evidence_of_a_host_that_told_nothing() -> None:
    empty = from_document(HostEvidence, {"host": "node1"})
    assert empty.traffic is None and empty.before is None and empty.shared_with_others
