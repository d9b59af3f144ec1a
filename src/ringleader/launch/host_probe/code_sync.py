"""``run --sync``: the copy of the code on each other host, found there or sent over the probe's connection.

``launch/code_files`` has the launcher's own copy, from which this sends; ``agents/code_store`` is what runs
on the host. Where both sides have rsync, it takes what is alike from the last copy there; else a tar archive
goes to the host's Python. Nothing is used before its checksums are verified there.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from ringleader.agents import code_store
from ringleader.errors import Fault
from ringleader.fabric.byte_size import byte_size
from ringleader.launch.code_files import MORE_ROOM, packed
from ringleader.launch.host_probe.remote_hosts import program, read_answer
from ringleader.launch.ssh.connections import Reply, SshConnections
from ringleader.plan.job import Code, Host, Job
from ringleader.render.hostfile import mpi_name

LEAST_RATE, LEAST_FILES = 256 * 1024, 1000
"""Bytes that are sent, and files that are looked at, per second below which a host is given up."""
SECONDS = 60.0
"""For a host to say what it has, besides the time for its files; as much more to receive code."""
SHOWN_AFTER = 3.0
"""Seconds after which the progress names the hosts that still receive."""
BOOT = "import sys; exec(sys.stdin.buffer.read(int(sys.argv[1])))"
"""Python: run a program of N bytes from standard input; what follows is the program's."""
Call = Callable[[Host, tuple[str, ...], "bytes | Path", float], Reply]
"""``SshQuery.reply``."""


class CodeSender:
    """Brings the code of one job to its hosts. Safe to use from several threads."""

    def __init__(
        self, code: Code, job: Job, ssh: SshConnections, *, python: str, environ: Mapping[str, str]
    ) -> None:
        """Nobody is contacted yet. ``python``: on every host."""
        self._code, self._ssh, self._python = code, ssh, python
        self._order = {"target": job.sync.target, "digest": code.digest, "bytes": code.size}
        self._order["rsync"] = shutil.which("rsync", path=environ.get("PATH")) is not None
        self._answers = (SECONDS + code.files / LEAST_FILES) * job.patience
        self._seconds = self._answers + (SECONDS + code.size / LEAST_RATE) * job.patience
        self._lock, self._began = threading.Lock(), dict[str, float]()
        self._archive: IO[bytes] | None = None

    @cached_property
    def _manifest(self) -> dict[str, Any]:
        path = Path(self._code.tree).with_name(code_store.MANIFEST)
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found

    @cached_property
    def _receive(self) -> bytes:
        return self._program(do="receive", manifest=self._manifest)

    def bring(self, host: Host, call: Call) -> dict[str, Any] | Fault | Reply:
        """Return where the ranks of a host run (``directory``) and how that came there (``code_by``).

        In a dry run where and how they would; ``exists`` says whether it is there. A Fault: the host cannot
        keep it. A Reply: what came instead of an answer.
        """
        dry = not self._code.tree
        known = self._call(host, call, self._program(do="find" if dry else "begin"), seconds=self._answers)
        way, exists = "", True
        if isinstance(known, dict) and "wrong" not in known and not known.get("found"):
            way, exists = "rsync" if self._order["rsync"] and known["rsync"] else "tar", not dry
            if not dry:
                known, way = self._sent(host, known, way, call)
        if isinstance(known, Reply):
            return known
        if "wrong" in known:
            return Fault(where=f"host {host.name}", what=f"--sync: {known['wrong']}", hint=MORE_ROOM)
        below = "" if self._code.below == "." else f"/{self._code.below}"
        return {"directory": f"{known['tree']}{below}", "code_by": way, "exists": exists}

    def _program(self, **order: Any) -> bytes:
        return program({**self._order, **order}, (code_store,), more=", sys.stdin.buffer")

    def _call(
        self, host: Host, call: Call, text: bytes, stdin: Path | None = None, *, seconds: float
    ) -> dict[str, Any] | Reply:
        """Run a program of the store; ``stdin``: a file that begins with it, if more follows."""
        argv = (self._python, "-I", "-S", "-c", BOOT, str(len(text)))
        reply = call(host, argv, stdin or text, seconds)
        answer = read_answer(reply.stdout)
        return reply if answer is None or "too_old" in answer else answer

    def _sent(
        self, host: Host, known: Mapping[str, Any], way: str, call: Call
    ) -> tuple[dict[str, Any] | Reply, str]:
        """Send the files; by tar, too, where rsync fails: the host's Python says why."""
        with self._lock:
            began = self._began[host.name] = time.monotonic()

        def left() -> float:  # rsync, finish and tar share one deadline
            return max(1.0, began + self._seconds - time.monotonic())

        try:
            if way == "rsync":
                ssh, tree = self._ssh.agent_argv(), self._code.tree
                argv = rsync_argv(ssh, tree, mpi_name(host.name), known["incoming"], known["base"])
                rows = (*self._manifest["files"], *self._manifest["links"])
                names = "\0".join(row[0] for row in rows).encode("utf-8", "surrogateescape")
                self._ssh.run_here(argv, stdin=names, deadline=left())
                order = {"incoming": known["incoming"], "manifest": self._manifest}
                done = self._call(host, call, self._program(do="finish", **order), seconds=left())
                if isinstance(done, dict) and "tree" in done:
                    return done, way
            return self._call(host, call, self._receive, self._packed(), seconds=left()), "tar"
        finally:
            with self._lock:
                del self._began[host.name]

    def _packed(self) -> Path:
        """Return a file of the program that receives and the archive of all files, made once."""
        with self._lock:
            if self._archive is None:
                self._archive = packed(self._code.tree, self._manifest, self._receive)
            return Path(self._archive.name)

    def progress(self) -> str:
        """Return who has been receiving for a while; empty: nobody."""
        now = time.monotonic()
        with self._lock:
            names = sorted(name for name, began in self._began.items() if now - began > SHOWN_AFTER)
            longest = max((now - began for began in self._began.values()), default=0.0)
        if not names:
            return ""
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        to = f"{', '.join(names[:3])}{more}"
        return f", sending {byte_size(self._code.size)} of code to {to} ({longest:.0f} s)"

    def close(self) -> None:
        """Remove the archive."""
        if self._archive is not None:
            self._archive.close()


def rsync_argv(ssh: tuple[str, ...], tree: str, host: str, incoming: str, base: str) -> tuple[str, ...]:
    """Return the rsync that brings the files named on its standard input to a host. Pure.

    ``ssh``: words without a space. ``incoming``, ``base``: there, to be filled, and with files that may be
    alike; their times say nothing, so contents are compared.
    """
    return (
        "rsync",
        *("--links", "--perms", "--checksum", "--compress", "--protect-args", "--timeout=30"),
        *("--from0", "--files-from=-", f"--rsh={' '.join(ssh)}"),
        *((f"--copy-dest={base}",) if base else ()),
        f"{tree}/",
        f"{host}:{incoming}/{code_store.TREE}/",
    )
