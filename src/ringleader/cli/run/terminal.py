"""What a person at the terminal sees of a job: the ranks' lines, progress, warnings, and how it ended."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ringleader.cli.terminal_progress import ProgressLine
from ringleader.launch.outcome import Outcome
from ringleader.launch.rank_output import Label, Outlet, PrefixedLines, StandardStreams

if TYPE_CHECKING:
    from ringleader.bench.scale.meter import Meter
    from ringleader.cli.run.profile import Profile
    from ringleader.metrics import Sample

LEAST_SECONDS = 5.0
"""Training of which a rate is worth a line."""


class Terminal:
    """Told by the launcher what happens. Ranks' output goes where they sent it, ours to standard error."""

    def __init__(
        self,
        *,
        stdout: Outlet,
        stderr: Outlet,
        is_tty: bool,
        prefix: bool = True,
        quiet: bool = False,
        shown: Collection[int] | None = None,
        outlets: StandardStreams | None = None,
        label: Label | None = None,
        transport: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``is_tty``: standard error is a terminal, which gets a line of progress; a log gets one at times.


        ``shown``: ranks whose output is shown; ``None``: all. ``outlets``: what ``stdout`` and ``stderr``
        belong to, where they are this process's own. ``label``: what stands before
        a line, if not ``[rank] ``. ``transport``: say at a good end what carried the bytes between hosts.
        """
        # A prefix is as wide as its rank: how many ranks there will be is not known yet.
        self._lines = PrefixedLines(stdout, stderr, size=1, prefix=prefix, label=label)
        self._stderr = stderr
        self._progress = ProgressLine(is_tty=is_tty, write=self._write, clock=clock)
        self._quiet, self._shown, self._transport = quiet, shown, transport
        self._outlets = outlets
        self._meter: Meter | None = None
        self._size: int | None = None
        """Ranks of the generation, in an elastic job."""
        self._rates: list[Sample] = []
        """Those of earlier generations."""
        self._runs = False
        self.profile: Profile | None = None
        """What ``--profile`` shows."""
        self.contexts: dict[int, dict[str, Any]] = {}
        """What each rank reported of its host, its versions and its transport."""

    def output(self, rank: int, stream: str, line: bytes) -> None:
        """Show a rank's line."""
        if not self._quiet and (self._shown is None or rank in self._shown):
            self._progress.clear()
            self._lines.line(rank, stream, line)

    def flush(self) -> None:
        """Show what came."""
        self._lines.flush()
        self._tell_trouble()

    def waiting(self) -> int:
        """Return how many bytes nobody has taken yet."""
        return self._outlets.waiting if self._outlets is not None else 0

    def report(self, rank: int, message: dict[str, Any]) -> None:
        """Measure the job by what ranks report; in an elastic job each generation by itself."""
        if message.get("kind") == "profile" and self.profile is not None:
            self.profile.report(rank, message)
        if message.get("kind") == "context" or "transport" in message:
            self.contexts.setdefault(rank, {}).update(message)
        if message.get("kind") == "generation":
            self._end_generation(self._size or 1)
            self._size = int(message["size"])
        elif message.get("kind") in ("progress", "steps"):
            if self._meter is None:
                from ringleader.bench.scale.meter import Meter
                from ringleader.bench.scale.rates import WARMUP

                self._meter = Meter(ranks=1, warmup=WARMUP, now=time.monotonic, warn=self.warning)
            self._meter.report(rank, message)

    def rate(self, ranks: int) -> Sample | None:
        """Return how fast the job of this many ranks trained; ``None``: they reported too little for that.

        Of an elastic job: in the generation that was measured longest, with its number of ranks.
        """
        self._end_generation(self._size or ranks)
        return max(self._rates, key=lambda one: one.seconds, default=None)

    def _end_generation(self, ranks: int) -> None:
        if self._meter is not None:
            self._meter.ranks = ranks
            self._rates += [found] if (found := self._meter.sample()) is not None else []
            self._meter = None

    def progress(self, text: str) -> None:
        """Show how far the start has come, on a line that the next text overwrites."""
        self._progress.show(text)
        if not text and self.profile is not None and self._runs:
            self.profile.explain()
        self._runs = self._runs or not text

    def warning(self, text: str) -> None:
        """Show something the user should know although the job continues."""
        self._progress.clear()
        self._lines.finish()
        self._write(f"ringleader: {text}\n")

    def finish(self, outcome: Outcome | None = None) -> None:
        """Leave the terminal on a new line and say how the job ended.

        A good end is silent but for what carried the bytes between hosts, and what is wrong with that.
        """
        self._progress.clear()
        self._lines.finish()
        self._tell_trouble()
        for text in self._outlets.losses() if self._outlets is not None else ():
            self.warning(text)
        if outcome is not None and outcome.exit_code and not self._is_unread(outcome):
            self._write(last_words(outcome) + "\n")
        elif outcome is not None and self._transport:
            if outcome.rate is not None and outcome.rate.seconds >= LEAST_SECONDS:
                self.warning(rate_text(outcome.rate))
            if outcome.proof is not None:
                from ringleader.fabric.transport_proof.proof import lines

                for text in lines(outcome.proof):
                    self.warning(text)
        if self._outlets is not None:
            self._outlets.close()

    def _is_unread(self, outcome: Outcome) -> bool:
        """True where the job was ended because who read it has gone: that needs no words."""
        gone = self._outlets is not None and self._outlets.reader_gone
        return gone and outcome.exit_code == 128 + signal.SIGPIPE

    def _tell_trouble(self) -> None:
        if self._outlets is not None and (text := self._outlets.trouble()):
            self.warning(text)

    def _write(self, text: str) -> None:
        self._stderr.put(text.encode(errors="replace"))


def terminal(
    *,
    prefix: bool,
    quiet: bool,
    shown: Collection[int] | None = None,
    output_to_stderr: bool = False,
    label: Label | None = None,
    transport: bool = False,
) -> Terminal:
    """Return a listener on this process's own streams."""
    outlets = StandardStreams(sys.stdout, sys.stderr)
    return Terminal(
        stdout=outlets.stderr if output_to_stderr else outlets.stdout,
        stderr=outlets.stderr,
        outlets=outlets,
        is_tty=sys.stderr.isatty(),
        prefix=prefix,
        quiet=quiet,
        shown=shown,
        label=label,
        transport=transport,
    )


def rate_text(rate: Sample) -> str:
    """Return how fast a job trained, as one line."""
    from ringleader.number_format import seconds

    step = seconds(rate.step_seconds) if rate.step_seconds else ""
    ranks = f"{rate.heard} ranks" if rate.heard > 1 else "1 rank"
    if rate.source == "steps":
        return f"trained at {rate.rate / rate.heard:,.3g} steps/s on {ranks} (optimizer steps, {step} each)"
    return f"trained at {rate.rate:,.1f} samples/s on {ranks}" + (f" ({step} a step)" if step else "")


def last_words(outcome: Outcome) -> str:
    """Return what is shown last of a job that failed: the first failure in time, and whose the code is."""
    lines = [f"ringleader: {outcome.reason}"] if outcome.reason else []
    failure = outcome.first_failure
    if failure is not None and failure.log:
        lines.append(f"    log: {failure.log}")
    if failure is not None and failure.signal == signal.SIGKILL:
        lines.append("    → where nobody sent it, the kernel did for lack of memory: see dmesg")
    lines.append(f"ringleader: exit code {outcome.exit_code} ({outcome.whose})")
    return "\n".join(lines)
