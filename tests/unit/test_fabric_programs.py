"""perftest and ucx_perftest, played by scripts: argv, the wait for the port, results, ways to fail."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.interpreter import write_program

from ringleader.bench.fabric_programs import HostPrograms, run_to_end, serve
from ringleader.bench.pair_plan import PairPlan, ProgramRun
from ringleader.bench.program_commands import command

SERVER = """\
import socket, sys, time
words = sys.argv[1:]
port = int(words[words.index("-p") + 1])
if "server.fails" in open({mode!r}).read():
    sys.exit("Unable to open file descriptor for socket connection")
if words[-1] == "localhost":
    made = socket.create_connection(("127.0.0.1", port), 5)
    if "client.hangs" in open({mode!r}).read():
        time.sleep(60)
    print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
    print(" 1048576    1126           0.00               98.42              0.011732")
else:
    with socket.create_server(("", port)) as server:
        server.accept()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mode = tmp_path / "mode"
    mode.write_text("")
    script = tmp_path / "ib_write_bw"
    write_program(script, SERVER.format(mode=str(mode)), "-IS")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return mode


RUN = ProgramRun(test="ib_write_bw", sizes=(1048576,))


def both(deadline=30.0):
    """Return what the client printed, and why there is nothing of the server or the client."""
    environ = dict(os.environ)
    with serve(lambda port: command("ib_write_bw", RUN, port, None), environ=environ) as server:
        if not server.port:
            return "", server.error
        argv = command("ib_write_bw", RUN, server.port, None, "localhost")
        return run_to_end(argv, environ=environ, deadline=deadline)


@pytest.mark.process
@pytest.mark.parametrize(
    ("mode", "deadline", "printed", "error"),
    [
        ("", 30.0, "98.42", ""),
        ("server.fails", 30.0, "", "it ended with 1; Unable to open file descriptor"),
        ("client.hangs", 0.5, "", "it did not end within"),
    ],
)
def test_a_client_measures_with_a_server_that_listens_or_there_is_a_reason(
    program, mode, deadline, printed, error
):
    program.write_text(mode)
    argv = ("ringleader_no_such_program",)
    assert "cannot be started" in run_to_end(argv, environ=dict(os.environ), deadline=1.0)[1]
    found, why = both(deadline)
    assert printed in found and error in why and bool(error) == bool(why)


def rdma_host(root: Path, *names: str, state="4: ACTIVE", link_layer="Ethernet"):
    """Make RDMA devices with one port each."""
    for number, name in enumerate(names or ("mlx5_0",)):
        place = root / f"sys/class/infiniband/{name}/ports/1"
        (place / "gid_attrs/types").mkdir(parents=True)
        (place / "gids").mkdir()
        (place / "state").write_text(f"{state}\n")
        (place / "link_layer").write_text(f"{link_layer}\n")
        rows = [("fe80:", "IB/RoCE v1"), ("fe80:", "RoCE v2"), ("0000:0000:0000:0000:0000:ffff:", "RoCE v2")]
        for index, (prefix, kind) in enumerate(rows):
            (place / "gid_attrs/types" / str(index)).write_text(f"{kind}\n")
            (place / "gids" / str(index)).write_text(f"{prefix}0a00:0001\n")
        verbs = root / f"sys/class/infiniband_verbs/uverbs{number}"
        verbs.mkdir(parents=True)
        (verbs / "ibdev").write_text(f"{name}\n")
        (root / "dev/infiniband").mkdir(parents=True, exist_ok=True)
        (root / f"dev/infiniband/uverbs{number}").touch()


def plan_of(*runs: ProgramRun, **more: Any) -> PairPlan:
    return PairPlan(rounds=(((0, 1),),), sizes=(8,), runs=runs or (RUN,), **more)


@pytest.mark.parametrize(
    ("link_layer", "words"),
    [("Ethernet", "-d mlx5_0 -i 1 -x 2 -p 4711"), ("InfiniBand", "-d mlx5_0 -i 1 -p 4711")],
)
def test_the_first_active_port_is_used_with_its_routable_address(tmp_path: Path, link_layer, words):
    rdma_host(tmp_path, link_layer=link_layer)
    here = HostPrograms(plan_of(), tmp_path)
    server = command("ib_write_bw", RUN, 4711, here.port(RUN))
    assert " ".join(server) == f"ib_write_bw {words} -F -n 1000 -s 1048576 --report_gbits"


def test_each_rail_has_its_port_and_one_that_was_asked_for_is_the_only_one(tmp_path: Path):
    rdma_host(tmp_path, "mlx5_2", "mlx5_10")
    names = [HostPrograms(plan_of(), tmp_path).port(replace(RUN, rail=rail)) for rail in (0, 1, 2)]
    assert [one.name if one else None for one in names] == ["mlx5_2:1", "mlx5_10:1", None]
    asked = HostPrograms(plan_of(port="mlx5_10"), tmp_path)
    assert asked.port(RUN).name == "mlx5_10:1" and HostPrograms(plan_of(port="x"), tmp_path).port(RUN) is None


def test_a_port_chosen_before_keeps_its_name_when_another_one_goes_down(tmp_path: Path, monkeypatch):
    rdma_host(tmp_path, "mlx5_1")  # mlx5_0 is no longer there, so that mlx5_1 is the first one now
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "ucx_perftest").touch(mode=0o755)
    run = ProgramRun(test="tag_bw", sizes=(8,))
    plan = plan_of(replace(run, rail=1), ports=(("3", "mlx5_0:1", "mlx5_1:1"),))
    here = HostPrograms(plan, tmp_path, rank=3)
    assert here.port(replace(run, rail=1)).name == "mlx5_1:1" and here.port(run) is None
    assert not here.why_not()
    lacks = "there is no RDMA device mlx5_0:1 with an active port, and tag_bw needs one"
    assert HostPrograms(replace(plan, runs=(run,)), tmp_path, rank=3).why_not() == lacks


def test_what_a_host_lacks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert HostPrograms(plan_of(), tmp_path).why_not() == "ib_write_bw is not installed"
    for name in ("ib_write_bw", "ucx_perftest"):
        (tmp_path / name).touch(mode=0o755)
    lacks = "there is no RDMA device with an active port, and ib_write_bw needs one"
    assert HostPrograms(plan_of(), tmp_path).why_not() == lacks
    rdma_host(tmp_path / "down", state="1: DOWN")
    assert HostPrograms(plan_of(), tmp_path / "down").why_not() == lacks
    assert not HostPrograms(plan_of(ProgramRun(test="tag_bw", sizes=(8,))), tmp_path).why_not()
    rdma_host(tmp_path)
    assert not HostPrograms(plan_of(), tmp_path).why_not()
    assert "no GPU" in HostPrograms(plan_of(memory="cuda"), tmp_path).why_not()


def test_messages_lie_in_the_memory_of_the_gpu_next_to_the_port(tmp_path: Path, monkeypatch):
    rdma_host(tmp_path)
    devices = tmp_path / "sys/bus/pci/devices"
    for number in range(2):
        gpu = devices / f"0000:0{number + 1}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "class").write_text("0x030200\n")
        (gpu / "vendor").write_text("0x10de\n")
    here = HostPrograms(plan_of(memory="cuda"), tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert here.gpu(RUN) == 0 and HostPrograms(plan_of(), tmp_path).gpu(RUN) is None
    assert "CUDA_VISIBLE_DEVICES" not in here.environ(RUN)
    client = command("ib_write_bw", RUN, 9, here.port(RUN), "h2", here.gpu(RUN))
    assert client[-2:] == ("--use_cuda=0", "h2")
