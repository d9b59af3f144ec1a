"""Versions of software in facts, as numbers that compare. Pure."""

from __future__ import annotations

import re

from ringleader.fabric.facts import HostFacts

NCCL_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
"""NCCL's wheels, which PyTorch loads before the system's library."""


def numbers(version: str) -> tuple[int, ...] | None:
    """Return the leading numbers of a version: ``2.21.5+cuda12.4`` → (2, 21, 5); ``None``: it has none."""
    match = re.match(r"[vV]?(\d+(?:\.\d+)*)", version.strip())
    return tuple(int(one) for one in match[1].split(".")) if match else None


def nccl_version(facts: HostFacts) -> tuple[int, ...] | None:
    """Return the version of the NCCL that a rank would load; ``None``: there is none, or it is unknown."""
    known = [numbers(one.version) for one in facts.software.nccl[:1]]
    known += [numbers(facts.software.packages.get(name, "")) for name in NCCL_PACKAGES]
    return next((one for one in known if one), None)
