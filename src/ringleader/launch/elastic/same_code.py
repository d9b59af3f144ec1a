"""Whether a host would run what the others run: the script that the job began with, its packages. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def other_script(script: str, *, began_with: str, there: str) -> str:
    """Return what is wrong with a host's script; empty: nothing, or nobody knows.

    ``began_with``, ``there``: its SHA-256 in hex when the job began, and on the host now.
    """
    if not began_with or not there or began_with == there:
        return ""
    sums = f"SHA-256 {there[:12]}… there, {began_with[:12]}… then"
    return f"the script {script} is not the one that the job began with: {sums}"


def other_packages(there: Mapping[str, str], *, known: Mapping[str, str], of: str) -> str:
    """Return which packages have another version on a host; empty: none.

    ``known``: those of the host ``of``, on which the job began. One that says no version is passed over.
    """
    found = [
        f"{name} is {version} there, {known[name]} on {of}"
        for name, version in there.items()
        if version and known.get(name, version) not in ("", version)
    ]
    return "; ".join(found)
