"""How far a build has come, and where it failed, by what the builder prints. Pure."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

LAST_LINES = 15
"""Of a failing step that are shown."""
_STEP = re.compile(r"^(?:\[(\d+)/(\d+)\] )?STEP (\d+)/(\d+) ?: (.*)$|^Step (\d+)/(\d+) : (.*)$")
"""buildah's and podman's ``[1/2] STEP 3/12: RUN …``, and the classical docker's ``Step 3/12 : RUN …``."""
_VERTEX = re.compile(r"^#(\d+) \[(?:(\S+) )?(\d+)/(\d+)\] (.*)$")
"""BuildKit's ``#7 [build 3/9] RUN …``; its steps run side by side."""
_OF_VERTEX = re.compile(r"^#(\d+) (.*)$")
_CLOCK = re.compile(r"^\d+\.\d+ ")


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step that has begun."""

    number: int
    count: int
    stage: str
    """``1/2``, or the stage's name; empty where there is only one."""
    command: str
    """The instruction as the builder prints it."""

    def __str__(self) -> str:
        stage = f"stage {self.stage}, " if self.stage else ""
        return f"{stage}step {self.number} of {self.count}: {self.command}"


@dataclass(kw_only=True)
class Progress:
    """Fed with the builder's lines, one after the other."""

    step: Step | None = None
    """The step that began last."""
    failed: Step | None = None
    """The step that BuildKit calls failed; others end with the one that began last."""
    _lines: dict[str, deque[str]] = field(default_factory=dict)
    _steps: dict[str, Step] = field(default_factory=dict)
    _vertex: str = ""

    def feed(self, line: str) -> Step | None:
        """Take a line without its line feed; return the step that begins with it."""
        step = self._plain(line) or self._buildkit(line)
        self.step = step or self.step
        return step

    def _plain(self, line: str) -> Step | None:
        found = _STEP.match(line)
        if not found:
            if not _OF_VERTEX.match(line):
                self._remember("", line)
            return None
        stage, stages, number, count, command, *classical = found.groups()
        if classical[0]:
            number, count, command = classical
        self._lines.pop("", None)
        shown = f"{stage}/{stages}" if stage else ""
        return Step(number=int(number), count=int(count), stage=shown, command=command)

    def _buildkit(self, line: str) -> Step | None:
        found = _VERTEX.match(line)
        if found:
            vertex, stage, number, count, command = found.groups()
            step = Step(number=int(number), count=int(count), stage=stage or "", command=command)
            known = vertex in self._steps
            self._steps[vertex] = step
            return None if known else step
        of = _OF_VERTEX.match(line)
        if of:
            vertex, text = of.groups()
            if text.startswith("ERROR") and vertex in self._steps:
                self.failed, self._vertex = self._steps[vertex], vertex
            self._remember(vertex, _CLOCK.sub("", text))
        return None

    def _remember(self, vertex: str, line: str) -> None:
        if line.strip():
            self._lines.setdefault(vertex, deque(maxlen=LAST_LINES)).append(line)

    @property
    def at(self) -> Step | None:
        """Where the build stands, or failed."""
        return self.failed or self.step

    @property
    def last_lines(self) -> tuple[str, ...]:
        """What the step where the build stands has printed last."""
        return tuple(self._lines.get(self._vertex if self.failed else "", ()))


def shortened(text: str, width: int = 100) -> str:
    """Return a text on one line of at most ``width`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
