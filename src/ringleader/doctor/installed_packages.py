"""Which packages are installed here: Debian's and Python's, with their licences where they are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from ringleader.doctor.image_inspection import read_manifest
from ringleader.doctor.sbom import Package, Subject, text
from ringleader.errors import Fault, RefusedError
from ringleader.images.recipe import RECORD

LONGEST_LICENCE = 100
"""Characters; what is longer is a licence's text and no name."""
CLASSIFIER = "License :: "


def sbom_text(root: Path = Path("/")) -> str:
    """Return the list of what is installed, CycloneDX JSON; RefusedError where dpkg's own cannot be read."""
    claims, _ = read_manifest(root / RECORD.lstrip("/"))
    release = os_release(root)
    distribution = "-".join(release[key] for key in ("ID", "VERSION_ID") if release.get(key))
    subject = Subject(
        name=str((claims or {}).get("name", "machine")),
        version=str((claims or {}).get("recipe", "")),
        distribution=distribution,
    )
    return text(subject, (*debian(root), *python()))


def os_release(root: Path) -> dict[str, str]:
    """Return the fields of /etc/os-release."""
    try:
        lines = (root / "etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name: value.strip("\"'") for name, _, value in pairs}


def debian(root: Path = Path("/")) -> Iterator[Package]:
    """Yield Debian's packages that are installed, by dpkg's own list; none where there is no dpkg."""
    status = root / "var/lib/dpkg/status"
    try:
        content = status.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise RefusedError(Fault(where=str(status), what=f"cannot be read: {error.strerror}")) from None
    for paragraph in content.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Status|Version|Architecture|Source): (.*)$", paragraph, re.M))
        if fields.get("Status", "").endswith(" installed") and "Version" in fields:
            name = fields["Package"]
            yield Package(
                sort="deb",
                name=name,
                version=fields["Version"],
                architecture=fields.get("Architecture", ""),
                source=fields.get("Source", "").partition(" ")[0],
                licences=debian_licences(root / "usr/share/doc" / name / "copyright"),
            )


def debian_licences(path: Path) -> tuple[str, ...]:
    """Return the licences that a machine-readable copyright file names; none of other files."""
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    if not content.startswith("Format:"):
        return ()
    names = (name.strip() for name in re.findall(r"^License: *(\S.*)$", content, re.M))
    return tuple(sorted({name for name in names if len(name) <= LONGEST_LICENCE}))


def python(distributions: Iterable[Any] | None = None) -> Iterator[Package]:
    """Yield Python's packages on our own path, each name once, as imports see them."""
    seen = set()
    for one in metadata.distributions() if distributions is None else distributions:
        fields: Any = one.metadata
        name = fields["Name"] if fields is not None else None
        if fields is None or not name or name.lower() in seen:
            continue  # a directory without metadata, or what a later entry of the path would have
        seen.add(name.lower())
        yield Package(sort="pypi", name=name, version=one.version, licences=python_licences(fields))


def python_licences(fields: Any) -> tuple[str, ...]:
    """Return a Python package's licences: its expression, else its classifiers, else a short name.

    ``fields`` is its metadata, a message as ``importlib.metadata`` gives it.
    """
    expression = fields.get("License-Expression")
    if expression:
        return (str(expression),)
    classifiers = (str(one) for one in fields.get_all("Classifier", []))
    names = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith(CLASSIFIER)]
    names = [name for name in names if name != "OSI Approved"]
    if names:
        return tuple(sorted(set(names)))
    short = str(fields.get("License", "")).strip()
    return (short,) if short and "\n" not in short and len(short) <= LONGEST_LICENCE else ()
