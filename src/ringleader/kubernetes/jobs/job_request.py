"""What a user asks of a cluster: a job made of options, and how single words of them are written. Pure.

Each function reads one word, and raises WrongValueError for one that cannot be read; `pod_options` says which
option is read by which.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ringleader.kubernetes.jobs.pod_options import RINGLEADER, Json, Mount, PodOptions, PolicyOptions
from ringleader.kubernetes.mpijob import quantities
from ringleader.kubernetes.mpijob.annotations import SPAWN_EXEC
from ringleader.kubernetes.mpijob.model import MpiImplementation
from ringleader.kubernetes.mpijob.object_names import is_namespace
from ringleader.option_fields import WrongValueError
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.value_class import dataclass

if TYPE_CHECKING:
    from ringleader.kubernetes.rdma.request import NicAllocation

Pairs = tuple[tuple[str, str], ...]
"""Names with their values, in the order in which they were given."""
OUTCOME, REPORT, RUNS = "outcome.json", "report", "runs"
"""What a launcher may send back: a run's outcome, its record, directories of measurements."""
_MEASURES = ("bench", "scale", "doctor", "run")
DEFAULT_SSH_PATH = "/root/.ssh"
"""Where ssh keys are unless the image wants them elsewhere."""
_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, kw_only=True)
class JobRequest(PodOptions, PolicyOptions):
    """A complete request for a job of ``np`` ranks: its options, and what was worked out of them."""

    name: str
    namespace: str = ""
    """Empty: that of the context."""
    command: tuple[str, ...]
    """What every rank runs, byte for byte; no shell looks at it."""
    image: str
    np: int
    slots: int = 1
    """Ranks that a worker takes."""
    mpirun_args: tuple[str, ...] = ()
    elastic: ElasticOptions | None = None
    """Between which bounds the job may change; ``None``: it does not."""
    check: bool = False
    """Check each Pod's node before its ranks may start."""
    run_words: tuple[str, ...] = ()
    """Options for the `ringleader run` that starts the ranks, where that does."""
    returned: tuple[str, ...] = ()
    """What the launcher sends back at its end (`cli.returned_files`), of OUTCOME, REPORT and RUNS."""
    start_np: int | None = None
    """Of an elastic job: ranks to begin with, for which it waits; ``None``: any that may be."""
    by_node: bool = False
    """Give ranks to the workers in turn instead of filling one after the other."""
    env: Pairs = ()
    master_port: int = 29500
    """Where ranks of ``torch.distributed`` meet, on the host of rank 0."""
    workdir: str = ""
    """Empty: the image's own."""
    resources: Pairs = ()
    """What each worker gets: requested, and its limit too. ``nvidia.com/gpu``, ``cpu``, ``memory`` …"""
    rdma: NicAllocation | None = None
    """NICs of each worker."""
    shm_size: str | None = ""
    """Limit of /dev/shm in memory; empty: the container's memory limit. ``None``: the runtime's 64 MiB."""
    timeout: int | None = None
    """Seconds that the job may run."""

    @property
    def mpi(self) -> MpiImplementation:
        """The MPI in the image."""
        return MpiImplementation(self.mpi_implementation)

    @property
    def own_command(self) -> tuple[str, ...]:
        """The command of Ringleader that COMMAND is, as ``bench p2p``, which has the workers as its hosts."""
        return own_command(self.command)

    @property
    def has_ringleader(self) -> bool:
        """Whether Ringleader runs in the launcher, not mpirun."""
        return self.launch_with == RINGLEADER or self.elastic is not None or bool(self.own_command)

    @property
    def launcher_resources(self) -> Pairs:
        """What the launcher gets, unless ranks run in it."""
        return named_amounts(cpu=self.launcher_cpu, memory=self.launcher_memory)

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """All volumes that the containers see."""
        return (*self.claim, *self.mount)

    @property
    def ssh_path(self) -> str:
        """Where ssh looks for keys in the image."""
        return self.ssh_auth_mount_path or DEFAULT_SSH_PATH

    @property
    def ssh_port(self) -> int | None:
        """Port of the workers' sshd where the job decides it; ``None``: the image does, or none runs."""
        return None if self.rdma is None or self.spawn == SPAWN_EXEC else self.rdma.ssh_port

    @property
    def workers(self) -> int:
        """Workers that take all ranks; one less where the launcher takes its share."""
        hosts = -(-self.np // max(1, self.slots))
        return hosts - 1 if self.run_launcher_as_worker else hosts


def own_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return which command of Ringleader a COMMAND is, if it starts ranks by itself; else nothing."""
    name, verb, *rest = (*command, "", "")
    if name.rpartition("/")[2] != "ringleader" or verb not in _MEASURES:
        return ()
    if verb == "doctor" and "--image" in rest:
        return ()  # it tests where it is
    return (verb, rest[0]) if verb == "bench" and rest[0] and not rest[0].startswith("-") else (verb,)


def named_amounts(**amounts: str | None) -> Pairs:
    """Return the amounts that were given."""
    return tuple((name, amount) for name, amount in amounts.items() if amount)


def quantity(text: str, word: str = "") -> str:
    """Read an amount such as ``500m`` or ``2Gi``; ``word``: of which it is a part."""
    what = f"{text!r} is not a quantity" if text.startswith("-") else quantities.fault(text)
    if what:
        raise WrongValueError(what, "such as 4, 500m or 2Gi", word)
    return text


def quantity_or_none(text: str) -> str:
    """Read an amount, or ``none``."""
    return text if text == "none" else quantity(text)


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


def annotation(word: str, what: str = "an annotation", form: str = "NAME=TEXT") -> tuple[str, str]:
    """Read ``NAME=VALUE`` where the value may be any text."""
    key, equals, value = word.partition("=")
    if not equals or not _LABEL.fullmatch(key):
        raise WrongValueError(f"is not {what}", f"write {form}", word)
    return key, value


def resource(word: str) -> tuple[str, str]:
    """Read ``NAME=AMOUNT``."""
    key, value = annotation(word, "a resource", "NAME=AMOUNT, such as rdma/hca=1")
    return key, quantity(value, key)


def topology(word: str) -> str:
    """Read ``required:LABEL`` or ``preferred:LABEL``."""
    how, _, key = word.partition(":")
    if how not in ("required", "preferred") or not _LABEL.fullmatch(key):
        hint = "required:LABEL or preferred:LABEL, such as required:cloud.provider.com/topology-rack"
        raise WrongValueError("cannot be read", hint, word)
    return word


def secret_value(word: str) -> Json:
    """Read ``NAME=SECRET/KEY``; return the variable as a container has it."""
    variable, _, place = word.partition("=")
    secret, _, key = place.partition("/")
    if not (_VARIABLE.fullmatch(variable) and _NAME.fullmatch(secret) and key):
        raise WrongValueError("cannot be read", "write NAME=SECRET/KEY", word)
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def toleration(word: str) -> Json:
    """Read ``KEY[=VALUE][:EFFECT]``; return the toleration as a Pod has it."""
    rest, colon, effect = word.partition(":")
    key, equals, value = rest.partition("=")
    if not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
        raise WrongValueError("cannot be read", "write KEY, KEY=VALUE or KEY=VALUE:NoSchedule", word)
    if colon and effect not in EFFECTS:
        raise WrongValueError(f"{effect!r} is not an effect", f"one of: {', '.join(EFFECTS)}", word)
    found = (
        {"key": key, "operator": "Equal", "value": value} if equals else {"key": key, "operator": "Exists"}
    )
    return found | ({"effect": effect} if effect else {})


def claim(word: str) -> Mount:
    """Read ``NAME:/PATH[:ro]``."""
    return _mount(word, f"claim:{word}", "NAME:/PATH[:ro]")


def volume(word: str) -> Mount:
    """Read ``KIND:SOURCE:/PATH[:ro]``."""
    kind = word.partition(":")[0]
    if kind not in _FORMS:
        raise WrongValueError(f"{kind!r} is not a kind of volume", f"one of: {', '.join(_FORMS)}", word)
    return _mount(word, word, _FORMS[kind])


def _mount(word: str, text: str, form: str) -> Mount:
    kind, *parts = text.split(":")
    is_read_only = bool(parts) and parts[-1] == "ro"
    parts = parts[:-1] if is_read_only else parts
    source = _source(kind, parts[:-1])
    place = parts[-1] if parts else ""
    if source is None or not place.startswith("/"):
        raise WrongValueError("cannot be read", f"write {form}", word)
    return source, {"mountPath": place, **({"readOnly": True} if is_read_only else {})}


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
