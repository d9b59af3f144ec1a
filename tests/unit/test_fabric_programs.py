"""perftest and ucx_perftest, played by scripts: argv, the wait for the port, results, ways to fail."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.interpreter import write_program

from ringleader.bench import fabric_pair_program
from ringleader.bench.fabric_programs import (
    LISTEN_SECONDS,
    RdmaPort,
    StartedServer,
    active_port,
    argv_of,
    available,
    result_of,
    run_client,
    run_server,
)
from ringleader.bench.program_commands import ProgramPlan, ProgramRun

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
    if "client.garbles" not in open({mode!r}).read():
        print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
        print(" 1048576    1126           0.00               98.42              0.011732")
else:
    with socket.create_server(("", port)) as server:
        server.accept()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A program called ib_write_bw; returns the file whose words make it fail."""
    mode = tmp_path / "mode"
    mode.write_text("")
    script = tmp_path / "ib_write_bw"
    write_program(script, SERVER.format(mode=str(mode)), "-IS")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return mode


def both(deadline=30.0):
    with run_server("ib_write_bw", seconds=1.0) as server:
        if not server.port:
            return server.error
        return run_client(
            "ib_write_bw", address="localhost", port=server.port, seconds=1.0, deadline=deadline
        )


@pytest.mark.process
def test_a_client_measures_with_a_server_that_listens(program):
    assert both() == {"rate": pytest.approx(98.42e9), "message_bytes": 1048576, "device": ""}


@pytest.mark.process
@pytest.mark.parametrize(
    ("mode", "deadline", "word"),
    [
        ("server.fails", 30.0, "it ended with 1; Unable to open file descriptor"),
        ("client.hangs", 0.5, "it did not end within"),
        ("client.garbles", 30.0, "its output cannot be read: no row"),
    ],
)
def test_each_failure_has_its_reason(program, mode, deadline, word):
    program.write_text(mode)
    found = both(deadline)
    assert word in (found if isinstance(found, str) else found["error"])


@pytest.mark.process
def test_a_program_that_is_not_there_is_an_error():
    with run_server("ringleader_no_such_program", seconds=1.0) as server:
        assert server.port == 0 and "cannot be started" in server.error
    found = run_client("ringleader_no_such_program", address="x", port=1, seconds=1.0, deadline=1.0)
    assert "cannot be started" in found["error"]


def rdma_host(root: Path, *, state="4: ACTIVE", link_layer="Ethernet"):
    place = root / "sys/class/infiniband/mlx5_0/ports/1"
    (place / "gid_attrs/types").mkdir(parents=True)
    (place / "gids").mkdir()
    (place / "state").write_text(f"{state}\n")
    (place / "link_layer").write_text(f"{link_layer}\n")
    rows = [("fe80:", "IB/RoCE v1"), ("fe80:", "RoCE v2"), ("0000:0000:0000:0000:0000:ffff:", "RoCE v2")]
    for index, (prefix, kind) in enumerate(rows):
        (place / "gid_attrs/types" / str(index)).write_text(f"{kind}\n")
        (place / "gids" / str(index)).write_text(f"{prefix}0a00:0001\n")


def test_the_first_active_port_is_used_with_its_routable_address(tmp_path: Path):
    rdma_host(tmp_path)
    assert active_port(tmp_path) == RdmaPort(device="mlx5_0", port=1, gid_index=2)


def test_infiniband_needs_no_address_and_a_port_that_is_down_is_none(tmp_path: Path):
    rdma_host(tmp_path / "ib", link_layer="InfiniBand")
    assert active_port(tmp_path / "ib") == RdmaPort(device="mlx5_0", port=1)
    rdma_host(tmp_path / "down", state="1: DOWN")
    assert active_port(tmp_path / "down") is None


def test_what_a_host_can_run_depends_on_its_device_and_its_programs(tmp_path: Path):
    nothing = {"PATH": str(tmp_path)}
    assert available(tmp_path, nothing)["program_note"] == "no RDMA device with an active port"
    rdma_host(tmp_path)
    assert available(tmp_path, nothing)["program_note"] == "perftest and ucx_perftest are not installed"
    for name in ("ib_write_bw", "ucx_perftest"):
        (tmp_path / name).touch(mode=0o755)
    found = available(tmp_path, nothing)
    assert found["programs"] == ["ib_write_bw", "ucx_perftest tag_bw", "ucx_perftest tag_lat"]
    assert (found["rdma_device"], found["program_note"]) == ("mlx5_0", "")


def test_commands_of_server_and_client():
    roce = RdmaPort(device="mlx5_1", port=1, gid_index=3)
    server = argv_of("ib_write_bw", 4711, 2.0, roce)
    assert " ".join(server) == "ib_write_bw -d mlx5_1 -i 1 -x 3 -p 4711 -F -s 1048576 -D 5 --report_gbits"
    assert argv_of("ib_write_bw", 4711, 2.0, roce, "h2") == (*server, "h2")
    assert argv_of("ib_send_lat", 9, 2.0, None, "h2") == ("ib_send_lat", "-p", "9", "-F", "-n", "1000", "h2")
    assert argv_of("ucx_perftest tag_bw", 9, 2.0, roce) == ("ucx_perftest", "-p", "9")
    client = argv_of("ucx_perftest tag_bw", 9, 2.0, roce, "h2")
    assert " ".join(client) == "ucx_perftest h2 -p 9 -t tag_bw -s 1048576 -n 500"


def test_what_is_no_result_is_refused():
    for program in ("ib_write_bw", "ib_send_lat", "ucx_perftest tag_bw", "ucx_perftest tag_lat"):
        with pytest.raises(ValueError, match=r"."):
            result_of(program, "Couldn't connect to h2:18515")


def test_a_pair_keeps_ucx_perftest_to_the_rdma_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    environs: list[dict[str, str]] = []
    waited: list[float] = []

    @contextlib.contextmanager
    def served(argv_at: Any, *, environ: dict[str, str], seconds: float) -> Iterator[StartedServer]:
        environs.append(environ)
        waited.append(seconds)
        yield StartedServer(port=5)

    def ran(argv: Any, *, environ: dict[str, str], deadline: float) -> tuple[str, str]:
        environs.append(environ)
        return "printed", ""

    monkeypatch.setattr(fabric_pair_program, "serve", served)
    monkeypatch.setattr(fabric_pair_program, "run_to_end", ran)
    monkeypatch.setattr(fabric_pair_program, "send", lambda name, value: None)
    plan = ProgramPlan(
        program="ucx_perftest",
        path="ucx_perftest",
        rounds=(((0, 1),),),
        runs=(ProgramRun(test="tag_lat", sizes=(8,)),),
        addresses=(("0", "10.0.0.1"), ("1", "10.0.0.2")),
        run_seconds=60.0,
        patience=5.0,
    )
    messages = SimpleNamespace(exchange=lambda *words, **named: 5)
    for rank in (0, 1):
        device = RdmaPort(device="rxe0", port=1)
        fabric_pair_program.ProgramRounds(plan, messages, rank, device).run(time.monotonic())
    assert [one["UCX_NET_DEVICES"] for one in environs] == ["rxe0:1", "rxe0:1"]
    assert waited == [5 * LISTEN_SECONDS]
