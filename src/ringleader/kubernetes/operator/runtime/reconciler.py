"""One pass over one job: observe → decide → apply → write the status → report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import MPIJOBS, Resource
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.informer import Kept
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.decide.conditions import API_WARNING
from ringleader.kubernetes.operator.decide.decision import Decision, JobEvent, Observed, Rejection
from ringleader.kubernetes.operator.decide.ownership import is_for_us
from ringleader.kubernetes.operator.decide.policy_order import decide
from ringleader.kubernetes.operator.decide.status import decide_invalid, is_finished
from ringleader.kubernetes.operator.runtime.apply import Applier, Outcome, rejection
from ringleader.kubernetes.operator.runtime.caches import Caches, StoredJob
from ringleader.kubernetes.operator.runtime.events import EventSender
from ringleader.kubernetes.operator.runtime.monitoring import Metrics, true_conditions
from ringleader.kubernetes.operator.runtime.observe import fetch_tails, observe

Key = tuple[str, str]
"""Namespace and name of a job."""
ROUNDS = 6
"""Decisions in one pass: for logs that were asked for, for what was refused, for a job that changed."""
_STUBBORN = 3
"""Passes in a row that the same change may fail in passing before the job's status speaks of it."""
_CALM = 4
"""Passes in a row that may change something before the looks after them are spaced out."""
_BIG = 1500
"""Workers from which on a decision is made beside the event loop, which answers probes meanwhile."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PassResult:
    """How a pass ended."""

    again_after: float | None = None
    """Seconds until the job is to be looked at again even if nothing happens."""
    error: RefusedError | None = None
    """Why it did not get through."""
    at_least: float = 0.0
    """Seconds that the server asks us to wait."""
    has_progressed: bool = False
    is_blocked: bool = False
    rest: float = 0.0
    """Seconds to leave the job alone: in return for what deciding on it costs."""
    is_gone: bool = False


@dataclass
class _Memory:
    """What is remembered of a job from pass to pass beside the cluster's own state."""

    uid: str
    generation: object = None
    rejections: dict[tuple[Resource, str], Rejection] = field(default_factory=dict)
    tried: dict[tuple[Resource, str], int] = field(default_factory=dict)
    """How often what was refused has really been tried."""
    errors: int = 0
    """Passes in a row that ended with an error in passing and without any progress."""
    busy: int = 0
    """Passes in a row that changed something."""
    warned: set[tuple[Resource, str]] = field(default_factory=set)
    """Warnings of the server that were passed on: three thousand workers are warned of once."""


@dataclass
class _Pass:
    """One pass under way."""

    logs: dict[str, str] = field(default_factory=dict)
    spent: float = 0.0
    """Seconds of computing."""
    progressed: bool = False


class Reconciler:
    """Looks at jobs, one at a time per key; passes over different jobs run side by side."""

    def __init__(
        self,
        cluster: Cluster,
        caches: Caches,
        settings: OperatorSettings,
        *,
        steady: Callable[[], float],
        now: Callable[[], float],
        events: EventSender,
        metrics: Metrics,
        parallel_requests: int = 64,
        deadline: float = 300.0,
        resync: float = 300.0,
    ) -> None:
        """``steady``: seconds that never go back; ``now``: seconds since the epoch.

        ``parallel_requests``: of one job; ``deadline``: seconds for a whole pass.

        ``resync``: seconds after which a job that has not ended is looked at even if nothing happens.
        """
        self._cluster, self._caches, self._settings = cluster, caches, settings
        self._steady, self._now, self._events, self._metrics = steady, now, events, metrics
        self._deadline, self._resync = deadline, resync
        self._applier = Applier(cluster, caches, settings, clock=now, parallel=parallel_requests)
        self._memories: dict[Key, _Memory] = {}

    async def reconcile(self, key: Key) -> PassResult:
        """Make one pass over a job. Whatever goes wrong with the cluster is in the result."""
        run = _Pass()
        began = self._steady()
        try:
            async with asyncio.timeout(self._deadline):
                result = await self._rounds(key, run)
        except TimeoutError:
            what = f"a pass over the job was not through in {self._deadline:.0f} s"
            result = self._failure(key, RefusedError(Fault(where="/".join(key), what=what)), run)
        except RefusedError as error:
            result = self._failure(key, error, run)
        word = "gone" if result.is_gone else "error" if result.error else "done"
        self._metrics.passes.labels(word).observe(self._steady() - began)
        return replace(result, rest=min(4 * run.spent, 0.4))

    async def _rounds(self, key: Key, run: _Pass) -> PassResult:
        for _ in range(ROUNDS):
            kept = self._caches.mpijobs.kept(*key)
            if kept is None:
                return self._gone(key)
            result = await self._round(key, kept, run)
            if result is not None:
                return result
        what = f"the job did not settle in {ROUNDS} decisions: it is being changed all the time"
        return self._failure(key, RefusedError(Fault(where="/".join(key), what=what)), run)

    async def _round(self, key: Key, kept: Kept[StoredJob], run: _Pass) -> PassResult | None:
        """Decide once and do it; ``None``: decide again at once."""
        document = kept.value.document
        if not is_for_us(document):
            return PassResult()
        memory = self._memory(key, kept)
        try:
            job = kept.value.job
        except RequestError as error:
            return await self._invalid(key, document, error, run)
        self._metrics.job(key[0], object_names.launcher(key[1]))
        if not is_finished(job.status):
            await self._applier.find_launcher(job)
        observed = await observe(
            self._caches,
            job,
            settings=self._settings,
            rejections=tuple(memory.rejections.values()),
            logs=run.logs,
        )
        decision = await self._decide(job, observed, run)
        missing = [request for request in decision.logs if request.pod not in run.logs]
        if missing:
            run.logs.update(await fetch_tails(self._cluster, job.metadata.namespace, missing))
            return None
        outcome = await self._applier.apply(job, decision.stages, memory.tried)
        run.progressed |= bool(outcome.done)
        self._warn(document, memory, outcome)
        if self._remember(memory, outcome) or outcome.has_found:
            return None
        if outcome.failures:
            return self._failure(key, outcome.failures[0][2], run, len(outcome.failures))
        if not await self._report(document, decision, run):
            return None
        memory.errors = 0
        memory.busy = memory.busy + 1 if outcome.done else 0
        return PassResult(
            again_after=self._again(memory, job, decision),
            has_progressed=run.progressed,
            is_blocked=decision.is_blocked,
        )

    def _again(self, memory: _Memory, job: MPIJob, decision: Decision) -> float | None:
        """Return when to look again: soon after a change of ours, and at times at whatever has not ended."""
        delays = [decision.again_after] if decision.again_after is not None else []
        if memory.busy:
            delays.append(0.0 if memory.busy <= _CALM else min(60.0, 0.1 * 2.0 ** (memory.busy - _CALM)))
        if not is_finished(job.status):
            delays.append(self._resync)
        return min(delays, default=None)

    async def _decide(self, job: MPIJob, observed: Observed, run: _Pass) -> Decision:
        began = self._steady()
        now = self._now()
        if job.workers >= _BIG or len(observed.pods) >= _BIG:
            decision = await asyncio.to_thread(decide, job, observed, now, self._settings)
        else:
            decision = decide(job, observed, now, self._settings)
        spent = self._steady() - began
        run.spent += spent
        self._metrics.decisions.observe(spent)
        return decision

    def _warn(self, document: Object, memory: _Memory, outcome: Outcome) -> None:
        """Pass on what the server said of objects that it took all the same."""
        for resource, name, text in outcome.warnings:
            if (resource, text) not in memory.warned:
                memory.warned.add((resource, text))
                message = f"{resource.kind} {name}: {text}"
                _log.warning("the API server warns: %s", message)
                self._events.submit(document, [JobEvent(type="Warning", reason=API_WARNING, message=message)])

    async def _invalid(
        self, key: Key, document: Object, error: RequestError, run: _Pass
    ) -> PassResult | None:
        await self._applier.narrow_rights(document)
        decision = decide_invalid(document, error, self._now())
        return PassResult() if await self._report(document, decision, run) else None

    async def _report(self, document: Object, decision: Decision, run: _Pass) -> bool:
        """Write the status and submit the events; False where the job has changed meanwhile."""
        if decision.status is not None:
            if not await self._write_status(document, decision.status):
                return False
            run.progressed = True
            before = true_conditions(document.get("status") or {})
            self._metrics.conditions(before, true_conditions(decision.status))
        self._events.submit(document, decision.events)
        return True

    async def _write_status(self, document: Object, status: Mapping[str, Any]) -> bool:
        """Write a whole status over the one in ``document``; False where the job has changed since.

        The write holds for that very version of the job: if somebody has changed it, nothing is written, and
        the changed job goes into the caches. Raises ApiError otherwise.
        """
        meta = document["metadata"]
        space, name = meta["namespace"], meta["name"]
        patch = {
            "metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
            "status": difference(document.get("status") or {}, status),
        }
        try:
            try:
                stored = await self._cluster.patch(MPIJOBS, name, patch, space, subresource="status")
                is_written = True
            except ApiError as error:
                if not error.is_stale:
                    raise
                stored = await self._cluster.get(MPIJOBS, name, space)
                is_written = False
        except ApiError as error:
            if not error.is_missing:
                raise
            self._caches.missing(MPIJOBS, space, name, meta["uid"], name)
            return False
        self._caches.wrote(MPIJOBS, stored, name)
        return is_written

    def _memory(self, key: Key, kept: Kept[StoredJob]) -> _Memory:
        memory = self._memories.get(key)
        if memory is None or memory.uid != kept.uid:
            if memory is not None:
                self._caches.by_name.forget(*key)
            memory = self._memories[key] = _Memory(uid=kept.uid)
        generation = kept.value.document["metadata"].get("generation")
        if memory.generation != generation:
            memory.generation = generation
            # A new spec may be taken where the old one was refused; a name is taken whatever the spec says.
            memory.rejections = {key: one for key, one in memory.rejections.items() if one.status == 409}
            memory.tried.clear()
            memory.warned.clear()
        return memory

    def _remember(self, memory: _Memory, outcome: Outcome) -> bool:
        """Keep what was refused, drop what went well; return whether the next decision must hear of it.

        A change that fails in passing again and again counts as refused, so that the status shows it.
        """
        refused = {(one.resource, one.name): one for one in outcome.rejections}
        if memory.errors >= _STUBBORN:
            for resource, name, error in outcome.failures:
                if isinstance(error, ApiError):
                    refused[resource, name] = rejection(resource, name, error, self._now())
        is_new = False
        for target in outcome.attempted:
            before = memory.rejections.pop(target, None)
            if target not in refused:
                memory.tried.pop(target, None)
                continue
            memory.tried[target] = memory.tried.get(target, 0) + 1
            attempts = 1 if before is None else before.attempts + 1
            memory.rejections[target] = replace(refused[target], attempts=attempts)
            is_new |= before is None or before.message != refused[target].message
        for one in outcome.held:
            attempts = max(memory.rejections[target].attempts for target in refused)
            memory.rejections[one.resource, one.name] = replace(one, attempts=attempts)
        return is_new

    def _failure(self, key: Key, error: RefusedError, run: _Pass, errors: int = 1) -> PassResult:
        memory = self._memories.get(key)
        if memory is not None:
            memory.errors = 0 if run.progressed else memory.errors + 1
        fields = {"job": "/".join(key), "errors": errors}
        _log.warning("a pass over the job did not get through: %s", error, extra=fields)
        wait = error.retry_after if isinstance(error, ApiError) else None
        return PassResult(error=error, at_least=wait or 0.0, has_progressed=run.progressed)

    def _gone(self, key: Key) -> PassResult:
        self._memories.pop(key, None)
        self._caches.by_name.forget(*key)
        self._metrics.job(key[0], object_names.launcher(key[1]), is_gone=True)
        return PassResult(is_gone=True)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7386) that turns one object into another."""
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := difference(old, value):
                patch[key] = inner
        elif key not in before or old != value:
            patch[key] = value
    return patch
