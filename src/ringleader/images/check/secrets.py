"""Rules: what an image would give away. Whoever can pull it reads every layer and every variable. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ringleader.finding import Finding, fault
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
