"""The language of stories (``tests.stories``) about what is decided of one MPIJob.

A story may begin with ``job`` and what the job asks for. After the happenings of a line there are passes
until nothing is left to do, unless the last happening is ``look``, ``step`` or ``partly``.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from tests.kube.fake.server import merge
from tests.stories import check, fields, happenings_and_facts, value_of
from tests.unit.decide_world import SETTINGS, World, make_job

from ringleader.kubernetes.client import api_resources
from ringleader.kubernetes.mpijob import annotations
from ringleader.kubernetes.mpijob.status import ConditionType
from ringleader.kubernetes.operator.decide.decision import (
    Action,
    Create,
    CreateKeys,
    CreateWorker,
    Decision,
    Rejection,
    target,
)
from ringleader.kubernetes.pod_view import ContainerView, PodView

NOTES = {
    "policy": annotations.ON_WORKER_FAILURE,
    "limit": annotations.RESTART_LIMIT,
    "least": annotations.MIN_WORKERS,
    "most": annotations.MAX_WORKERS,
    "spawn": annotations.SPAWN,
    "gang": annotations.GANG,
    "layout": annotations.SSH_LAYOUT,
    "key": annotations.SSH_KEY_TYPE,
    "profile": annotations.RDMA_PROFILE,
    "check": annotations.CHECK,
}
"""Word of a ``job`` line → annotation."""
RUN_POLICY = {
    "clean": "cleanPodPolicy",
    "ttl": "ttlSecondsAfterFinished",
    "deadline": "activeDeadlineSeconds",
    "backoff": "backoffLimit",
    "suspend": "suspend",
}
SPEC = {"creation": "launcherCreationPolicy", "as-worker": "runLauncherAsWorker"}
TEMPLATE = {"restart-policy": "restartPolicy", "account": "serviceAccountName"}
OPERATOR = {"scheduler": "gang", "image": "image", "logs": "has_log_tails", "exec": "has_exec_spawn"}
NAMES = {"ConfigMap": "pi-config", "Secret": "pi-ssh", "Job": "pi-launcher", "Pod": "pi-worker-1"}
"""Kind → name of the job's object; of the others it is the job's."""
RESOURCES = {
    one.kind: one
    for one in (
        *(api_resources.PODS, api_resources.JOBS, api_resources.SERVICES, api_resources.CONFIG_MAPS),
        *(api_resources.SECRETS, api_resources.MPIJOBS, api_resources.VOLCANO_POD_GROUPS),
    )
}


def play(lines: list[str]) -> None:
    """Let happen what the lines say, and look."""
    first, *words = lines[0].split()
    story = Story(words if first == "job" else ())
    for line in lines[first == "job" :]:
        story.play(line)


class Story:
    """A world in which a story is told."""

    def __init__(self, words: Iterable[str]) -> None:
        found = fields(words)
        settings = _settings(found)
        notes = {NOTES[word]: str(found.pop(word)) for word in list(found) if word in NOTES}
        policy = {RUN_POLICY[word]: found.pop(word) for word in list(found) if word in RUN_POLICY}
        template = {TEMPLATE[word]: found.pop(word) for word in list(found) if word in TEMPLATE}
        spec = {SPEC.get(word, word): value for word, value in found.items()}
        job = make_job(annotations=notes, runPolicy=policy, template=template, **spec)
        self.world = World(job=job, settings=replace(SETTINGS, **settings))
        self.uids: Mapping[str, str] = {}
        self.writes = 0
        self.found = Decision()
        """Of the last ``step``."""

    def play(self, line: str) -> None:
        """One line."""
        world = self.world
        happenings, facts = happenings_and_facts(line)
        self.uids, self.writes = self.uids_now(), world.writes
        world.applied.clear()
        for verb, rest in happenings:
            self.happen(verb, rest)
        if happenings[-1][0] not in ("look", "step", "partly"):
            world.settle()
        check(line, facts, self.see)

    def pod(self, name: str) -> str:
        """Name of a Pod: a number is a worker's, ``L`` the launcher that was made last."""
        if name == "L":
            return [pod.name for pod in self.world.pods.values() if pod.role == "launcher"][-1]
        return f"pi-worker-{name}" if name.isdigit() else name

    def uids_now(self) -> dict[str, str]:
        """uids of the Pods and the launcher's Job, by what stories call them."""
        found = {_short(pod.name): pod.uid for pod in self.world.pods.values()}
        if "Job" in self.world.objects:
            found["Job"] = self.world.objects["Job"]["metadata"]["uid"]
        return found

    def happen(self, verb: str, rest: str) -> None:
        """One thing happens."""
        world = self.world
        first, *words = rest.split() or [""]
        _, _, text = rest.partition(" ")
        happenings: dict[str, Callable[[], object]] = {
            "look": lambda: None,
            "start": world.start,
            "settle": world.settle,
            "step": lambda: setattr(self, "found", world.step()),
            "vanish": world.vanish,
            "partly": lambda: self.apply(world.decide().stages[0]),
            "made": lambda: self.apply(one for one in self.wanted() if _done(one) in rest.split()),
            "slow": self.slow,
            "run": lambda: world.run(*map(self.pod, rest.split())),
            "launch": lambda: world.launch(first or "Running"),
            "fail": lambda: world.fail(self.pod(first), **fields(words)),
            "unfit": lambda: world.unfit(self.pod(first), **fields(words)),
            "evict": lambda: world.evict(self.pod(first)),
            "pod": lambda: world.change(self.pod(first), **fields(words)),
            "container": lambda: self.contain(first, **fields(words)),
            "waits": lambda: self.contain(first, reason=(words or [""])[0], message=text.partition(" ")[2]),
            "unschedulable": lambda: world.change(self.pod(first), unschedulable=text),
            "theirs": lambda: world.pods.update(_theirs(self.pod(first), **fields(words))),
            "gone": lambda: [world.pods.pop(self.pod(name)) for name in rest.split()],
            "lost": lambda: self.lose(rest),
            "missing": lambda: world.pods.pop("pi-worker-1") if rest == "Pod" else world.objects.pop(rest),
            "delete": lambda: world.delete(rest, NAMES[rest], world.objects[rest]["metadata"]["uid"]),
            "end": lambda: world.finish(first or "Complete", *(rest.split(" ", 2)[1:])),
            "after": lambda: setattr(world, "now", world.now + float(rest)),
            "scale": lambda: world.edit(workers=int(rest)),
            "suspend": lambda: world.edit(suspend=True),
            "resume": lambda: world.edit(suspend=False),
            "template": lambda: world.edit(template=_template(**json.loads(rest))),
            "unannotated": lambda: setattr(
                world, "job", replace(world.job, metadata=replace(world.job.metadata, annotations={}))
            ),
            "operator": lambda: setattr(
                world, "settings", replace(world.settings, **_settings(fields(rest.split())))
            ),
            "refuse": lambda: self.refuse(first, *text.split(" ", 1)),
            "relent": lambda: setattr(world, "rejections", ()),
            "attempts": lambda: self.refused(lambda one: replace(one, attempts=int(rest))),
            "reordered": lambda: self.refused(lambda one: replace(one, at=one.at + 1), -1),
            "set": lambda: self.set(first, text),
            "taken": lambda: world.objects.update({first: _taken(first, words)}),
            "log": lambda: world.logs.update({self.pod(first): text.replace("\\n", "\n")}),
            "absent": lambda: setattr(world, "absent", {"worker": rest} if rest else {}),
        }
        happenings[verb]()

    def wanted(self) -> Iterator[Action]:
        """What would be done now."""
        return itertools.chain.from_iterable(self.world.decide().stages)

    def apply(self, actions: Iterable[Action]) -> None:
        """A controller is ended after these."""
        for action in list(actions):
            self.world.apply(action)

    def slow(self) -> None:
        """A pass deletes the launcher's Job, which is still there for a while."""
        old = self.world.objects["Job"]
        self.world.step()
        going = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
        self.world.objects["Job"] = merge(old, going)

    def lose(self, kind: str) -> None:
        """An object vanishes, and the launcher's Pods with its Job."""
        self.world.objects.pop(kind)
        if kind == "Job":
            kept = {name: pod for name, pod in self.world.pods.items() if pod.role != "launcher"}
            self.world.pods = kept

    def contain(self, name: str, **fields: Any) -> None:
        """The state of a Pod's container."""
        self.world.change(self.pod(name), containers=(ContainerView(name="main", **fields),))

    def refused(self, change: Callable[[Rejection], Rejection], step: int = 1) -> None:
        """Other rejections than before."""
        self.world.rejections = tuple(change(one) for one in self.world.rejections[::step])

    def refuse(self, what: str, status: str, message: str) -> None:
        """The cluster refuses an object of a kind, or with ``KIND:NAME`` that one."""
        kind, _, name = what.partition(":")
        reason = {"403": "Forbidden", "422": "Invalid", "409": "AlreadyExists"}.get(status, "")
        refused = Rejection(
            resource=RESOURCES[kind],
            name=self.pod(name) or NAMES.get(kind, "pi"),
            status=int(status),
            reason=reason,
            message=message,
            at=self.world.now,
        )
        self.world.rejections += (refused,)

    def set(self, kind: str, change: str) -> None:
        """A field of an object changes: ``PATH=VALUE``."""
        path, _, value = change.partition("=")
        *way, last = path.split(".")
        found: Any = self.world.objects[kind]
        for part in way:
            found = found[int(part) if part.isdigit() else part]
        found[last] = value_of(value)

    def see(self, name: str) -> Any:
        """What a fact's name stands for."""
        world = self.world
        status = world.job.status
        first, _, path = name.partition(".")
        kind, _, field = name.partition(":")
        if name in list(ConditionType):
            one = world.condition(name)
            return one and f"{one.status} {one.reason}: {one.message}"
        if field:
            is_note = kind == "note"
            found: Any = world.objects.get("ConfigMap" if is_note else kind)
            for part in ("metadata", "annotations", f"ringleader/{field}") if is_note else field.split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
            return found
        if path:
            start: Any = status if first == "job" else world.pods[self.pod(first)]
            return reduce(lambda found, part: getattr(found, part, None), path.split("."), start)
        counts = (status.replica_statuses.launcher, status.replica_statuses.worker)
        size = status.elastic
        script = world.objects.get("ConfigMap", {}).get("data", {}).get("discover_hosts.sh", "")
        seen = {
            "is": lambda: world.state,
            "active": lambda: " ".join("-" if one is None else str(one.active) for one in counts),
            "failed": lambda: " ".join("-" if one is None else str(one.failed) for one in counts),
            "told": lambda: " ".join(world.reasons),
            "last": lambda: "{0.type} {0.reason}: {0.message}".format(world.events[-1]),
            "workers": lambda: " ".join(map(str, world.workers())),
            "launchers": lambda: sum(pod.role == "launcher" for pod in world.pods.values()),
            "has": lambda: " ".join(sorted(world.objects)),
            "done": lambda: " ".join(map(_done, world.applied)),
            "off": lambda: {_short(name): " ".join(nodes) for name, nodes in world.kept_off.items() if nodes},
            "next": lambda: " / ".join(
                " ".join(sorted(map(_done, stage))) for stage in world.decide().stages
            ),
            "again": lambda: world.decide().again_after,
            "soon": lambda: self.found.again_after,
            "rests": lambda: replace(world.decide(), again_after=None) == Decision(),
            "blocked": lambda: replace(world.decide(), again_after=None) == Decision(is_blocked=True),
            "new": lambda: " ".join(
                sorted(one for one, uid in self.uids_now().items() if self.uids.get(one) != uid)
            ),
            "writes": lambda: world.writes - self.writes,
            "hosts": lambda: " ".join(re.findall(r"echo \S+?-worker-(\d+)\.", script)),
            "hostfile": lambda: len(world.objects["ConfigMap"]["data"]["hostfile"].splitlines()),
            "size": lambda: size and f"{size.workers}, {size.changes} changes: {size.last_change}",
            "exec": lambda: " ".join(
                (world.objects["Role"]["rules"] or [{"resourceNames": []}])[-1]["resourceNames"]
            ),
            "gone": lambda: world.is_job_gone,
            "renewed": lambda: (
                world.annotated == {self.pod("L"): {"ringleader/hosts": self.see("note:hosts")}}
            ),
        }
        return seen[name]()


def _done(action: Action) -> str:
    """What was made (``~`` changed, ``-`` deleted)."""
    resource, name = target(action)
    what = _short(name) if resource.kind == "Pod" else resource.kind
    if isinstance(action, CreateKeys):
        return "keys"
    if isinstance(action, Create | CreateWorker):
        return what
    return ("~" if hasattr(action, "patch") else "-") + what


def _short(name: str) -> str:
    """A Pod's name in stories."""
    return name.partition("-worker-")[2] or ("L" if "launcher" in name else name)


def _theirs(name: str, **fields: Any) -> dict[str, PodView]:
    """A Pod of somebody else."""
    return {name: replace(PodView(name=name, uid="theirs", phase="Running"), **fields)}


def _template(*, spec: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {**more, "spec": {"containers": [{"name": "main", "image": "mpi"}], **spec}}


def _taken(kind: str, owner: Iterable[str]) -> dict[str, Any]:
    """An object of somebody else that has the name of the job's."""
    owners = [{"controller": True, **found}] if (found := fields(owner)) else []
    return {"kind": kind, "metadata": {"name": NAMES.get(kind, "pi"), "uid": "u", "ownerReferences": owners}}


def _settings(found: dict[str, Any]) -> dict[str, Any]:
    """Take what is the operator's out of a ``job`` line."""
    return {OPERATOR[word]: found.pop(word) for word in list(found) if word in OPERATOR}
