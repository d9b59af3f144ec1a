"""What ``ringleader image list`` shows: the bundled recipes, and images of 2017 to 2019 as they are.

A historical image is a Dockerfile, an Apptainer definition and what ``image check`` says of it, kept as files
in ``historical/``: nothing makes them any more, as what they are made of no longer changes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ringleader.finding import Cited, Finding, Level
from ringleader.images.instructions import Image

HISTORICAL = ("all-frameworks-2019", "horovod-0.11", "tensorflow-1.12-verbs")
SELFTEST = "/usr/local/bin/image-selftest"
"""A shell script in each historical image, as Ringleader needs a newer Python than they have."""


def names() -> tuple[str, ...]:
    """Return the names of all recipes, sorted."""
    found = (entry.name for entry in files(__package__).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


def text(name: str) -> str:
    """Return a recipe's text. Raises KeyError for a name that is not among ``names()``."""
    if name not in names():
        raise KeyError(name)
    return files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Historical:
    """A historical image."""

    name: str
    about: str
    base: str
    frameworks: tuple[str, ...]
    cuda: str
    findings: tuple[Finding, ...]
    """What of it can no longer be fetched, or never fitted, and what it lacks of today's hardening."""

    @property
    def image(self) -> Image:
        """The image, whose steps are text."""
        kept = (_read(f"{self.name}.Dockerfile"), _read(f"{self.name}.def"))
        return Image(name=self.name, about=self.about, stages=(), test=(SELFTEST,), kept=kept)


@cache
def historical(name: str) -> Historical:
    """Return one of HISTORICAL."""
    found = json.loads(_read(f"{name}.json"))
    findings = tuple(
        Finding(
            level=Level(one["level"]),
            where=one["rule"],
            what=one["what"],
            hint=one["works"],
            rows=tuple(Cited(**row) for row in one["rows"]),
        )
        for one in found.pop("findings")
    )
    return Historical(**{**found, "frameworks": tuple(found["frameworks"])}, findings=findings)


def _read(file: str) -> str:
    return files(__package__).joinpath("historical", file).read_text(encoding="utf-8")
