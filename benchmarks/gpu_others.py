"""Parts of `gpu.py` without PyTorch: doctor's facts against what `nvidia-smi` prints, and JAX's arrays.

What tries PyTorch is in gpu_operations.py and gpu_training.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from gpu_process import END, HERE, REHEARSAL, NotRunError, Report
from ringleader.dataclass_json import from_document
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.topology.matrix import differences, parse_nvidia_smi, topology_matrix

FIELDS = (
    *("index", "uuid", "pci.bus_id", "name", "memory.total", "driver_version", "persistence_mode"),
    *("ecc.errors.uncorrected.volatile.total", "compute_mode"),
)
QUESTIONS = {
    "gpus": (f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"),
    "nvlink": ("nvlink", "--status"),
    "topology": ("topo", "-m"),
}


def nvidia_smi(seconds: float) -> dict[str, str]:
    """Return what nvidia-smi prints to each of `QUESTIONS`; empty where there is no such program."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    printed = {}
    for name, words in QUESTIONS.items():
        done = subprocess.run(
            [program, *words],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        printed[name] = done.stdout if done.returncode == 0 else ""
    return printed


def differences_from_nvidia_smi(document: Any, printed: Mapping[str, str]) -> list[str]:
    """Return where facts of a host say something else than nvidia-smi. Pure.

    ``document``: what ``ringleader doctor --facts`` prints. What nvidia-smi does not know (``[N/A]``), or
    could not be asked, is compared with nothing.
    """
    facts = from_document(HostFacts, document)
    rows = [dict(zip(FIELDS, _cells(line), strict=False)) for line in printed.get("gpus", "").splitlines()]
    found = list(_of_gpus(facts, rows))
    links = _active_links(printed.get("nvlink", ""))
    for gpu in facts.gpus:
        told = links.get(gpu.uuid)
        if told is not None and (gpu.nvlinks_active or 0) != told:
            found.append(f"GPU {gpu.index}: {gpu.nvlinks_active} NVLinks up here, {told} there")
    if "GPU0" in printed.get("topology", ""):
        found += differences(topology_matrix(facts), parse_nvidia_smi(printed["topology"]))
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]


def _of_gpus(facts: HostFacts, rows: list[dict[str, str]]) -> Iterator[str]:
    usable = {gpu.uuid: gpu for gpu in facts.gpus if gpu.uuid}
    if not rows:
        yield f"nvidia-smi names no GPU, doctor {len(facts.gpus)}"
    for row in rows:
        gpu = usable.get(row.get("uuid", ""))
        if gpu is None:
            yield f"{row.get('uuid')} is not among doctor's GPUs ({', '.join(usable) or facts.nvidia.nvml})"
            continue
        memory = None if gpu.memory is None else str(gpu.memory >> 20)
        pairs = {
            "index": str(gpu.index),
            "pci.bus_id": gpu.pci_address,
            "name": gpu.name,
            "memory.total": memory,
            "driver_version": facts.nvidia.version,
            "persistence_mode": {True: "Enabled", False: "Disabled", None: None}[gpu.persistence],
            "ecc.errors.uncorrected.volatile.total": None
            if gpu.uncorrected_errors is None
            else str(gpu.uncorrected_errors),
        }
        for field, ours in pairs.items():
            theirs = row.get(field, "")
            if field == "pci.bus_id":
                theirs = theirs.lower()[-len(gpu.pci_address) :]  # eight digits of domain there, four here
            if theirs and not theirs.startswith("[") and theirs != str(ours):
                yield f"{field}: {ours} here, {theirs} there"


def _active_links(text: str) -> dict[str, int]:
    """Return for each UUID how many NVLinks are up, of ``nvidia-smi nvlink --status``."""
    counts: dict[str, int] = {}
    uuid = ""
    for line in text.splitlines():
        if named := re.search(r"UUID: (\S+?)\)", line):
            uuid = named[1]
            counts[uuid] = 0
        elif uuid and re.match(r"\s*Link \d+: [\d.]+ GB/s", line):
            counts[uuid] += 1
    return counts


def doctor(report: Report) -> str:
    """Compare what doctor reads from NVML and sysfs with what nvidia-smi prints."""
    report.stage("ringleader doctor --facts")
    command = [sys.executable, "-m", "ringleader", "doctor", "--facts"]
    environ = {**os.environ, "PYTHONPATH": f"{HERE.parent / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        command,
        env=environ,
        capture_output=True,
        text=True,
        timeout=max(5.0, END - time.time() - 8.0),
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-300:]}"
    facts = json.loads(done.stdout)
    report.details.update(gpus=facts["gpus"], nvidia=facts["nvidia"])
    report.stage("nvidia-smi")
    printed = nvidia_smi(10.0)
    if not printed:
        if REHEARSAL:
            return "there is no nvidia-smi here; doctor's facts were read"
        raise NotRunError("there is no nvidia-smi to compare with")
    report.details["nvidia-smi"] = printed
    found = differences_from_nvidia_smi(facts, printed)
    assert not found, "; ".join(found)
    return (
        f"{len(facts['gpus'])} GPU: name, UUID, PCI address, memory, driver, ECC, NVLinks and topology agree"
    )


def jax_arrays(report: Report) -> str:
    """Reduce JAX's arrays on the GPU, eagerly and inside of jit; they go through the host."""
    report.stage("import jax")
    try:
        import jax
        import jax.numpy as jnp
    except ImportError as error:
        raise NotRunError(f"JAX cannot be imported: {error}") from None

    import ringleader.jax as hvd_jax

    hvd_jax.init()
    report.stage("jax.devices")
    here = jax.devices()[0]
    if here.platform not in ("gpu", "cuda") and not REHEARSAL:
        raise NotRunError(f"JAX {jax.__version__} has no GPU here: its device is {here}")
    rank, size = hvd_jax.rank(), hvd_jax.size()
    mine = jax.device_put(jnp.full((1024,), rank + 1.0), here)

    def check(result: Any, want: float, what: str) -> None:
        assert result.devices() == {here}, f"{what}: on {result.devices()}"
        assert bool((result == want).all()), f"{what}: {result[:3]}, not {want}"

    total = size * (size + 1) / 2
    report.stage("allreduce")
    check(hvd_jax.allreduce(mine, op=hvd_jax.Sum), total, "allreduce")
    report.stage("allreduce inside of jit")
    twice = jax.jit(lambda one: 2 * hvd_jax.allreduce(one, op=hvd_jax.Sum))
    for _ in range(3):
        check(twice(mine), 2 * total, "allreduce inside of jit")
    report.stage("allgather and broadcast")
    assert hvd_jax.allgather(mine).shape == (1024 * size,)
    check(hvd_jax.broadcast(mine, size - 1), float(size), "broadcast")
    report.stage("a gradient through it")
    gradient = jax.grad(lambda one: hvd_jax.allreduce(one, op=hvd_jax.Sum).sum())(mine)
    check(gradient, float(size), "the gradient of allreduce")
    hvd_jax.shutdown()
    return f"JAX {jax.__version__} on {here.platform}"
