"""A shell's command and all that it writes, as Horovod's ``runner.common.util.tiny_shell_exec`` has it."""

from __future__ import annotations

import io
from collections.abc import Mapping

from ringleader.runner import shell_commands


def execute(command: str, env: Mapping[str, str] | None = None) -> tuple[str, int] | None:
    """Return what a command writes to both streams, and its exit code; ``None`` where it cannot be run."""
    output = io.StringIO()
    try:
        code = shell_commands.execute(command, env=env, stdout=output, stderr=output)
    except OSError:
        return None
    return output.getvalue(), code
