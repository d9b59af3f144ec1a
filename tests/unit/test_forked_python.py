"""What stands in for a Python, and the server that forks for it: whoever is killed, the others continue."""

import array
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from tests.fork_server import ForkServer
from tests.time_limits import until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server() -> ForkServer:
    return ForkServer("json")


def run(server: ForkServer, program: Path) -> str:
    return subprocess.run(server.command(str(program)), capture_output=True, text=True, timeout=20).stdout


def state(pid: int) -> str:
    """Return the letter that the kernel has for a process, nothing for one that has ended."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if letter in "ZX" else letter


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    program = tmp_path / "hello.py"
    program.write_text("print('hello')\n")
    return program


@pytest.mark.parametrize("sent", ["nothing", "half", "all"])
def test_a_stand_in_that_is_killed_does_not_take_the_server_along(
    server: ForkServer, hello: Path, sent: str
) -> None:
    path = server.command(str(hello))[-2]
    command = {"argv": [str(hello)], "cwd": "/", "env": {}, "cpus": [*os.sched_getaffinity(0)]}
    with Path(os.devnull).open() as null, socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        if sent != "nothing":
            streams = array.array("i", [null.fileno()] * 3)
            line.sendmsg([b" "], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        if sent == "all":
            line.sendall(json.dumps(command).encode() + b"\n")
    assert run(server, hello) == "hello\n"


def test_a_server_that_has_ended_is_started_again(hello: Path) -> None:
    server = ForkServer("json")
    assert run(server, hello) == "hello\n"
    server._server.kill()
    server._server.wait()
    assert run(server, hello) == "hello\n"


def test_what_a_killed_program_has_started_is_killed_too(server: ForkServer, tmp_path: Path) -> None:
    program = tmp_path / "starts.py"
    program.write_text(
        "import os, subprocess\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(os.getpid(), child.pid, flush=True)\n"
        "child.wait()\n"
    )
    with subprocess.Popen(server.command(str(program)), stdout=subprocess.PIPE, text=True) as process:
        pids = [int(word) for word in process.stdout.readline().split()]
        process.kill()
    until(lambda: not any(map(state, pids)))


def test_signals_are_passed_on(server: ForkServer, tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text(
        "import os, signal\n"
        "signal.signal(signal.SIGQUIT, lambda *_: os._exit(7))\n"
        "print(os.getpid(), flush=True)\n"
        "while True: signal.pause()\n"
    )
    with subprocess.Popen(server.command(str(program)), stdout=subprocess.PIPE, text=True) as process:
        pid = int(process.stdout.readline())
        try:
            process.send_signal(signal.SIGTSTP)
            until(lambda: state(pid) == "T")
            process.send_signal(signal.SIGCONT)
            until(lambda: state(pid) == "S")
            process.send_signal(signal.SIGQUIT)
            assert process.wait(20) == 7
        finally:
            process.kill()
