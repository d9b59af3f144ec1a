"""The fake cluster in a process of its own, so that its work and a controller's do not share a core."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[3]


class FakeProcess:
    """Starts ``python -m tests.kube.fake`` and ends it."""

    def __init__(self, *options: str, documents: Sequence[Mapping[str, Any]] = ()) -> None:
        """``options`` are those of the command; ``documents`` are created first."""
        self._options = options
        self._documents = documents
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.token = ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps(one) + "\n" for one in self._documents)
            file.flush()
            command = [sys.executable, "-m", "tests.kube.fake", "--documents", file.name, *self._options]
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
        if not line:
            self._process.wait(10)
            raise RuntimeError(f"the fake cluster ended with {self._process.returncode}")
        where = json.loads(line)
        self.url, self.token = where["url"], where["token"]
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        try:
            self._process.communicate(timeout=30)  # closes its standard input
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig of its administrator."""
        from tests.kube.fake.handles import kubeconfig

        path.write_bytes(kubeconfig(self.url, self.token, "default"))
        return path
