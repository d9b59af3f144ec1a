"""How a process ends that was forked from one that has imported what ranks need."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

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
    from ringleader.ranks.fork_server import import_all

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
def test_a_forked_process_ends_as_python_does_but_for_what_was_there_before(tmp_path: Path) -> None:
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
