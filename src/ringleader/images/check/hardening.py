"""What historical images lack of the hardening of today's, each said. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.finding import Finding, Level, note, warning
from ringleader.images.check.version_lookup import VersionLookup

UNPRIVILEGED = 1024
"""The first port that needs no privilege, unless net.ipv4.ip_unprivileged_port_start says less."""


def hardening(lookup: VersionLookup) -> Iterator[Finding]:
    """Yield a historical image's exemptions; for others what of the hardening is left to the recipe."""
    choice = lookup.selection
    if not choice.historical:
        if "@sha256:" not in choice.base:
            yield note("pinned", f"{choice.base} may change: pin it with @sha256:…")
        if not choice.lock:
            yield note(
                "lock",
                "Python packages are not locked: `image lock -o FILE`, then packages.lock in the recipe",
            )
        if 0 < choice.port < UNPRIVILEGED and not choice.is_root:
            yield warning(
                "port",
                f"sshd on port {choice.port} without root: only where containers may bind it",
                hint=f"a port from {UNPRIVILEGED} on, or account root",
            )
        for one in choice.unverified:
            yield note("unverified", f"nothing verifies {one}: give its checksum as sha256")
        return
    for rule, applies, what in (
        ("pinned", "@sha256:" not in choice.base, "the base is a tag without a digest"),
        ("lock", not choice.lock, "Python packages are pinned by version, without hashes"),
        ("account", choice.is_root, "containers run as root"),
        (
            "keys",
            choice.keys == "in-image",
            "one ssh key pair is in a layer: whoever has the image has the key",
        ),
        ("venv", True, "pip installs into the system's Python"),
        ("hosts", choice.keys != "", "ssh asks no host who it is, and sshd's own keys are in a layer"),
        (
            "self-test",
            not choice.has_ringleader,
            "its Python is too old for Ringleader: a shell script, image-selftest, is in its place",
        ),
        ("sbom", not choice.has_ringleader, "no list of what is in it (SBOM)"),
        ("updates", _is_old(lookup), "the base gets no security updates"),
    ):
        if applies:
            yield Finding(level=Level.EXEMPTION, where=rule, what=what)


def _is_old(lookup: VersionLookup) -> bool:
    return lookup.base is not None and lookup.base.end_of_life <= lookup.tables.rules["as-of"].value
