"""Logs of NCCL and UCX: whose variables count, and what is read of the files."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from ringleader.agents import kernel_log
from ringleader.agents.rank_evidence import (
    FILE_VARIABLES,
    LEVEL_VARIABLES,
    MOST_LINES,
    LibraryLogs,
    RankEvidence,
)
from ringleader.plan.job import Family, Host, Job, Mpi
from ringleader.plan.rank_placement import HostFacts, RdmaPort, place
from ringleader.render.rank_environment import library_log_variables

NCCL = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "{directory}/nccl.0.%h.%p.log"}
UCX = {"UCX_LOG_LEVEL": "info", "UCX_LOG_FILE": "{directory}/ucx.0.%h.%p.log"}


def logs(tmp_path: Path, wanted: dict[str, dict[str, str]]) -> LibraryLogs:
    return LibraryLogs(wanted, str(tmp_path), root="")


def test_nobody_asked_for_a_log(tmp_path: Path) -> None:
    own, env = logs(tmp_path, {"nccl": NCCL}), {"HOME": str(tmp_path)}
    own.add_to(env, 0.0)
    assert env["NCCL_DEBUG"] == "INFO"
    for theirs in ({"NCCL_DEBUG": "WARN"}, {"NCCL_DEBUG": ""}):
        other, known = logs(tmp_path, {"nccl": NCCL}), dict(theirs)
        other.add_to(known, 0.0)
        assert (known, other.read()) == (theirs, {}), "the user asked for one"
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.nccl.conf").write_text("# mine\nNCCL_DEBUG=VERSION\n")
    known = {"HOME": str(tmp_path / "home")}
    logs(tmp_path, {"nccl": NCCL}).add_to(known, 0.0)
    assert "NCCL_DEBUG" not in known, "their nccl.conf counts"
    assert env["NCCL_DEBUG_FILE"] == f"{tmp_path}/nccl.0.%h.%p.log"
    Path(tmp_path, f"nccl.0.{socket.gethostname()}.17.log").write_text(
        "h:17:18 [0] NCCL INFO Using network IB\nh:17:18 [0] NCCL INFO nothing of interest\n"
    )
    Path(tmp_path, f"nccl.1.{socket.gethostname()}.19.log").write_text("NCCL INFO Using network Socket\n")
    assert own.read() == {"nccl": {"lines": ["h:17:18 [0] NCCL INFO Using network IB"], "left_out": 0}}


def test_the_file_of_the_user_is_read_and_left_alone(tmp_path: Path) -> None:
    own = logs(tmp_path / "job", {"nccl": NCCL})
    env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(tmp_path / "mine.%p.txt")}
    own.add_to(env, 0.0)
    assert set(env) == {"NCCL_DEBUG", "NCCL_DEBUG_FILE"}
    written = tmp_path / "mine.5.txt"
    written.write_text("NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n")
    (tmp_path / "mine.6.txt").symlink_to(written)
    os.mkfifo(tmp_path / "mine.7.txt")
    assert len(own.read()["nccl"]["lines"]) == 1
    assert written.exists()


@pytest.mark.parametrize("rdma", [True, False])
def test_ucx_only_where_there_is_rdma(tmp_path: Path, rdma: bool) -> None:
    if rdma:
        (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    env: dict[str, str] = {}
    LibraryLogs({"ucx": UCX}, "/job", root=str(tmp_path)).add_to(env, 0.0)
    assert ("UCX_LOG_FILE" in env) == rdma


def test_warnings_of_ucx_reach_the_user(tmp_path: Path) -> None:
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    (tmp_path / "job").mkdir()
    own = LibraryLogs({"ucx": UCX}, "/job", root=str(tmp_path))
    own.add_to({}, 0.0)
    warning = "[1] [h:5] parser.c:1 UCX  WARN  unused environment variable: UCX_X"
    (tmp_path / f"job/ucx.0.{socket.gethostname()}.5.log").write_text(
        f"{warning}\n[1] [h:5] ucp_worker.c:1 UCX  INFO  ep_cfg[0]: tag(rc_mlx5/mlx5_0:1)\n"
    )
    found = own.read()
    assert len(found["ucx"]["lines"]) == 2
    assert list(own.for_the_user(found)) == [warning]


@pytest.mark.parametrize(
    ("pattern", "name", "is_ours"),
    [
        ("log.%h.%p.txt", "log.{short}.5.txt", True),
        ("log.%h.%p.txt", "log.elsewhere.5.txt", False),
        ("%p.log", "5.log", True),
        ("log", "log.5", False),
    ],
)
def test_names_of_files(tmp_path: Path, pattern: str, name: str, is_ours: bool) -> None:
    full = socket.gethostname()
    written = tmp_path / name.format(full=full, short=full.partition(".")[0])
    own = logs(tmp_path, {"nccl": NCCL})
    own.add_to({"NCCL_DEBUG_FILE": str(tmp_path / pattern)}, 2000.0)
    written.write_text("NCCL INFO Using network IB\n")
    assert bool(own.read()) == is_ours
    os.utime(written, (1000, 1000))
    assert not own.read(), "a file from before the job is not its log"


def test_a_long_log_is_cut(tmp_path: Path) -> None:
    own = logs(tmp_path, {"nccl": NCCL})
    own.add_to({}, 0.0)
    Path(tmp_path, f"nccl.0.{socket.gethostname()}.1.log").write_text("NCCL INFO a via NET/IB/0\n" * 5000)
    found = own.read()["nccl"]
    assert len(found["lines"]) == MOST_LINES and found["left_out"] == 5000 - MOST_LINES


def test_what_goes_wrong_is_told() -> None:
    evidence = RankEvidence()
    evidence.inspect({"/usr/lib/libmpi.so.40", "/dev/nvidia0", "/usr/lib/libc.so.6"})
    assert evidence.end()[0] == {"by_memory": ["libmpi.so.40", "nvidia0"]}
    evidence = RankEvidence()
    evidence.begin({}, {}, "/nowhere")
    assert evidence.end() == ({}, b"")
    evidence = RankEvidence()
    evidence.begin({"logs": {"unknown": {}}}, {}, "/nowhere")
    found, for_the_user = evidence.end()
    assert "before the start: KeyError" in found["missing"] and for_the_user == b""


def test_which_libraries_are_asked():
    port = (RdmaPort(device="mlx5_0", port=1),)
    for hosts, gpus, rdma, family, libraries in (
        (1, ("0",), (), Family.OPENMPI5, ["nccl"]),
        (2, (), port, Family.OPENMPI5, ["ucx"]),
        (2, (), port, Family.INTEL, []),
        (1, (), port, Family.OPENMPI5, []),
    ):
        here = {"is_local": False, "cpus": (0,), "gpus": gpus, "rdma": rdma}
        names = [Host(name=f"h{number}", slots=1) for number in range(hosts)]
        facts = [HostFacts(host=one, hostname=one.name, identity=one.name, **here) for one in names]
        plan = place(Job(command=("x",), hosts=tuple(names)), facts)
        found = library_log_variables(
            plan, plan.ranks[-1], Mpi(family=family, version="1", mpirun="/m", library="")
        )
        assert list(found) == libraries
        for library, variables in found.items():
            assert {FILE_VARIABLES[library], LEVEL_VARIABLES[library]} <= set(variables)
            assert f".{hosts - 1}.%h.%p." in variables[FILE_VARIABLES[library]]


class Launcher:
    """Keeps what an agent says; ``pending``: bytes that it has not taken yet."""

    def __init__(self, pending: int = 0) -> None:
        self.pending, self.said = pending, list[dict[str, Any]]()

    def say(self, **words: Any) -> None:
        self.said.append(words)


def sampled(wanted: dict[str, Any], pending: int = 0) -> tuple[RankEvidence, list[dict[str, Any]]]:
    evidence, launcher = RankEvidence(), Launcher(pending)
    with pytest.MonkeyPatch.context() as patch:  # a machine whose kernel log this user may not read
        patch.setattr(kernel_log.HostWatch, "is_needed", False)
        evidence.begin({"counters": True, **wanted}, {}, "/nowhere")
    evidence._watch = None
    for _ in range(2):
        evidence.sample(launcher)
    return evidence, launcher.said


def test_samples_are_sent_where_they_are_asked_for() -> None:
    evidence, said = sampled({"sample_seconds": 60})
    assert [words["do"] for words in said] == ["host_sample"] * 2
    assert all(len(both) == 2 for both in said[0]["interfaces"].values()) and "lo" in said[0]["interfaces"]
    assert 0 <= said[0]["at"] <= said[1]["at"] and evidence.sample_at is not None


def test_no_samples_where_nobody_asks_or_reads_them() -> None:
    assert sampled({})[1] == [], "the kernel's log is watched, where it can be read"
    assert sampled({"sample_seconds": 0})[1] == []
    assert sampled({"sample_seconds": 1, "counters": False})[1] == []
    assert sampled({"sample_seconds": 1}, pending=2 << 20)[1] == []
