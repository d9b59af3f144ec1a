"""The allocation we run in: the hosts that Slurm, PBS or LSF gave to the surrounding job. Pure.

The environment and a function that reads files are handed in. What cannot be understood becomes a fault,
never an exception: the reader of the fault may not have written the variable, so its value is in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from ringleader.errors import Fault
from ringleader.plan.host_list import merge_hosts, parse_host_list, parse_hostfile
from ringleader.plan.job import Host
from ringleader.value_class import dataclass

MOST_HOSTS = 100_000
"""A list that expands to more is taken for a mistake."""

VARIABLES = ("SLURM_", "SLURMD_", "PBS_", "LSB_", "LS_", "LOADL_", "PE_HOSTFILE", "COBALT_", "FLUX_", "NB_")
"""Beginnings of batch systems' variables, by which an MPI would find an allocation and follow that, not our
hostfile."""

_OFF = "name the hosts with -H or --hostfile, or add --no-allocation to use this machine only"


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What a batch system gave to the job that we run in."""

    system: str
    """``Slurm``, ``PBS`` or ``LSF``."""
    source: str
    """The variables or the file that it was read from."""
    rule: str = ""
    """What gave every host its slots, in words; empty where the batch system says the slots itself."""
    hosts: tuple[Host, ...] = ()
    """In the batch system's order; every host has its slots."""
    faults: tuple[Fault, ...] = ()
    """What could not be understood there."""


def find_allocation(environ: Mapping[str, str], read: Callable[[str], str]) -> Allocation | None:
    """Return the allocation that the environment describes, or ``None``.

    ``read`` takes a path and returns the file's text; it may raise OSError.
    """
    for kind in ("HET", "PACK"):  # PACK: Slurm 17.11 to 19.05
        if (size := environ.get(f"SLURM_{kind}_SIZE", "1")) not in ("", "1"):
            return _slurm_components(kind, size, environ)
    if nodes := environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST"):
        return _slurm(nodes, environ)
    if path := environ.get("PBS_NODEFILE"):
        return _from_file("PBS", "PBS_NODEFILE", path, read)
    if pairs := environ.get("LSB_MCPU_HOSTS"):
        return _lsf(pairs)
    if path := environ.get("LSB_DJOB_HOSTFILE"):
        return _from_file("LSF", "LSB_DJOB_HOSTFILE", path, read)
    return None


def slurm_job_id(allocation: Allocation, environ: Mapping[str, str]) -> str | None:
    """Return by what number Slurm knows the job that we run in.

    ``None`` where it is none of Slurm's, or a heterogeneous one: its number is that of a component.
    """
    job_id = environ.get("SLURM_JOB_ID", "")
    ours = (
        allocation.system == "Slurm"
        and "_GROUP_" not in allocation.source
        and re.fullmatch(r"[0-9]+(_[0-9]+)?", job_id)
    )
    return job_id if ours else None


def expand_nodes(text: str) -> tuple[str, ...]:
    """Expand Slurm's list of nodes: ``n[01-03,7],gpu-1`` is n01 n02 n03 n7 gpu-1.

    Raises ValueError with one sentence where the text does not follow that grammar.
    """
    names: list[str] = []
    for part in _split_outside_brackets(text):
        pieces = re.findall(r"\[[^][]*\]|[^][]+", part)
        if not part or "".join(pieces) != part:
            raise ValueError(f"{part!r} in {text!r} has unmatched brackets or is empty")
        expanded = [""]
        for piece in pieces:
            ends = _ranges(piece[1:-1]) if piece.startswith("[") else [piece]
            if len(names) + len(expanded) * len(ends) > MOST_HOSTS:
                raise ValueError(f"{text!r} names more than {MOST_HOSTS} hosts")
            expanded = [start + end for start in expanded for end in ends]
        names += expanded
    return tuple(names)


def expand_counts(text: str) -> tuple[int, ...]:
    """Expand Slurm's counts per node: ``2(x3),1`` is 2 2 2 1. Raises ValueError as ``expand_nodes``."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,7})(?:\(x([0-9]{1,7})\))?", part.strip())
        if not match or int(match[1]) < 1:
            raise ValueError(f"{part!r} in {text!r} is not a count such as 2 or 2(x3)")
        times = int(match[2] or 1)
        if len(counts) + times > MOST_HOSTS:
            raise ValueError(f"{text!r} counts more than {MOST_HOSTS} hosts")
        counts += [int(match[1])] * times
    return tuple(counts)


def _split_outside_brackets(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _ranges(text: str) -> list[str]:
    """Expand ``01-03,7``; the width of a range's first number is kept."""
    ends: list[str] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if not match:
            raise ValueError(f"{part!r} is not a range such as 01-03")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low:
            raise ValueError(f"the range {part!r} runs backwards")
        if len(ends) + high - low >= MOST_HOSTS:
            raise ValueError(f"the range {part!r} names more than {MOST_HOSTS} hosts")
        ends += [str(number).zfill(len(match[1])) for number in range(low, high + 1)]
    return ends


def _slurm(nodes: str, environ: Mapping[str, str]) -> Allocation:
    """Read a Slurm job: tasks per node where it asked for tasks, else one rank for each GPU.

    Without either: Slurm's own tasks per node, and where it does not say them one rank for each CPU.
    """
    counts_from, rule = _slurm_rule(environ)
    source = "SLURM_JOB_NODELIST" + (f", {counts_from}" if counts_from else "")
    faults: list[Fault] = []
    names: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    try:
        names = expand_nodes(nodes)
    except ValueError as error:
        faults.append(Fault(where="SLURM_JOB_NODELIST", what=str(error), hint=_OFF))
    try:
        counts = _slurm_counts(counts_from, environ, len(names))
    except ValueError as error:
        faults.append(Fault(where=counts_from, what=str(error), hint=_OFF))
    if not faults and len(names) != len(counts):
        what = f"{len(counts)} counts for the {len(names)} nodes of SLURM_JOB_NODELIST"
        faults.append(Fault(where=counts_from, what=what, hint=_OFF))
    if faults:
        return Allocation(system="Slurm", source=source, faults=tuple(faults))
    return replace(_named("Slurm", source, list(zip(names, counts, strict=True))), rule=rule)


def _slurm_components(kind: str, size: str, environ: Mapping[str, str]) -> Allocation:
    """Read a heterogeneous job: each component's variables end in ``_HET_GROUP_0``, ``_HET_GROUP_1``, …

    Without an end they are those of the first component only.
    """
    if not re.fullmatch(r"[0-9]{1,4}", size):
        return _unreadable("Slurm", f"SLURM_{kind}_SIZE", f"{size[:80]!r} is not a number")
    parts, faults = [], []
    for number in range(int(size)):
        end = f"_{kind}_GROUP_{number}"
        own = {name.removesuffix(end): text for name, text in environ.items() if name.endswith(end)}
        nodes = own.get("SLURM_JOB_NODELIST") or own.get("SLURM_NODELIST")
        if not nodes:
            faults.append(Fault(where=f"SLURM_JOB_NODELIST{end}", what="is not set", hint=_OFF))
            continue
        parts.append(part := _slurm(nodes, own))
        faults += [replace(one, where=f"{one.where}{end}") for one in part.faults]
    return Allocation(
        system="Slurm",
        source=f"SLURM_JOB_NODELIST_{kind}_GROUP_0 to {int(size) - 1}",
        rule="; ".join(dict.fromkeys(part.rule for part in parts if part.rule)),
        hosts=() if faults else merge_hosts(host for part in parts for host in part.hosts),
        faults=tuple(faults),
    )


_TASKS_ASKED_FOR = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_GPU")
"""Set by sbatch and salloc only where the user gave the option. SLURM_TASKS_PER_NODE is always there: one
task a node where nobody asked for tasks, however many GPUs the node gives."""
_GPUS = ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE", "SLURM_GPUS", "SLURM_JOB_GPUS")
"""GPUs of each node, the surest first: the option for every node; those of the node that we are on; the
option for the whole job, to be shared out; the indices of this node's."""


def _slurm_rule(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return which variable tells the slots, and what it counts."""
    tasks = "SLURM_TASKS_PER_NODE" if environ.get("SLURM_TASKS_PER_NODE") else ""
    # In a step (srun, salloc's interactive one) the number of tasks is the step's, not the job's.
    steps = environ.get("SLURM_STEP_NUM_TASKS")
    if tasks and any(environ.get(name) not in (None, "", steps) for name in _TASKS_ASKED_FOR):
        return tasks, "one slot for each task"
    gpus = next((name for name in _GPUS if environ.get(name, "0") not in ("", "0")), "")
    if gpus:
        return gpus, "one slot for each GPU"
    if tasks:
        return tasks, "one slot for each task"
    if environ.get("SLURM_JOB_CPUS_PER_NODE"):
        return "SLURM_JOB_CPUS_PER_NODE", "one slot for each CPU"
    return "", "one slot a node"


def _slurm_counts(name: str, environ: Mapping[str, str], nodes: int) -> tuple[int, ...]:
    """Return the slots of each node by one variable. Raises ValueError with one sentence."""
    if not name:
        return (1,) * nodes
    text = environ[name]
    if name not in _GPUS:
        return expand_counts(text)
    if name == "SLURM_JOB_GPUS":
        return (len(_ranges(text)),) * nodes
    count = gpu_count(text)
    if name != "SLURM_GPUS" or not nodes:
        return (count,) * nodes
    if count % nodes:
        raise ValueError(f"{count} GPUs do not share out evenly among {nodes} nodes")
    return (count // nodes,) * nodes


def gpu_count(text: str) -> int:
    """Read Slurm's ``4``, ``h100:4`` and ``a100:2,h100:2``. Raises ValueError with one sentence."""
    total = 0
    for part in text.split(","):
        match = re.fullmatch(r"(?:[^:,()]+:)?([0-9]{1,6})", part.strip())
        if not match:
            raise ValueError(f"{part!r} in {text!r} is not a number of GPUs such as 4 or h100:4")
        total += int(match[1])
    if total < 1:
        raise ValueError(f"{text!r} counts no GPU")
    return total


_TASKS_OF = (
    ("a Slurm step (srun)", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("a launch of MPICH or Intel MPI", "PMI_SIZE", "PMI_RANK"),
    ("a launch of Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
)
"""(what started us, variable with how many of us there are, variable with which one we are)."""


def nested_launch(environ: Mapping[str, str]) -> Fault | None:
    """Return why no job may begin here: we are one of several copies, and each would start the whole job."""
    for what, size, rank in _TASKS_OF:
        copies = environ.get(size, "")
        if re.fullmatch(r"[0-9]{1,9}", copies) and int(copies) > 1 and environ.get(rank):
            said = f"this is task {environ[rank]} of {copies} of {what}"
            hint = (
                "start it once: in the batch script or salloc's shell without srun or mpirun in front, or "
                "with srun -N1 -n1; --no-allocation if every task is to start its own job on its machine"
            )
            return Fault(where=f"{size}={copies}", what=f"{said}: each would start the whole job", hint=hint)
    return None


def _lsf(text: str) -> Allocation:
    """Read LSF's ``h1 4 h2 4``."""
    words = text.split()
    names, counts = words[::2], words[1::2]
    if len(names) != len(counts) or not all(re.fullmatch(r"[1-9][0-9]{0,6}", count) for count in counts):
        what = f"{text[:200]!r} is not a list such as h1 4 h2 4"
        return _unreadable("LSF", "LSB_MCPU_HOSTS", what)
    return _named("LSF", "LSB_MCPU_HOSTS", list(zip(names, map(int, counts), strict=True)))


def _unreadable(system: str, source: str, what: str) -> Allocation:
    return Allocation(system=system, source=source, faults=(Fault(where=source, what=what, hint=_OFF),))


def _named(system: str, source: str, pairs: list[tuple[str, int]]) -> Allocation:
    """Check the names and join what is named twice."""
    faults = [
        Fault(where=source, what=f"{name[:80]!r} is not a host name", hint=_OFF)
        for name, _ in pairs
        if parse_host_list(name).hosts != (Host(name=name, slots=1),)
    ]
    hosts = merge_hosts(Host(name=name, slots=count) for name, count in pairs)
    return Allocation(system=system, source=source, hosts=() if faults else hosts, faults=tuple(faults))


def _from_file(system: str, variable: str, path: str, read: Callable[[str], str]) -> Allocation:
    """Read a file that names a host once for each slot."""
    source = f"{variable}={path}"
    try:
        text = read(path)
    except (OSError, UnicodeDecodeError) as error:
        return _unreadable(system, source, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    parsed = parse_hostfile(text, path)
    hosts = tuple(replace(host, slots=host.slots or 1) for host in parsed.hosts)
    faults = tuple(replace(fault, hint=_OFF) for fault in parsed.faults)
    return Allocation(system=system, source=source, hosts=() if faults else hosts, faults=faults)
