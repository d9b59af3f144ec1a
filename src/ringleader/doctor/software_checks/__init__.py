"""Checks of what is installed on a host to start ranks and to train: by records of packages. Pure.

Nothing is imported or started: ``ringleader doctor --image`` does that.
"""

from __future__ import annotations

from ringleader.doctor.software_checks import frameworks, python_packages, start_of_ranks
from ringleader.fabric.checks.check import Check

SOFTWARE_CHECKS: tuple[Check, ...] = (
    *start_of_ranks.CHECKS,
    *python_packages.CHECKS,
    *frameworks.CHECKS,
)
"""In the order in which they are shown."""
