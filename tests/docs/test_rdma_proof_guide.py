"""The guide "Is my job really on RDMA?": its lines are those that we print; test_docs runs its commands."""

import pytest
from tests.docs.pages import text_of
from tests.unit.fabric.transport_evidence import between, host

from ringleader.fabric.transport_proof.judged_transport import judged_transport
from ringleader.fabric.transport_proof.proof import lines


@pytest.mark.parametrize("page", ["is-my-job-on-rdma.md", "is-my-job-on-rdma.zh-CN.md"])
def test_lines_are_written_as_we_print_them(page: str) -> None:
    text = text_of(f"docs/guides/{page}")
    printed = [
        *lines(judged_transport([host({"eth0": 258}, name="h1", mpi=between(256)), host(name="h2")])),
        *lines(judged_transport([host({"ib": 0, "eth0": 900}, mpi=between(256, 512)), host(name="h2")])),
        *lines(judged_transport([host({"ib0": 260, "ib": 262}, mpi=between(256)), host(name="h2")])),
    ]
    assert f"ringleader: {printed[0]}\n" in text
    for part in ("of which the engine's", "others used it as well", "although there is mlx5_0 port 1"):
        assert part in text and any(part in line for line in printed), part
    sockets = "TCP over InfiniBand (IPoIB)"
    assert sockets in text and any(sockets in line for line in printed)
