"""Versions of installed Python packages, whatever their records call them. Pure."""

from __future__ import annotations

from ringleader.fabric.checks.check import Condition
from ringleader.fabric.facts import HostFacts

TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")
FRAMEWORKS = ("torch", "tensorflow", "keras", "tf-keras", "jax", "mxnet", "horovod")


SOFTWARE = Condition(
    id="software",
    holds=lambda facts: bool(facts.software.packages),
    otherwise="what is installed could not be read",
)


def version_of(facts: HostFacts, name: str) -> str:
    """Return a package's version; empty where it is not installed. ``tensorflow`` is also its CPU wheel."""
    found = {key.lower().replace("_", "-"): value for key, value in facts.software.packages.items()}
    names = TENSORFLOW if name == "tensorflow" else (name,)
    return next((found[one] for one in names if one in found), "")


def starting_with(facts: HostFacts, start: str) -> dict[str, str]:
    """Return the packages whose names start with some letters: ``nvidia-nccl-cu``."""
    found = {key.lower().replace("_", "-"): value for key, value in facts.software.packages.items()}
    return {name: value for name, value in sorted(found.items()) if name.startswith(start)}


def installed(name: str, shown: str = "") -> Condition:
    """Return the condition that a package is installed."""
    return Condition(
        id=f"package.{name}",
        holds=lambda facts: bool(version_of(facts, name)),
        otherwise=f"{shown or name} is not installed for this Python",
    )
