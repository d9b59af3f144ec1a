"""What ``run --profile`` shows: whether ranks record their steps, and at the end where these went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringleader.errors import RingleaderError

LARGEST = 64 << 20
"""Compressed bytes of all traces up to which they are read before the job's end is reported."""


class Profile:
    """Hears what the ranks report of their recording; `cli.analyze` reads the traces."""

    def __init__(self, wanted: str, directory: str, tell: Callable[[str], object]) -> None:
        """``wanted``: ``20:40``. ``directory``: of the traces. ``tell`` takes lines for the user."""
        self._wanted, self._directory, self._tell = wanted, directory, tell
        self._states: dict[int, dict[str, Any]] = {}
        self._is_warned = False
        self.split: Any = None
        """`Split`: where the steps went, once ``finish`` has read that."""

    def report(self, rank: int, message: dict[str, Any]) -> None:
        """Take a rank's report."""
        self._states[rank] = message

    def explain(self) -> None:
        """The ranks have run for some seconds: warn, once, if none of them counts steps."""
        if not self._states and not self._is_warned:
            self._is_warned = True
            what = "no rank has imported torch.optim yet, and only steps of PyTorch's optimizers are recorded"
            self._tell(f"--profile {self._wanted}: {what}")

    def finish(self) -> dict[str, Any]:
        """Show where the steps went, or why nothing was recorded; return that as JSON values."""
        from ringleader.cli import analyze

        shown = {"wanted": self._wanted, "directory": self._directory}
        reasons = Counter(str(message["why"]) for message in self._states.values() if message.get("why"))
        for why, count in reasons.items():
            self._tell(f"--profile {self._wanted}: {f'{count} ranks' if count > 1 else 'a rank'}: {why}")
        where = f"--profile {self._wanted}: traces are in {self._directory}"
        try:
            files = analyze.files_of(Path(self._directory))
            if (size := sum(file.stat().st_size for file in files)) > LARGEST:
                what = f"{size >> 20} MiB, too large to analyze here"
                self._tell(f"{where} ({what}): run ringleader analyze {self._directory}")
                return shown
            found, faults = analyze.read(files)
        except (MemoryError, KeyboardInterrupt) as error:
            what = "the analysis needs more memory" if isinstance(error, MemoryError) else "not analyzed"
            self._tell(f"{where} ({what}): run ringleader analyze {self._directory}")
            return shown
        except RingleaderError:
            if not self._states:
                self._tell(f"--profile {self._wanted}: nothing was recorded: no rank imported torch.optim")
            elif not reasons:
                self._tell(f"--profile {self._wanted}: nothing was recorded: no rank ran to completion")
            return shown
        self.split = found
        for fault in faults:
            self._tell(str(fault))
        self._tell(f"{where}\n\n{analyze.as_text(found)}")
        return {**shown, **analyze.as_json(found)}
