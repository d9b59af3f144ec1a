"""How a process ends that was forked from one that has imported what ranks need."""

import os
import subprocess
import sys
import textwrap

import pytest

from ringleader.agents.fork_server_control import RESTARTS, ForkServerProcess

MODULE = """
    import ctypes, os

    libc = ctypes.CDLL(None)
    libc.strdup.restype = ctypes.c_void_p
    words = libc.strdup(b"{name}: destructor of a library")
    libc.__cxa_atexit(libc.puts, ctypes.c_void_p(words), None)

    class Kept:
        def __init__(self, fd_write):
            self.write = fd_write
        def __del__(self):
            self.write(1, b"{name}: object destroyed\\n")

    kept = Kept(os.write)
"""
PROGRAM = """
    import os, sys
    from ringleader.agents.fork_server import import_all

    assert import_all(["before"]) == {}
    if pid := os.fork():
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    import after
    import atexit
    atexit.register(after.libc.printf, b"exit handler, from a buffer of C\\n")
    file = open("file", "w")
    file.write("written")
    raise ValueError("told")
"""


@pytest.mark.process
def test_a_forked_process_ends_as_python_does_but_for_what_was_there_before(tmp_path):
    for name in ("before", "after"):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(MODULE.format(name=name)))
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    words, env = [sys.executable, "program.py"], {**os.environ}
    env.pop("PYTHONUNBUFFERED", None)  # which C's buffers take for themselves, too
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60)
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: told\n")
    assert done.stdout.splitlines() == [
        "after: object destroyed",
        "exit handler, from a buffer of C",
        "after: destructor of a library",
    ]
    assert (tmp_path / "file").read_text() == "written"


NO_SOCKET = """
    import os, socket
    from ringleader.agents import unix_messages

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not (pid := os.fork()):
        from ringleader.agents.fork_server import serve
        serve(theirs.fileno())
    theirs.close()
    unix_messages.send(ours, {"do": "import", "modules": [], "socket": "/nonexistent/warm.sock"})
    print(unix_messages.receive(ours)[0], os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.process
def test_one_that_serves_ranks_is_not_ready_without_its_socket():
    words = [sys.executable, "-c", textwrap.dedent(NO_SOCKET)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    expected = {"do": "failed", "why": "/nonexistent/warm.sock: No such file or directory"}
    assert done.stdout == f"{expected} 1\n", done.stderr


@pytest.mark.parametrize("ready", [True, False])
def test_one_that_serves_ranks_is_started_again_a_few_times(monkeypatch, ready):
    """It may end right after each start, and nobody asks it for ranks until a restart."""
    said = []
    starts = []
    server = ForkServerProcess({}, lambda **words: said.append(words), said.append, "/")
    monkeypatch.setattr(server, "_start", lambda: starts.append(1))
    server.prepare({"serves_ranks": True, "preload": ()})
    for _ in range(RESTARTS + 1):
        assert len(starts) <= RESTARTS + 1
        assert not [one for one in said if one["do"] == "not_prepared"]
        if ready:
            server._heard({"do": "ready", "modules": [], "seconds": 0.1, "versions": {}})
        server.ended(1 << 8)
    assert len(starts) == RESTARTS + 1
    assert [one["why"] for one in said if one["do"] == "not_prepared"] == [
        "the fork server ended with exit code 1"
    ]
