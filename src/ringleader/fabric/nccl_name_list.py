"""NCCL's lists of devices and interfaces (NCCL_IB_HCA, NCCL_SOCKET_IFNAME): what they choose. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def matches(names: str, candidates: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the entries of a list of NCCL's that fit no candidate, and the candidates that are chosen.

    ``mlx5_0:1,mlx5_1`` are prefixes; ``=`` before the list: whole names; ``^``: all others (``^=`` is both).
    A port behind the colon of an entry has to be that of the candidate, where the candidate has one.
    """
    exclude, rest = names.startswith("^"), names.lstrip("^")
    exact, rest = rest.startswith("="), rest.lstrip("=")
    wanted = [one.strip() for one in rest.split(",") if one.strip()]

    def fits(candidate: str, entry: str) -> bool:
        (name, _, number), (asked, _, port) = candidate.partition(":"), entry.partition(":")
        named = name == asked if exact else name.startswith(asked)
        return named and (not port or not number or port == number)

    lost = [one for one in wanted if not any(fits(name, one) for name in candidates)]
    named = [name for name in candidates if any(fits(name, one) for one in wanted)]
    chosen = [name for name in candidates if name not in named] if exclude else named
    return ([] if exclude else lost), chosen
