"""A command that is ended: what a signal to us meanwhile leaves behind, and a builder that cannot start."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.time_limits import patience

from ringleader.errors import RefusedError, StoppedError
from ringleader.images import processes
from ringleader.images.build import Task, build
from ringleader.images.builders import Builder, BuildOptions, Isolation
from ringleader.images.instructions import Image

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: open(sys.argv[1] + "/asked", "w"))
open(sys.argv[1] + "/pid", "w").write(str(os.getpid()))
while True:
    time.sleep(0.05)
"""


def send_when(file: Path) -> threading.Thread:
    """Send us SIGINT as soon as a file is there."""

    def wait() -> None:
        tick = threading.Event()
        for _ in range(int(patience(20) / 0.02)):
            if file.exists():
                os.kill(os.getpid(), signal.SIGINT)
                return
            tick.wait(0.02)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.process
def test_a_signal_in_the_grace_after_a_deadline_leaves_nothing_alive(tmp_path: Path) -> None:
    asked = send_when(tmp_path / "asked")
    words = (sys.executable, "-c", STUBBORN, str(tmp_path))
    with pytest.raises(StoppedError), processes.stoppable():
        processes.answer(words, environ=os.environ, seconds=patience(2), grace=patience(60))
    asked.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.process
def test_a_signal_while_a_process_starts_is_handled_once_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    started, real = [], subprocess.Popen

    def slow(*words: object, **how: object) -> object:
        process = real(*words, **how)
        signal.raise_signal(signal.SIGTERM)
        started.append(process)
        return process

    monkeypatch.setattr(processes.subprocess, "Popen", slow)
    with pytest.raises(StoppedError), processes.stoppable():
        processes.answer(("sleep", "60"), environ=os.environ, seconds=60.0)
    assert started[0].returncode == -signal.SIGTERM


@pytest.mark.process
def test_why_a_builder_cannot_be_started_is_told() -> None:
    class Watcher:
        def step(self, step: str, seconds: float) -> None: ...
        def passing(self, seconds: float) -> None: ...
        def say(self, text: str) -> None: ...

    task = Task(
        image=Image(name="digits", about="", stages=()),
        dockerfile="",
        inside={},
        options=BuildOptions(tag="t:1", arguments=("x" * 2_000_000,)),
        builder=Builder(name="buildah", program="/bin/true", version="1"),
        isolation=Isolation(value=""),
    )
    with pytest.raises(RefusedError, match="buildah: cannot be started: Argument list too long"):
        build(task, environ={}, watcher=Watcher())
