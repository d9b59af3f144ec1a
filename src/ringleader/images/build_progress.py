"""How far a build has come, and where it failed, by what the builder prints. Pure."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

LAST_LINES = 15
"""Of a failing step that are shown."""
_STEP = re.compile(r"^(?:\[(\d+/\d+)\] )?STEP (\d+)/(\d+) ?: (.*)$|^Step (\d+)/(\d+) : (.*)$")
"""buildah's and podman's ``[1/2] STEP 3/12: RUN …``, and the classical docker's ``Step 3/12 : RUN …``."""
_VERTEX = re.compile(r"^#(\d+) (?:\[(?:(\S+) )?(\d+)/(\d+)\] )?(.*)$")
"""BuildKit's ``#7 [build 3/9] RUN …``, then ``#7 0.412 …``; its steps run side by side."""
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
    _lines: dict[str, deque[str]] = field(default_factory=dict)
    _steps: dict[str, Step] = field(default_factory=dict)
    _failed: str = ""
    """The vertex that BuildKit calls failed; others end with the step that began last."""

    def feed(self, line: str) -> Step | None:
        """Take a line without its line feed; return the step that begins with it."""
        begun = None
        if found := _STEP.match(line):
            stage, *modern = found.groups()[:4]
            number, count, command = modern if modern[0] else found.groups()[4:]
            begun = Step(number=int(number), count=int(count), stage=stage or "", command=command)
            self._lines.pop("", None)
        elif found := _VERTEX.match(line):
            vertex, stage, number, count, text = found.groups()
            if number is not None and vertex not in self._steps:
                begun = Step(number=int(number), count=int(count), stage=stage or "", command=text)
                self._steps[vertex] = begun
            elif number is None:
                if text.startswith("ERROR") and vertex in self._steps:
                    self._failed = vertex
                self._remember(vertex, _CLOCK.sub("", text))
        else:
            self._remember("", line)
        self.step = begun or self.step
        return begun

    def _remember(self, vertex: str, line: str) -> None:
        if line.strip():
            self._lines.setdefault(vertex, deque(maxlen=LAST_LINES)).append(line)

    @property
    def at(self) -> Step | None:
        """Where the build stands, or failed."""
        return self._steps.get(self._failed, self.step)

    @property
    def last_lines(self) -> tuple[str, ...]:
        """What the step where the build stands has printed last."""
        return tuple(self._lines.get(self._failed, ()))


def shortened(text: str, width: int = 100) -> str:
    """Return a text on one line of at most ``width`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
