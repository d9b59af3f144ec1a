"""ResourceQuota: how many objects a namespace may hold, and how much its Pods may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from tests.kube.fake import kinds
from tests.kube.fake.kinds import Kind
from tests.kube.fake.objects import Objects
from tests.kube.fake.refusals import forbidden
from tests.kube.fake.store import Document

_SCALE = {"m": "1e-3", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12"}
_SCALE |= {f"{word}i": str(1024 ** (power + 1)) for power, word in enumerate("KMGT")}
_COUNTED = ("pods", "services", "secrets", "configmaps")


def amount(text: str) -> Decimal:
    """A quantity as a number."""
    for unit in sorted(_SCALE, key=len, reverse=True):
        if text.endswith(unit):
            return Decimal(text.removesuffix(unit)) * Decimal(_SCALE[unit])
    return Decimal(text)


class Quota:
    """Stands at the door of creation."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        objects.admit.append(self.admit)

    def admit(self, kind: Kind, document: Document) -> None:
        """Refuse what a ResourceQuota of the namespace has no room for."""
        if not kind.namespaced or not self._objects.features.quota:
            return
        namespace = document["metadata"]["namespace"]
        quotas = self._objects.store.collection(_quota_kind(self._objects)).select(namespace)
        for entry in list(quotas.values()):
            found = entry.document()
            for name, limit in (found["spec"].get("hard") or {}).items():
                asked = sum(_asks(kind, document, name), Decimal(0))
                if not asked:
                    continue
                used = self._used(kind, namespace, name)
                if used + asked > amount(limit):
                    words = (
                        f"exceeded quota: {entry.key[1]}, requested: {name}={asked:f}, "
                        f"used: {name}={used:f}, limited: {name}={limit}"
                    )
                    raise forbidden(kind, document["metadata"]["name"], words)

    def _used(self, kind: Kind, namespace: str, name: str) -> Decimal:
        found = Decimal(0)
        for entry in self._objects.store.collection(kind).select(namespace).values():
            document = entry.document()
            is_over = (document.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            if not (kind is kinds.POD and is_over):
                found += sum(_asks(kind, document, name), Decimal(0))
        return found


def _quota_kind(objects: Objects) -> Kind:
    found = objects.kinds.find("", "v1", "resourcequotas")
    assert found is not None
    return found


def _asks(kind: Kind, document: Document, name: str) -> Iterator[Decimal]:
    """What one object takes of one of a quota's resources."""
    if name == f"count/{kind.qualified}" or (name == kind.plural and name in _COUNTED):
        yield Decimal(1)
    elif kind is kinds.POD:
        word, _, resource = name.rpartition(".") if "/" not in name else name.partition(".")
        part = "limits" if word == "limits" else "requests"
        for container in document["spec"]["containers"]:
            given = ((container.get("resources") or {}).get(part) or {}).get(resource)
            if given is not None:
                yield amount(given)
