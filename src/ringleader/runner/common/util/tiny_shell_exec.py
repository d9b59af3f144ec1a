"""A shell's command and all that it writes. Path and names are Horovod's."""

from __future__ import annotations

import io
from collections.abc import Mapping

from ringleader.runner.common.util import safe_shell_exec


def execute(command: str, env: Mapping[str, str] | None = None) -> tuple[str, int] | None:
    """Return what a command writes to both streams, and its exit code; ``None`` where it cannot be run."""
    output = io.StringIO()
    try:
        code = safe_shell_exec.execute(command, env=env, stdout=output, stderr=output)
    except OSError:
        return None
    return output.getvalue(), code
