"""Programs that a test runs to their end; `labs` starts whole labs."""

import subprocess
from collections.abc import Sequence
from typing import Any


def finished(command: Sequence[Any], **words: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever its exit code: `subprocess.run` whose outputs are texts."""
    return subprocess.run(command, capture_output=True, text=True, **{"check": False, **words})
