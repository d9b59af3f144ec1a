"""Kubeconfig files as ``kubectl`` reads them: which files count, what wins where several say it, one context.

Of several files the first that names a cluster, a user, a context or the current context wins; files of
KUBECONFIG that are not there are passed over. What their entries mean is read in ``kubeconfig_credentials``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringleader.errors import Fault, RequestError, collected
from ringleader.text_files import read_text

_SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
"""List in a kubeconfig → the field of its items that holds the content."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One named cluster, user or context."""

    name: str
    value: Mapping[str, Any]
    file: Path
    """Where it stands: paths in it are relative to that file's folder."""
    line: int

    @property
    def where(self) -> str:
        """Return ``file:line``."""
        return f"{self.file}:{self.line}" if self.line else str(self.file)


@dataclass(frozen=True, kw_only=True)
class Kubeconfig:
    """What all files together say."""

    files: tuple[Path, ...] = ()
    current: str = ""
    """``current-context``; empty where no file sets it."""
    clusters: Mapping[str, Entry] = field(default_factory=dict)
    users: Mapping[str, Entry] = field(default_factory=dict)
    contexts: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True where it says nothing of any cluster, as without any file."""
        return not (self.clusters or self.contexts or self.current)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """One context with what it leads to."""

    context: str
    namespace: str
    """Empty where the context names none."""
    cluster: Entry
    user: Entry | None


def files_of(kubeconfig: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files that count and are there: the one named, those of KUBECONFIG, or ~/.kube/config.

    A file that the user named must be there: RequestError. Those of KUBECONFIG need not.
    """
    if kubeconfig:
        named = Path(kubeconfig).expanduser()
        if not os.path.exists(named):  # noqa: PTH110 - a name without end is that of no file, too
            raise RequestError(Fault(where="--kubeconfig", what=f"{named}: no such file"))
        return (named,)
    listed = [Path(word) for word in environ.get("KUBECONFIG", "").split(":") if word]
    if not listed and environ.get("HOME"):
        listed = [Path(environ["HOME"]) / ".kube/config"]
    return tuple(dict.fromkeys(path for path in listed if os.path.exists(path)))  # noqa: PTH110


def read(files: tuple[Path, ...]) -> Kubeconfig:
    """Read and merge files. RequestError with every fault of every file, by file and line."""
    faults: list[Fault] = []
    current = ""
    merged: dict[str, dict[str, Entry]] = {section: {} for section in _SECTIONS}
    for path in files:
        with collected(faults):
            said, sections = _read_file(path)
            current = current or said
            for section, entries in sections.items():
                for entry in entries:
                    merged[section].setdefault(entry.name, entry)
    if faults:
        raise RequestError(faults)
    return Kubeconfig(files=files, current=current, **merged)


def choose(config: Kubeconfig, context: str | None) -> Chosen:
    """Return a context by name, or the current one. RequestError names those that there are."""
    name = context or config.current
    known = _list(config.contexts)
    if not name:
        raise RequestError(
            Fault(
                where=_names(config.files),
                what="no current-context is set",
                hint=f"give --context NAME or run `kubectl config use-context NAME` ({known})",
            )
        )
    entry = config.contexts.get(name)
    if entry is None:
        place = "--context" if context else _names(config.files)
        said = "" if context else "the current-context "
        raise RequestError(Fault(where=place, what=f"{said}{name!r} is not a context ({known})"))
    return _resolve(config, entry)


def _resolve(config: Kubeconfig, entry: Entry) -> Chosen:
    user_name, cluster_name = text_of(entry, "user"), text_of(entry, "cluster")
    named = (("cluster", cluster_name, config.clusters), ("user", user_name, config.users))
    faults = [
        Fault(where=entry.where, what=f"context {entry.name!r}: there is no {kind} {name!r} ({_list(known)})")
        for kind, name, known in named
        if name not in known and (name or kind == "cluster")
    ]
    if faults:
        raise RequestError(faults)
    return Chosen(
        context=entry.name,
        namespace=text_of(entry, "namespace"),
        cluster=config.clusters[cluster_name],
        user=config.users[user_name] if user_name else None,
    )


def text_of(entry: Entry, key: str) -> str:
    """Return a text of an entry, empty where it is not there. RequestError for what is not text."""
    value = entry.value.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RequestError(Fault(where=f"{entry.where} {entry.name}.{key}", what=f"{value!r} is not text"))
    return value


def _list(known: Mapping[str, Entry]) -> str:
    return f"there are: {', '.join(sorted(known))}" if known else "there are none"


def _names(files: tuple[Path, ...]) -> str:
    return ":".join(str(path) for path in files) or "kubeconfig"


def _read_file(path: Path) -> tuple[str, dict[str, list[Entry]]]:
    """Return the current context and the entries of one file."""
    from ringleader.kubernetes.mpijob.yaml_text import documents

    try:
        text = read_text(path)
    except OSError as error:
        raise RequestError(Fault(where=str(path), what=f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError:
        raise RequestError(Fault(where=str(path), what="is not text in UTF-8"))
    found = documents(text, str(path))
    if not found:
        return "", {}
    value, lines = found[0].value, found[0].places.lines
    if not isinstance(value, dict):
        raise RequestError(Fault(where=f"{path}:1", what="is not a kubeconfig: a map is wanted"))
    faults: list[Fault] = []
    sections = {section: _entries(path, value, section, lines, faults) for section in _SECTIONS}
    current = value.get("current-context") or ""
    if not isinstance(current, str):
        line = lines.get(("current-context",), 1)
        faults.append(Fault(where=f"{path}:{line} current-context", what=f"{current!r} is not text"))
    if faults:
        raise RequestError(faults)
    return current, sections


def _entries(
    path: Path,
    value: Mapping[str, Any],
    section: str,
    lines: Mapping[tuple[str | int, ...], int],
    faults: list[Fault],
) -> list[Entry]:
    items = value.get(section) or []
    if not isinstance(items, list):
        faults.append(Fault(where=f"{path}:{lines.get((section,), 1)} {section}", what="a list is wanted"))
        return []
    found = []
    for index, item in enumerate(items):
        line = lines.get((section, index), 0)
        content = (item.get(_SECTIONS[section]) or {}) if isinstance(item, dict) else None
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(content, dict) or not isinstance(name, str) or not name:
            what = f"each of {section} needs a name and a map called {_SECTIONS[section]}"
            faults.append(Fault(where=f"{path}:{line} {section}[{index}]", what=what))
            continue
        found.append(Entry(name=name, value=content, file=path, line=line))
    return found
