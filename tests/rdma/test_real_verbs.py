"""What is judged elsewhere by trees and logs written here, on verbs that the kernel makes: Soft-RoCE."""

import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.rdma.conftest import SLOW, UCX

from ringleader.lab import saved_state

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(1800)]

EXCHANGE = (sys.executable, str(Path(__file__).parent / "programs/exchange.py"))
PYTHON = f"cd {Path(__file__).parents[2]} && {sys.executable} -m ringleader"
EXPECTED = {"host.processors", "host.clock", "dev.soft", "host.memory", "limit.shm"}
"""What is said of such a machine rightly: one core, no chrony, a device in software, little memory."""


def run(ringleader: Any, lab: saved_state.Lab, folder: Path, *words: str, times: int = 2) -> tuple[Any, Any]:
    """Run the exchange on both machines; return how it ended, and its document."""
    written = folder / "out.json"
    where = ("--lab-name", lab.name, *SLOW, "--json-file", str(written))
    done = ringleader("run", *where, *words, "--", *EXCHANGE, str(times))
    return done, json.loads(written.read_text())


def doctor(ringleader: Any, lab: saved_state.Lab, folder: Path) -> list[dict[str, Any]]:
    """Return the doctor's results for both machines."""
    written = folder / "doctor.json"
    done = ringleader(
        "doctor", "--lab-name", lab.name, *SLOW, "--timeout", "900", "--json-file", str(written)
    )
    assert written.exists(), done.stderr
    return json.loads(written.read_text())["checks"]


def bad(results: list[dict[str, Any]]) -> dict[str, str]:
    return {one["id"]: one["seen"] for one in results if one["verdict"] in ("warn", "fail")}


def test_doctor(machines: saved_state.Lab, ringleader: Any, tmp_path: Path) -> None:
    """doctor: device, port, GIDs and MPI of both hosts are found, and nothing differs between them."""
    results = doctor(ringleader, machines, tmp_path)
    passed = {one["id"] for one in results if one["verdict"] == "pass"}
    wanted = "dev.chardev dev.rdma_cm port.state port.phys gid.v2 roce.address roce.netdev mpi.found mpi.ucx"
    assert {*wanted.split(), "limit.memlock", "hosts.same"} <= passed
    assert set(bad(results)) <= EXPECTED, bad(results)
    assert "over eth0" in bad(results)["dev.soft"]


def test_doctor_finds_faults_of_a_host(on: Any) -> None:
    """doctor: a GID index that does not exist, a port without an address, and a small memlock are found."""
    on(
        1,
        "ip link add v0 type veth peer v1 && ip addr add 10.9.9.1/24 dev v0 && ip link set v0 up &&"
        " ip link set v1 up && rdma link add rxe1 type rxe netdev v0 && ip addr del 10.9.9.1/24 dev v0",
    )
    try:
        limited = "setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock prlimit --memlock=65536"
        asked = PYTHON.replace("&& ", f"&& NCCL_IB_GID_INDEX=700 UCX_NET_DEVICES=mlx5_0:1 {limited} ")
        document = json.loads(on(1, f"{asked} doctor --start-timeout 3600 --json"))
    finally:
        on(1, "rdma link del rxe1; ip link del v0")
    found = [one for one in document["checks"] if one["verdict"] in ("warn", "fail")]
    by_id = {(one["id"], one["subject"]): one["seen"] for one in found}
    assert any(id == "gid.v2" and "rxe1" in subject + seen for (id, subject), seen in by_id.items()), by_id
    ids = {id for id, _ in by_id}
    assert {"limit.memlock", "env.ucx-devices", "gid.index"} <= ids, by_id


def test_doctor_finds_differences(
    machines: saved_state.Lab, on: Any, ringleader: Any, tmp_path: Path
) -> None:
    """doctor: another MTU and another memlock on one of two hosts are named as differences."""
    on(2, "ip link set eth0 mtu 1500 && prlimit --memlock=1048576 --pid 1")
    try:
        found = bad(doctor(ringleader, machines, tmp_path))
    finally:
        on(2, "ip link set eth0 mtu 9000 && prlimit --memlock=unlimited --pid 1")
    assert {"hosts.roce-mtu", "hosts.mtu", "hosts.memlock"} <= set(found), found
    assert "1500" in found["hosts.roce-mtu"] and "9000" in found["hosts.roce-mtu"]


def test_required_rdma_is_shown(machines: saved_state.Lab, ringleader: Any, tmp_path: Path) -> None:
    """run --require rdma: with our own settings alone, right sums; RoCE by the counters of rxe0 and eth0."""
    done, document = run(ringleader, machines, tmp_path, "--require", "rdma")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("right") == 2
    for host in document["proof"]["hosts"]:
        between = host["between"]
        assert between["shares"] == {"roce": 1.0} and not between["by_log_only"], between
        assert not between["contradictions"]
        packets = re.search(r"rxe0 port 1 moved ([\d,]+) packets, and eth0 ", " ".join(between["evidence"]))
        assert packets and int(packets[1].replace(",", "")) * 4096 >= between["exchanged"]
        assert "rc_verbs/rxe0:1" in " ".join(between["evidence"])


def test_required_tcp_is_refused(machines: saved_state.Lab, ringleader: Any, tmp_path: Path) -> None:
    """run --require tcp: refused with exit code 3, both hosts named, where the bytes went by verbs."""
    done, _ = run(ringleader, machines, tmp_path, *UCX, "--require", "tcp")
    assert done.returncode == 3, done.stderr
    for host in machines.hosts:
        assert f"{host.name}: to other hosts RDMA over Ethernet (RoCE) 100%" in done.stderr


def test_perftest(machines: saved_state.Lab, ringleader: Any, tmp_path: Path) -> None:
    """bench p2p --program ib_write_bw: perftest measures between the hosts, in both directions."""
    words = ("-b", "64K", "-e", "64K", "--seconds", "120", "--program", "ib_write_bw", "-o", str(tmp_path))
    done = ringleader("bench", "p2p", "--lab-name", machines.name, *SLOW, *words, "--name", "a")
    run = json.loads((tmp_path / "a/run.json").read_text())
    assert {(one["source"], one["target"]) for one in run["transfers"]} == {(0, 1), (1, 0)}, done.stdout
    assert all(one["rate"] > 0 for one in run["transfers"])


def test_a_cut_link_ends_the_job(machines: saved_state.Lab, ringleader: Any, tmp_path: Path) -> None:
    """run: a link that is cut while verbs are in use ends the job, and the host is named."""
    host = machines.hosts[1].name
    words = ("--lab-name", machines.name, *SLOW, "--lost-after", "30", "--output-dir", str(tmp_path / "o"))
    with ThreadPoolExecutor() as pool:
        job = pool.submit(ringleader, "run", *words, *UCX, "--", *EXCHANGE, "100000")
        try:
            while not (job.done() or any("summed" in one.read_text() for one in tmp_path.glob("o/**/*out*"))):
                time.sleep(1)
            assert ringleader("lab", "cut", host, "--name", machines.name).returncode == 0
            ended = job.result(900)
        finally:
            assert ringleader("lab", "heal", host, "--name", machines.name).returncode == 0
    assert ended.returncode not in (0, 2) and host in ended.stderr, ended
