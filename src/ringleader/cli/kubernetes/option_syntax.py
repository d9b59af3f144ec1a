"""How options of a cluster are written: amounts, labels, volumes, tolerations. Each reads one word. Pure.

Each raises WrongValueError for a word that is none. `kubernetes_options` says which option is read by which.
"""

from __future__ import annotations

import re
from typing import Any

from ringleader.kubernetes.jobs.job_request import Mount, SecretValue, Toleration
from ringleader.kubernetes.mpijob import quantities
from ringleader.kubernetes.mpijob.object_names import is_namespace
from ringleader.option_fields import WrongValueError

_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
KINDS = ("claim", "config", "secret", "host", "nfs", "scratch")


def quantity(text: str, word: str = "") -> str:
    """Read an amount such as ``500m`` or ``2Gi``; ``word``: of which it is a part."""
    what = f"{text!r} is not a quantity" if text.startswith("-") else quantities.fault(text)
    if what:
        raise WrongValueError(what, "such as 4, 500m or 2Gi", word)
    return text


def quantity_or_none(text: str) -> str | None:
    """Read an amount, or ``none``."""
    return None if text == "none" else quantity(text)


def name(text: str) -> str:
    """Read the name of an object on the cluster."""
    if not _NAME.fullmatch(text):
        raise WrongValueError(f"{text!r} cannot be a name", "use a-z, 0-9 and -")
    return text


def namespace(text: str) -> str:
    """Read the name of a namespace."""
    if not is_namespace(text):
        raise WrongValueError(f"{text!r} is not a namespace's name", "use a-z, 0-9 and -")
    return text


def path(text: str) -> str:
    """Read a path in the image."""
    if not text.startswith("/"):
        raise WrongValueError(f"{text!r} is not absolute", "a path in the image: /workspace")
    return text


def is_device(word: str) -> bool:
    """Say whether it names a resource of a device plugin: only Kubernetes' own have no domain."""
    return "/" in word and _LABEL.fullmatch(word) is not None


def label(word: str) -> tuple[str, str]:
    """Read ``NAME=VALUE`` where both must be fit for a label."""
    key, equals, value = word.partition("=")
    if not equals:
        raise WrongValueError("there is no value", "write NAME=VALUE", word)
    if not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
        hint = "letters, digits, - _ and ., at most 63 each; a prefix such as example.org/ may stand first"
        raise WrongValueError("is not a label", hint, word)
    return key, value


def annotation(word: str) -> tuple[str, str]:
    """Read ``NAME=VALUE`` where the value may be any text."""
    key, equals, value = word.partition("=")
    if not equals or not _LABEL.fullmatch(key):
        raise WrongValueError("is not an annotation", "write NAME=TEXT", word)
    return key, value


def resource(word: str) -> tuple[str, str]:
    """Read ``NAME=AMOUNT``."""
    key, equals, value = word.partition("=")
    if not equals or not _LABEL.fullmatch(key):
        raise WrongValueError("is not a resource", "write NAME=AMOUNT, such as rdma/hca=1", word)
    return key, quantity(value, key)


def secret_value(word: str) -> SecretValue:
    """Read ``NAME=SECRET/KEY``."""
    variable, _, place = word.partition("=")
    secret, _, key = place.partition("/")
    if not (_VARIABLE.fullmatch(variable) and _NAME.fullmatch(secret) and key):
        raise WrongValueError("cannot be read", "write NAME=SECRET/KEY", word)
    return SecretValue(name=variable, secret=secret, key=key)


def toleration(word: str) -> Toleration:
    """Read ``KEY[=VALUE][:EFFECT]``."""
    rest, colon, effect = word.partition(":")
    key, equals, value = rest.partition("=")
    if not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
        raise WrongValueError("cannot be read", "write KEY, KEY=VALUE or KEY=VALUE:NoSchedule", word)
    if colon and effect not in EFFECTS:
        raise WrongValueError(f"{effect!r} is not an effect", f"one of: {', '.join(EFFECTS)}", word)
    return Toleration(key=key, value=value if equals else None, effect=effect)


def claim(word: str) -> Mount:
    """Read ``NAME:/PATH[:ro]``."""
    return _mount(word, f"claim:{word}", "NAME:/PATH[:ro]")


def volume(word: str) -> Mount:
    """Read ``KIND:SOURCE:/PATH[:ro]``."""
    kind = word.partition(":")[0]
    if kind not in KINDS:
        raise WrongValueError(f"{kind!r} is not a kind of volume", f"one of: {', '.join(KINDS)}", word)
    return _mount(word, word, _FORMS[kind])


def _mount(word: str, text: str, form: str) -> Mount:
    kind, *parts = text.split(":")
    is_read_only = bool(parts) and parts[-1] == "ro"
    parts = parts[:-1] if is_read_only else parts
    source = _source(kind, parts[:-1])
    place = parts[-1] if parts else ""
    if source is None or not place.startswith("/"):
        raise WrongValueError("cannot be read", f"write {form}", word)
    return Mount(volume=source, path=place, read_only=is_read_only)


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
