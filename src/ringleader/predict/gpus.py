"""GPUs by name, and the usual host of each, from ``gpus.toml``; every number with its source. Pure."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from ringleader.predict.networks import BETWEEN, WITHIN, Link, Network


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU in its usual host; 0: no source tells."""

    name: str
    words: tuple[str, ...]
    """What its driver calls it contains one of these."""
    kind: str
    """Of the link within a host: ``nvlink`` or ``pci``."""
    per_host: int = 0
    link: float = 0.0
    ring: float = 0.0
    switch: float = 0.0
    ports: int = 0
    port: float = 0.0
    carried: float = 0.0
    fill: float = 0.0
    peak: float = 0.0
    memory: float = 0.0
    memory_rate: float = 0.0
    gemm: float = 0.0
    attention: float = 0.0
    traffic: float = 0.0
    contention: float = 0.0
    sources: tuple[tuple[str, str], ...] = ()
    """Field and where its number is from."""

    def within(self) -> Link:
        """Return the link to the other GPUs of the host."""
        usual = WITHIN["nvlink" if self.kind == "nvlink" else "pcie"]
        return Link(
            name=f"{self.name}'s {'NVLink' if self.kind == 'nvlink' else 'PCIe'}",
            bandwidth=self.link,
            latency=usual.latency,
            efficiency=self.ring / self.link if self.ring else usual.efficiency,
            kind=self.kind,
            source=f"rate: {self.source('link')}; efficiency: {self.source('ring') or 'assumed'}",
        )

    def between(self) -> Link | None:
        """Return one port of the usual host; ``None``: no source names one."""
        if not self.port:
            return None
        return Link(
            name=f"{self.port * 8e-9:.0f} Gbit/s RDMA",
            bandwidth=self.port,
            latency=BETWEEN["ndr-infiniband"].latency,
            efficiency=self.carried,
            kind="net",
            source=f"rate: {self.source('port')}; efficiency: {self.source('carried')}",
        )

    def network(self, between: Link, ports: int) -> Network:
        """Return what connects these GPUs over ``ports`` ports of such links."""
        domain = self.per_host or 1
        return Network(
            name=between.name,
            between=between,
            within=self.within(),
            ports=ports,
            switch=self.switch * domain / (2 * (domain - 1)) if self.switch else 0.0,
            fill=self.fill,
        )

    def source(self, field: str) -> str:
        """Return where a number is from; empty: there is none."""
        return dict(self.sources).get(field, "")


@lru_cache(maxsize=1)
def gpus() -> dict[str, Gpu]:
    """Return all GPUs by name."""
    document = tomllib.loads((files(__package__) / "gpus.toml").read_text(encoding="utf-8"))
    sources: dict[str, str] = document.pop("sources")
    found = {}
    for name, table in document.items():
        values: dict[str, Any] = {**document.get(table.get("like"), {}), **table}
        numbers = {field: value for field, value in values.items() if isinstance(value, list)}
        words = tuple(numbers.pop("names"))
        found[name] = Gpu(
            name=name,
            words=words,
            kind=values["kind"],
            sources=tuple((field, sources[source]) for field, (_, source) in numbers.items()),
            **{field: value for field, (value, _) in numbers.items()},
        )
    return found


_OTHER_BOARDS = re.compile(r"PCIe|\bNVL\b", re.IGNORECASE)
"""Of a chip whose numbers are those of a module (SXM, OAM)."""


def gpu_called(product: str, *, any_board: bool = False) -> Gpu | None:
    """Return the GPU that a driver calls so (``NVIDIA H100 80GB HBM3``); the longest word counts.

    ``any_board``: also one whose name contains the word (``GH200``), or on another board (``H100 NVL``).
    """
    fitting = [
        (len(word), gpu)
        for gpu in gpus().values()
        for word in gpu.words
        if re.search(rf"{re.escape(word)}(?!\d)", product)
        and (
            any_board or (re.search(rf"\b{re.escape(word)}\b", product) and not _OTHER_BOARDS.search(product))
        )
    ]
    return max(fitting, key=lambda one: one[0])[1] if fitting else None
