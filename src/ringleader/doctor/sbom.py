"""A list of what is installed, in CycloneDX 1.5: the same packages give the same text. Pure."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ringleader import __version__


@dataclass(frozen=True, kw_only=True)
class Package:
    """One thing that is installed."""

    sort: str
    """``deb`` or ``pypi``."""
    name: str
    version: str
    licences: tuple[str, ...] = ()
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
    if package.licences:
        found["licenses"] = [{"license": {"name": name}} for name in package.licences]
    if package.source and package.source != package.name:
        found["properties"] = [{"name": "debian:source", "value": package.source}]
    return found
