"""What historical images lack of today's hardening, and secrets among a recipe's values. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ringleader.finding import Finding, Level, fault, note, warning
from ringleader.images.check.version_lookup import VersionLookup

VARIABLE = re.compile(
    r"(^|_)(token|secret|passwd|passphrase|api_?key|access_key(_id)?|secret_key|private_key|credentials)(_\d+)?$"
    r"|password(_\d+)?$",
    re.IGNORECASE,
)
"""Names of variables that hold a secret. A path or a number is none: it says where one is, or counts."""
NOT_SECRET = re.compile(r"(^|_)(eos|bos|pad|unk|mask|sep|cls)_token$", re.IGNORECASE)
"""Tokens of texts, which language models know."""
FILE = re.compile(
    r"(^|/)(id_(rsa|dsa|ecdsa|ed25519)(_sk)?|\.netrc|\.env(\.\w+)?|\.pgpass|\.git-credentials|\.pypirc|\.npmrc"
    r"|\.?kube/?config|kubeconfig|\.docker/config\.json|\.dockerconfigjson|\.aws/credentials"
    r"|\.ssh|\.gnupg|[^/]+\.(pem|key|p12|pfx|jks))$",
    re.IGNORECASE,
)
"""Files and directories that hold keys, passwords or tokens."""
PUBLIC = re.compile(
    r"(^|[/._-])(ca|cert|certs|certificate|chain|bundle|root|public|pub)([._-]|$)", re.IGNORECASE
)
"""Words in names of certificates, which are no secrets."""
AT_START = "give it to the containers when they start: docker run --env NAME, a Secret of Kubernetes"
MOUNTED = "mount it into the containers, from a Secret of Kubernetes or the host"


def secrets(lookup: VersionLookup) -> Iterator[Finding]:
    """Yield each variable and each copied file that looks like a secret; values are in no message."""
    for name, value in lookup.selection.variables:
        holds = value and not value.startswith(("/", "${")) and not value.isdecimal()
        if holds and VARIABLE.search(name) and not NOT_SECRET.search(name):
            what = f"files.env.{name} would be in the image: whoever can pull it can read it"
            yield fault("secret", what, hint=AT_START)
    for path in lookup.selection.copied:
        name = path.rstrip("/").rpartition("/")[2]
        if FILE.search(path.rstrip("/")) and not PUBLIC.search(name):
            what = f"files.copy has {path}: whoever can pull the image can read it"
            yield fault("secret", what, hint=MOUNTED)


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
