"""Every deliberate exception, drawn as a tree.

    RingleaderError
    ├── RequestError          what was asked for is wrong                         exit code 2
    ├── RefusedError          the machine or the cluster refused                  exit code 3
    │   ├── ProbeError        hosts that cannot take part, each with its reason
    │   ├── LaunchError       the MPI started something else than the plan, or nothing
    │   └── LabError          the lab could not be made, found or cleaned
    ├── RankError             a rank failed                                       exit code: the rank's own
    ├── OutputError           our standard output cannot be written
    │   └── ReaderGoneError   its reader has closed it                            exit code 141
    └── StoppedError          a signal came before any rank was started           exit code 128+n

An error belongs to whoever can fix it. ``fault`` says what is wrong and where (field path, file:line),
``hint`` says what to do. The command line prints both and never a traceback.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ringleader.value_class import dataclass

LONGEST_WORD = 500
"""Letters of a word in a message; a path or a name that is longer is shown by its ends."""


def shortened(text: str) -> str:
    """Return a message whose words are not so long that nobody finds what is said about them."""
    return re.sub(rf"\S{{{LONGEST_WORD + 1},}}", _ends, text)


def _ends(word: re.Match[str]) -> str:
    return f"{word[0][:80]}…{word[0][-20:]} ({len(word[0])} characters)"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong."""

    where: str
    """Field path (``hosts[1].slots``), option (``--ssh-port``), or ``file:line``."""
    what: str
    """What is wrong there, in one sentence without a full stop."""
    hint: str = ""
    """What the reader can do about it; empty where ``what`` already says it."""

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return shortened(f"{text}\n    → {self.hint}" if self.hint else text)


class RingleaderError(Exception):
    """The root: every error that Ringleader raises on purpose."""

    exit_code = 3

    def __init__(self, faults: Fault | Iterable[Fault] | str, *, where: str = "", hint: str = "") -> None:
        """Keep the faults; a string becomes one fault, with ``where`` and ``hint``."""
        if isinstance(faults, str):
            faults = Fault(where=where, what=faults, hint=hint)
        said: dict[tuple[str, str], Fault] = {}
        for fault in (faults,) if isinstance(faults, Fault) else faults:
            said.setdefault((fault.where, fault.what), fault)  # two readers may have found the same one
        self.faults: tuple[Fault, ...] = tuple(said.values())
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> Any:
        # As it is, not by calling the class again: each has its own arguments.
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[RingleaderError], args: tuple[object, ...]) -> RingleaderError:
    return kind.__new__(kind, *args)


class RequestError(RingleaderError):
    """What was asked for is wrong: all faults found are in it at once."""

    exit_code = 2


class RefusedError(RingleaderError):
    """The machine or the cluster refused: the request was right, the world was not."""

    exit_code = 3


class ProbeError(RefusedError):
    """Hosts that cannot take part in the job, one fault per host and reason."""


class LaunchError(RefusedError):
    """The MPI started nothing, or something else than the plan."""


class LabError(RefusedError):
    """The lab could not be made, found, or taken down."""


class RankError(RingleaderError):
    """A rank failed; ``exit_code`` is that rank's own (128+n for signal n)."""

    def __init__(
        self,
        faults: Fault | Iterable[Fault] | str,
        *,
        exit_code: int,
        rank: int | None = None,
        whose: str = "",
        where: str = "",
        hint: str = "",
    ) -> None:
        """Keep the failing rank and its exit code next to the faults; ``None``: no rank failed.

        ``whose``: as an outcome has it (``host h2``); empty: not known.
        """
        super().__init__(faults, where=where, hint=hint)
        self.exit_code, self.rank, self.whose = exit_code, rank, whose


class StoppedError(RingleaderError):
    """A signal to the launcher came before any rank was started; ``exit_code`` is 128+n."""

    def __init__(self, number: int, before: str = "any rank was started") -> None:
        """Keep the signal's number; ``before`` says what it prevented."""
        self.number = number
        super().__init__(f"stopped by {signal.Signals(number).name} before {before}")
        self.exit_code = 128 + number


class OutputError(RingleaderError):
    """Our standard output cannot be written: a full disk, a terminal that is gone."""

    def __init__(self, what: str) -> None:
        """``what`` the system said."""
        hint = "what was to be printed is incomplete: make room there, or send it elsewhere, and repeat"
        super().__init__(what, where="standard output", hint=hint)


class ReaderGoneError(OutputError):
    """Whoever read our standard output has closed it (``| head``): no fault, and nothing to say."""

    exit_code = 128 + signal.SIGPIPE

    def __init__(self, what: str = "") -> None:
        """Have no faults."""
        super().__init__(what)
        self.faults = ()


def nearest(word: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the known words closest to a misspelt one, the closest first; ``cutoff`` is that of difflib."""
    import difflib  # for messages of errors only

    return difflib.get_close_matches(word, list(known), most, cutoff)


def meant(words: Iterable[str]) -> str:
    """Return the hint that one of these words may be meant; empty without any."""
    some = " or ".join(words)
    return f"did you mean {some}?" if some else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint of the known word that a misspelt one is closest to; empty where none is close."""
    return meant(nearest(word, known))


@contextmanager
def collected(faults: list[Fault], kind: type[RingleaderError] = RequestError) -> Iterator[None]:
    """Add to ``faults`` those of an error raised inside, to be reported with others, and continue behind."""
    try:
        yield
    except kind as error:
        faults += error.faults


def refuse(faults: Iterable[Fault], kind: type[RingleaderError] = RequestError) -> None:
    """Raise an error with all these faults, if there are any."""
    found = tuple(faults)
    if found:
        raise kind(found)
