"""A shell's command that ends with us, or on an event, with everything it has started.

Path, names and meanings are Horovod's.
"""

from __future__ import annotations

import codecs
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from ringleader.agents import parent_death
from ringleader.runner.util.threads import in_thread, on_event

GRACEFUL_TERMINATION_TIME_S = 5
"""Between SIGTERM and SIGKILL, in seconds."""


def execute(
    command: str,
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    index: int | None = None,
    events: Iterable[threading.Event] | None = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Run a command in a shell; return its exit code, 128+n for signal n.

    Its output goes to the text streams ``stdout`` and ``stderr`` (``None``: our own), each line with
    ``[index]<stdout>:`` in front where ``index`` is given. Each of ``events`` ends it, and so does our own
    end, also by SIGKILL.
    """
    with subprocess.Popen(
        parent_death.argv(("/bin/sh", "-c", command), seconds=GRACEFUL_TERMINATION_TIME_S),
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        streams = (
            (process.stdout, stdout or sys.stdout, "stdout"),
            (process.stderr, stderr or sys.stderr, "stderr"),
        )
        readers = [
            in_thread(prefix_connection, (source, target, name, index, prefix_output_with_timestamp))
            for source, target, name in streams
        ]
        over = threading.Event()
        for event in events or ():
            on_event(event, process.terminate, stop=over, silent=True)
        try:
            process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            over.set()
            for reader in readers:
                reader.join()
    code = process.returncode
    return code if code >= 0 else 128 - code


def prefix_connection(
    src_connection: Any,
    dst_stream: TextIO,
    prefix: str | None,
    index: int | None,
    prefix_output_with_timestamp: bool,
) -> None:
    """Pass on what can be read from a descriptor as text, line by line, until its end; then close it.

    With ``prefix`` and ``index`` each line begins with ``[index]<prefix>:``, and the time before that where
    it is asked for. What a carriage return ends is a line too, so that bars of progress move.
    """

    def passed_on(line: str) -> None:
        if prefix is not None and index is not None:
            when = time.asctime(time.localtime(time.time())) if prefix_output_with_timestamp else ""
            line = f"{when}[{index}]<{prefix}>:{line}"
        dst_stream.write(line)
        dst_stream.flush()

    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    held = ""
    while data := os.read(src_connection.fileno(), 65536):
        *lines, held = re.split(r"(?<=[\r\n])", held + decoder.decode(data))
        for line in lines:
            passed_on(line)
    held += decoder.decode(b"", final=True)
    if held:
        passed_on(held)
    src_connection.close()
