"""The list of what is installed: Debian's and Python's packages, in CycloneDX 1.5.

The same packages give the same text.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ringleader import __version__
from ringleader.doctor.image_inspection import read_manifest
from ringleader.errors import Fault, RefusedError
from ringleader.images.recipe import RECORD

LONGEST_LICENSE = 100
"""Characters; what is longer is a license's text and no name."""
CLASSIFIER = "License :: "


@dataclass(frozen=True, kw_only=True)
class Package:
    """One thing that is installed."""

    sort: str
    """``deb`` or ``pypi``."""
    name: str
    version: str
    licenses: tuple[str, ...] = ()
    """As the package names them; empty where it does not say."""
    architecture: str = ""
    """Of Debian packages."""
    source: str = ""
    """The Debian source package, where it has another name."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What the list is of."""

    name: str
    version: str = ""
    """The image's recipe, by its digest."""
    distribution: str = ""
    """The operating system: ``debian-12``."""


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
                licenses=debian_licenses(root / "usr/share/doc" / name / "copyright"),
            )


def debian_licenses(path: Path) -> tuple[str, ...]:
    """Return the licenses that a machine-readable copyright file names; none of other files."""
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    if not content.startswith("Format:"):
        return ()
    names = (name.strip() for name in re.findall(r"^License: *(\S.*)$", content, re.M))
    return tuple(sorted({name for name in names if len(name) <= LONGEST_LICENSE}))


def python(distributions: Iterable[Any] | None = None) -> Iterator[Package]:
    """Yield Python's packages on our own path, each name once, as imports see them."""
    seen = set()
    for one in metadata.distributions() if distributions is None else distributions:
        fields: Any = one.metadata
        name = fields["Name"] if fields is not None else None
        if fields is None or not name or name.lower() in seen:
            continue  # a directory without metadata, or what a later entry of the path would have
        seen.add(name.lower())
        yield Package(sort="pypi", name=name, version=one.version, licenses=python_licenses(fields))


def python_licenses(fields: Any) -> tuple[str, ...]:
    """Return a Python package's licenses: its expression, else its classifiers, else a short name.

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
    return (short,) if short and "\n" not in short and len(short) <= LONGEST_LICENSE else ()


def text(subject: Subject, packages: Iterable[Package]) -> str:
    """Return the document as JSON."""
    return json.dumps(document(subject, packages), indent=2, ensure_ascii=False) + "\n"


def document(subject: Subject, packages: Iterable[Package]) -> dict[str, Any]:
    """Return the document. It has no date: its number follows from what is in it."""
    found = {purl(one, subject.distribution): one for one in packages}
    components = [_component(place, found[place]) for place in sorted(found)]
    itself: dict[str, Any] = {"type": "container", "bom-ref": "image", "name": subject.name}
    if subject.version:
        itself["version"] = subject.version
    tool = {"type": "application", "name": "ringleader", "version": __version__}
    content = json.dumps([itself, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"tools": {"components": [tool]}, "component": itself},
        "components": components,
        "dependencies": [{"ref": "image", "dependsOn": [one["bom-ref"] for one in components]}],
    }


def purl(package: Package, distribution: str = "") -> str:
    """Return a package's URL as the purl specification spells it."""
    if package.sort == "pypi":
        name = re.sub(r"[-_.]+", "-", package.name).lower()
        return f"pkg:pypi/{quote(name, safe='')}@{quote(package.version, safe='.~-_')}"
    vendor = distribution.partition("-")[0] or "debian"
    qualifiers = [f"arch={package.architecture}"] if package.architecture else []
    qualifiers += [f"distro={distribution}"] if distribution else []
    end = f"?{'&'.join(qualifiers)}" if qualifiers else ""
    name = quote(package.name, safe=".-_")
    return f"pkg:deb/{quote(vendor, safe='')}/{name}@{quote(package.version, safe='.~-_:')}{end}"


def _component(place: str, package: Package) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": place,
        "name": package.name,
        "version": package.version,
        "purl": place,
    }
    if package.licenses:
        found["licenses"] = [{"license": {"name": name}} for name in package.licenses]
    if package.source and package.source != package.name:
        found["properties"] = [{"name": "debian:source", "value": package.source}]
    return found
