"""What every host of a job is asked, and its answer as values. Pure.

``agents/host_facts_script.py`` answers, in JSON, on the host itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ringleader.agents.usable_cores import granted
from ringleader.plan.host_list import is_loopback
from ringleader.plan.job import Host, Job
from ringleader.plan.rank_placement import HostFacts, RdmaPort
from ringleader.render.rank_environment import search_path
from ringleader.value_class import dataclass

if TYPE_CHECKING:  # only jobs on hosts with RDMA devices pay for it
    from ringleader.fabric.facts import HostFacts as FabricFacts

MOST_NAMES = 32
"""Names of other hosts that each host is asked to resolve."""


Question = Mapping[str, Any]
"""What a host is asked: see ``host_facts_script.answer``. What it does not name is not asked about, and costs
nothing there."""


def question_of(job: Job, environ: Mapping[str, str], python: str) -> Question:
    """Return what this machine is asked where no other takes part. ``python``: the agents' interpreter."""
    word = job.command[0] if job.command else None
    script = interpreted_script(job.command)
    question = {
        "workdir": job.workdir,
        "interfaces": wanted_interfaces(job),
        "port": job.master_port,
        "program": str(Path(job.workdir, word)) if word and "/" in word else word,
        "path": search_path(job, environ, python),
        "interpreted": script,
        "is_python": script is not None and is_python(job.command[0]),
        "patience": job.patience if job.patience > 1 else None,
    }
    return {name: value for name, value in question.items() if value is not None}


def in_directory(question: Question, directory: str, *, exists: bool) -> Question:
    """Return what a host is asked whose ranks run in another directory; where it does not exist yet, nothing
    about its files."""
    if not exists:
        of_files = ("workdir", "script", "program", "interpreted")
        return {name: value for name, value in question.items() if name not in of_files}
    moved = {**question, "workdir": directory}
    program = question.get("program") or ""
    if program.startswith(f"{question['workdir']}/"):
        moved["program"] = directory + program[len(question["workdir"]) :]
    return moved


def some_names(names: Sequence[str]) -> list[str]:
    """Return the names that every host is to resolve: all, or of many the first and some spread evenly.

    So what is asked of resolvers grows with the hosts, not with their square. A host that lacks names seldom
    lacks one: its list of hosts, or its resolver, is another.
    """
    step = -(-len(names) // MOST_NAMES) or 1
    return list(dict.fromkeys(names[::step]))


def wanted_interfaces(job: Job) -> tuple[str, ...]:
    """Return the names in ``network_interface``."""
    return tuple(name.strip() for name in (job.network_interface or "").split(",") if name.strip())


@dataclass(frozen=True, kw_only=True)
class HostReport(HostFacts):
    """Everything that a host said: what placing ranks needs, and what has to be alike on all hosts."""

    python_version: str
    """Of the interpreter that answered, for example ``3.11.7``."""
    ringleader_version: str
    ringleader_checksum: str
    """One checksum of everything beside the agent: two builds of one version differ in it."""
    mpirun: str
    """Path of the MPI launcher there; empty where there is none (or it was not asked about)."""
    mpi_version: str
    interfaces: Mapping[str, tuple[str, ...]]
    """Addresses by interface name."""
    names: Mapping[str, tuple[str, ...]]
    """Addresses of the job's hosts by name, as it resolves them; empty where it does not."""
    script: str | None = None
    """SHA-256 of the script there, empty where it is missing; ``None``: not asked about."""
    program: str | None = None
    """Where the command's program is there, empty where it is missing; ``None``: not asked about."""
    workdir: bool
    """Whether the working directory exists there."""
    fabric: FabricFacts | None = None
    """What settings of transports follow from; ``None``: it has no RDMA device, or nobody asked."""
    unstartable: str = ""
    """Why the program there would not start although it is there; empty: it would."""
    unreadable: str = ""
    """Why the script that it is given cannot be read there; empty: it can, or there is none."""
    unread: tuple[str, ...] = ()
    """What did not answer in time there, and so is unknown: ``mpirun --version``, ``the name h2``."""

    @property
    def where(self) -> str:
        """The place of a fault of this host."""
        return f"host {self.host.name}"

    @property
    def all_unread(self) -> tuple[str, ...]:
        """What is not known of this host because it took too long, the facts of its devices included."""
        late = sorted(self.fabric.late_areas) if self.fabric is not None else ()
        return (*self.unread, *late)

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Names of hosts of the job that do not resolve there."""
        return tuple(name for name, found in self.names.items() if not found)

    @property
    def looped(self) -> tuple[str, ...]:
        """Names that mean itself there: they resolve to loopback addresses only."""
        return tuple(name for name, found in self.names.items() if found and all(map(is_loopback, found)))


def report_of(host: Host, answer: Mapping[str, Any], *, local_identity: str) -> HostReport:
    """Read a host's answer. Raises KeyError where it lacks what every one has."""
    ours, mpi = answer.get("ringleader", {}), answer.get("mpi", {})
    cpus, cpusets = cores_granted(tuple(tuple(core) for core in answer["cores"]), answer["cpu_limit"])
    as_they_are = ("program", "script", "unstartable", "unreadable", "port_taken", "directory", "code_by")
    return HostReport(
        host=host,
        hostname=answer["hostname"],
        identity=answer["identity"],
        is_local=answer["identity"] == local_identity,
        cpus=cpus,
        cpusets=cpusets,
        gpus=tuple(answer["gpus"]),
        addresses=tuple(answer["addresses"]),
        python=answer["python"][0],
        python_version=answer["python"][1],
        agent=ours.get("agent", ""),
        ringleader_version=ours.get("version", ""),
        ringleader_checksum=ours.get("checksum", ""),
        mpirun=mpi.get("mpirun", ""),
        mpi_version=mpi.get("version", ""),
        interfaces={name: tuple(found) for name, found in answer["interfaces"].items()},
        names={name: tuple(found) for name, found in answer["names"].items()},
        unread=tuple(answer.get("unread", ())),
        workdir=answer["workdir"],
        processes=answer["limits"].get("processes", -1),
        fabric=fabric_facts(answer.get("facts")),
        rdma=tuple(RdmaPort(**port) for port in answer.get("rdma", ())),
        **{name: answer[name] for name in as_they_are if name in answer},
    )


def fabric_facts(document: object) -> FabricFacts | None:
    """Read the facts in an answer; ``None`` where there are none, or a host wrote something else."""
    if document is None:
        return None
    from ringleader.dataclass_json import from_document
    from ringleader.fabric.facts import HostFacts

    try:
        return from_document(HostFacts, document)
    except (ValueError, TypeError):
        return None


def cores_granted(
    cores: tuple[tuple[int, ...], ...], limit: float | None
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return the CPU that stands for each core we may use, and the CPUs a rank given it is bound to.

    A rank is bound to all hardware threads of its cores. Under a quota smaller than the machine only so
    many cores count, and nobody is bound: other containers live on the same cores, and each of them
    would pick the first.
    """
    count = granted(len(cores), limit)
    if count >= len(cores):
        return tuple(core[0] for core in cores), cores
    everything = tuple(sorted(cpu for core in cores for cpu in core))
    return tuple(core[0] for core in cores[:count]), (everything,) * count


_PYTHON = re.compile(r"(python|pypy)[0-9.]*[a-z]?")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_VALUES_OF_PYTHON = ("-W", "-X", "--check-hash-based-pycs")
_VALUES_OF_SHELLS = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")


def is_python(program: str) -> bool:
    """Say whether a command's first word is a Python."""
    return _PYTHON.fullmatch(PurePosixPath(program).name) is not None


def interpreted_script(command: Sequence[str]) -> str | None:
    """Return the file that a Python or a shell is to run; ``None``: another program, or no file."""
    if not command or not (is_python(command[0]) or PurePosixPath(command[0]).name in _SHELLS):
        return None
    takes_value = _VALUES_OF_PYTHON if is_python(command[0]) else _VALUES_OF_SHELLS
    words = iter(command[1:])
    for word in words:
        if word == "--":
            return next(words, None)
        if not word.startswith(("-", "+")):
            return word
        if word == "-" or (not word.startswith("--") and set(word[1:]) & set("cms")):
            return None  # code, a module, or what comes on standard input
        if word in takes_value:
            next(words, None)
    return None


def script_of(job: Job) -> str | None:
    """Return the word of the command that is a script every host must have alike; ``None``: there is none.

    Whether the file exists is for the host to say. A program of the system (``/usr/bin/python3``) may differ.
    """
    for index, word in enumerate(job.command):
        if word.endswith((".py", ".pyz", ".sh")) or (index == 0 and word.startswith(("./", "../"))):
            return word
    return None
