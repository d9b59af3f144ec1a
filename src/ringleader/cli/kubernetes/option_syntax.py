"""How options of a cluster are written: amounts, labels, volumes, tolerations. Texts become values. Pure."""

from __future__ import annotations

import re
from typing import Any

from ringleader.cli.options.option_checks import Faults
from ringleader.launch.kubernetes.job_request import Mount, Pairs, SecretValue, Toleration
from ringleader.mpijob import quantities

_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
KINDS = ("claim", "config", "secret", "host", "nfs", "scratch")


def quantity(option: str, text: str | None, faults: Faults) -> str:
    """Return an amount such as ``500m`` or ``2Gi``; empty where there is none or it is none."""
    if text is None:
        return ""
    what = f"{text!r} is not a quantity" if text.startswith("-") else quantities.fault(text)
    if what:
        faults.add(option, what, "such as 4, 500m or 2Gi")
        return ""
    return text


def name(option: str, text: str, faults: Faults) -> str:
    """Return the name of an object on the cluster; empty where it can be none."""
    if not _NAME.fullmatch(text):
        faults.add(option, f"{text!r} cannot be a name", "use a-z, 0-9 and -")
        return ""
    return text


def labels(option: str, words: tuple[str, ...], faults: Faults) -> Pairs:
    """Read ``NAME=VALUE`` where both must be fit for a label."""
    found = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            faults.add(f"{option} {word}", "there is no value", "write NAME=VALUE")
        elif not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
            hint = (
                "letters, digits, - _ and ., at most 63 each; a prefix such as example.org/ may stand first"
            )
            faults.add(f"{option} {word}", "is not a label", hint)
        else:
            found.append((key, value))
    return tuple(found)


def notes(option: str, words: tuple[str, ...], faults: Faults) -> Pairs:
    """Read ``NAME=VALUE`` where the value may be any text."""
    found = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not _LABEL.fullmatch(key):
            faults.add(f"{option} {word}", "is not an annotation", "write NAME=TEXT")
        else:
            found.append((key, value))
    return tuple(found)


def amounts(option: str, words: tuple[str, ...], faults: Faults) -> Pairs:
    """Read ``NAME=AMOUNT``."""
    found = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not _LABEL.fullmatch(key):
            faults.add(f"{option} {word}", "is not a resource", "write NAME=AMOUNT, such as rdma/hca=1")
        elif quantity(f"{option} {key}", value, faults):
            found.append((key, value))
    return tuple(found)


def device(option: str, word: str, faults: Faults) -> str:
    """Read the name of a resource that a device plugin offers: only Kubernetes' own have no domain."""
    if not (_LABEL.fullmatch(word) and "/" in word):
        faults.add(option, f"{word!r} is not a resource of a device plugin", "such as nvidia.com/gpu")
    return word


def secret_values(option: str, words: tuple[str, ...], faults: Faults) -> tuple[SecretValue, ...]:
    """Read ``NAME=SECRET/KEY``."""
    found = []
    for word in words:
        variable, _, place = word.partition("=")
        secret, _, key = place.partition("/")
        if not (_VARIABLE.fullmatch(variable) and _NAME.fullmatch(secret) and key):
            faults.add(f"{option} {word}", "cannot be read", "write NAME=SECRET/KEY")
        else:
            found.append(SecretValue(name=variable, secret=secret, key=key))
    return tuple(found)


def tolerations(option: str, words: tuple[str, ...], faults: Faults) -> tuple[Toleration, ...]:
    """Read ``KEY[=VALUE][:EFFECT]``."""
    found = []
    for word in words:
        rest, colon, effect = word.partition(":")
        key, equals, value = rest.partition("=")
        if not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
            faults.add(f"{option} {word}", "cannot be read", "write KEY, KEY=VALUE or KEY=VALUE:NoSchedule")
        elif colon and effect not in EFFECTS:
            faults.add(f"{option} {word}", f"{effect!r} is not an effect", f"one of: {', '.join(EFFECTS)}")
        else:
            found.append(Toleration(key=key, value=value if equals else None, effect=effect))
    return tuple(found)


def mounts(claims: tuple[str, ...], volumes: tuple[str, ...], faults: Faults) -> tuple[Mount, ...]:
    """Read ``--claim`` and ``--volume``; no two may have the same path."""
    found = [_mount("--claim", word, f"claim:{word}", faults) for word in claims]
    found += [_mount("--volume", word, word, faults) for word in volumes]
    seen: set[str] = set()
    for mount in (one for one in found if one is not None):
        if mount.path in seen:
            faults.add("--volume", f"two volumes are mounted at {mount.path}")
        seen.add(mount.path)
    return tuple(one for one in found if one is not None)


def _mount(option: str, word: str, text: str, faults: Faults) -> Mount | None:
    kind, *parts = text.split(":")
    is_read_only = bool(parts) and parts[-1] == "ro"
    parts = parts[:-1] if is_read_only else parts
    if option == "--volume" and kind not in KINDS:
        faults.add(f"{option} {word}", f"{kind!r} is not a kind of volume", f"one of: {', '.join(KINDS)}")
        return None
    source = _source(kind, parts[:-1])
    path = parts[-1] if parts else ""
    if source is None or not path.startswith("/") or ":" in path:
        form = "NAME:/PATH[:ro]" if option == "--claim" else _FORMS[kind]
        faults.add(f"{option} {word}", "cannot be read", f"write {form}")
        return None
    return Mount(volume=source, path=path, read_only=is_read_only)


_FORMS = {
    "claim": "claim:NAME:/PATH[:ro]",
    "config": "config:NAME:/PATH",
    "secret": "secret:NAME:/PATH",
    "host": "host:/DIR:/PATH[:ro]",
    "nfs": "nfs:SERVER:/DIR:/PATH[:ro]",
    "scratch": "scratch:/PATH or scratch:10Gi:/PATH",
}


def _source(kind: str, parts: list[str]) -> dict[str, Any] | None:
    """Return the volume's source as a Pod has it."""
    match kind, parts:
        case "claim", [name] if _NAME.fullmatch(name):
            return {"persistentVolumeClaim": {"claimName": name}}
        case "config", [name] if _NAME.fullmatch(name):
            return {"configMap": {"name": name}}
        case "secret", [name] if _NAME.fullmatch(name):
            return {"secret": {"secretName": name}}
        case "host", [directory] if directory.startswith("/"):
            return {"hostPath": {"path": directory}}
        case "nfs", [server, directory] if server and directory.startswith("/"):
            return {"nfs": {"server": server, "path": directory}}
        case "scratch", []:
            return {"emptyDir": {}}
        case "scratch", [size] if not quantities.fault(size):
            return {"emptyDir": {"sizeLimit": size}}
        case _:
            return None
