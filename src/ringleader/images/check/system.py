"""Rules: base, build-base and images of CUDA, the image's Python, secrets, what hardening is left. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringleader.finding import Finding, fault, note, warning
from ringleader.images.base_image import find_base, find_cuda_image, name_and_tag
from ringleader.images.tables.version_order import at_least, matches, series

if TYPE_CHECKING:
    from ringleader.images.check.selection import VersionLookup

STILL_THERE = "a base with a CUDA that is still there (11.0 and newer)"


def _system(lookup: VersionLookup) -> Iterator[Finding]:
    if lookup.base is None:
        what = (
            f"{lookup.selection.base or 'the base'} is not in the tables: only what needs no base was checked"
        )
        yield warning("base", what)
    elif lookup.base.end_of_life and lookup.base.end_of_life <= lookup.tables.rules["as-of"].value:
        what = f"{lookup.base.name} has had no free updates since {lookup.base.end_of_life}"
        yield warning("base-old", what, lookup.base.cited())


def _images(lookup: VersionLookup) -> Iterator[Finding]:
    choice = lookup.selection
    found = lookup.cuda_image
    if choice.cuda and found is None:
        hint = f"a base nvidia/cuda:{choice.cuda}-…, or no block cuda: wheels bring their own"
        yield fault(
            "cuda-base", f"the block cuda stands on an image nvidia/cuda, not on {choice.base}", hint=hint
        )
    elif found and series(found.version) != series(choice.cuda):
        what = f"the block cuda says {choice.cuda}, the base is CUDA {found.version}"
        yield fault("cuda-base", what)
    for reference in dict.fromkeys((choice.base, choice.build_base)):
        yield from _image(lookup, reference)


def _image(lookup: VersionLookup, reference: str) -> Iterator[Finding]:
    found = find_cuda_image(reference)
    row = lookup.tables.cuda_release(found.version) if found else None
    if found is None:
        return
    if row is None:
        if series(found.version) == series(lookup.selection.cuda):
            return  # the block was reported already
        yield fault("cuda", f"there is no image of CUDA {found.version} that the tables know")
        return
    cited = row.cited()
    system = find_base(reference)
    if row.deleted:
        what = f"{reference} can no longer be pulled"
        if system and system.name not in row.bases:
            what = f"nvidia/cuda {row.cuda} was never on {system.name}, and the others are gone"
        yield fault("cuda-deleted", what, cited, hint=f"your own copy by digest, or {STILL_THERE}")
        if lookup.selection.cudnn or lookup.selection.nccl:
            key = lookup.tables.rules["cuda-apt-key"]
            what = "NVIDIA's apt repository refuses the image until its key is replaced"
            yield fault("cuda-apt-key", what, key.cited(), hint=STILL_THERE)
    elif system and system.name not in row.bases:
        what = f"nvidia/cuda {row.cuda} has no image on {system.name}"
        yield fault("cuda-image", what, cited, hint=f"on {' or '.join(row.bases)}")
    elif not any(matches(tag, found.version) for tag in row.tags):
        what = f"the tables know no tag {found.version} of nvidia/cuda"
        yield warning("cuda-tag", what, cited, hint=f"{', '.join(row.tags)}")


def _python(lookup: VersionLookup) -> Iterator[Finding]:
    choice, base = lookup.selection, lookup.base
    packaged = base and choice.python_source == "base" and choice.python
    if base and packaged and series(choice.python) not in base.pythons:
        what = f"{base.name} packages Python {', '.join(base.pythons)}, not {choice.python}"
        others = [one.name for one in lookup.tables.bases if series(choice.python) in one.pythons]
        hint = f'{"the base " + " or ".join(others) + ", or " if others else ""}python.source = "conda"'
        yield fault("base-python", what, base.cited(), hint=hint)
    floor = lookup.tables.rules["ringleader-python"]
    if choice.has_ringleader and lookup.python and not at_least(series(lookup.python), floor.value):
        rows = (floor.cited(), *((base.cited(),) if base and not choice.python else ()))
        yield fault("ringleader-python", f"Ringleader does not run under Python {lookup.python}", *rows)
    floor, release = lookup.tables.rules["ringleader-torch"], lookup.torch_release
    if choice.has_ringleader and release and not at_least(release.series, floor.value):
        what = f"Ringleader needs PyTorch {floor.value} or newer, the image has {choice.torch}"
        yield fault("ringleader-torch", what, floor.cited(), release.cited())


BARE = ("debian", "ubuntu")
"""Public images without the package ca-certificates. NVIDIA's have it: their lists of apt are on https."""


def _other_system(lookup: VersionLookup) -> Iterator[Finding]:
    """Yield that the two stages are of different systems: what one makes does not run on the other."""
    reference = lookup.selection.build_base
    build = find_base(reference) if reference else None
    if build is None or lookup.base is None or build.name == lookup.base.name:
        return
    made = f"what is made there with Python {build.python} and glibc {build.glibc}"
    there = f"Python {lookup.base.python} and glibc {lookup.base.glibc}"
    what = f"build-base is {build.name}, base is {lookup.base.name}: {made} does not run with {there}"
    yield fault("build-base", what, hint=f"a build-base of {lookup.base.name}, or none")


def _cudas(lookup: VersionLookup) -> Iterator[Finding]:
    build = find_cuda_image(lookup.selection.build_base)
    cuda = lookup.selection.cuda
    if build is None or not cuda:
        return
    theirs, ours = build.version.split("."), cuda.split(".")
    what = f"build-base has CUDA {build.version}, the image CUDA {cuda}"
    hint = f"a build-base with CUDA {cuda}"
    if theirs[0] != ours[0]:
        yield fault(
            "build-cuda", f"{what}: what is compiled against one does not load with the other", hint=hint
        )
    elif theirs[:2] != ours[:2]:
        yield warning("build-cuda", what, hint=hint)


def _certificates(lookup: VersionLookup) -> Iterator[Finding]:
    """Yield that apt could not check a mirror's certificate."""
    mirror = lookup.selection.apt_mirror
    if not mirror.startswith("https:"):
        return
    name = name_and_tag(lookup.selection.base)[0].removeprefix("docker.io/").removeprefix("library/")
    if name in BARE:
        what = f"apt asks {mirror} over https, and {lookup.selection.base} has no certificates to check it by"
        hint = "http: apt checks the signatures of what it fetches; or a base with ca-certificates"
        yield warning("apt-https", what, hint=hint)


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


def _secrets(lookup: VersionLookup) -> Iterator[Finding]:
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


def _hardening(lookup: VersionLookup) -> Iterator[Finding]:
    """Yield what of the hardening is left to the recipe."""
    choice = lookup.selection
    if "@sha256:" not in choice.base:
        yield note("pinned", f"{choice.base} may change: pin it with @sha256:…")
    if not choice.lock:
        what = "Python packages are not locked: `image lock -o FILE`, then packages.lock in the recipe"
        yield note("lock", what)
    if 0 < choice.port < UNPRIVILEGED and not choice.is_root:
        what = f"sshd on port {choice.port} without root: only where containers may bind it"
        yield warning("port", what, hint=f"a port from {UNPRIVILEGED} on, or account root")
    for one in choice.unverified:
        yield note("unverified", f"nothing verifies {one}: give its checksum as sha256")


SYSTEM = (_system, _images, _python, _other_system, _cudas, _certificates, _secrets, _hardening)
"""What does not fit between the stages, their bases and what stands on them; what the image gives away."""
