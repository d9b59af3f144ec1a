"""Which Pods are to be made now, and whether the launcher may start. Pure."""

from __future__ import annotations

from ringleader.controller.decide import conditions
from ringleader.controller.decide.decision import Action, Create, CreateWorker, Observed
from ringleader.controller.decide.decision_builder import Draft
from ringleader.controller.decide.ownership import is_going
from ringleader.controller.decide.replicas import Pods
from ringleader.controller.decide.suspend_policy import forget_start, is_suspended, let_go
from ringleader.kube.api_resources import JOBS
from ringleader.kube.cluster import Object
from ringleader.mpijob import object_names
from ringleader.mpijob.annotations import ON_WORKER_FAILURE, RESTART
from ringleader.mpijob.model import LauncherCreationPolicy
from ringleader.render.kubernetes.launcher_and_workers import failure_policy, launcher_job
from ringleader.render.kubernetes.operator_settings import OperatorSettings

TEMPLATE_MESSAGE = "Restart policy in pod template overridden by restart policy in replica spec"


def workers(draft: Draft, pods: Pods) -> list[Action]:
    """Return the creation of every worker that is missing: all side by side."""
    job = draft.job.metadata.name
    return [CreateWorker(index=index, name=object_names.worker(job, index)) for index in pods.missing]


def may_launch(draft: Draft, pods: Pods) -> bool:
    """Say whether the workers are as far as the launcher is to wait for them."""
    policy = draft.job.spec.launcher_creation_policy
    return policy == LauncherCreationPolicy.AT_STARTUP or pods.are_ready


def launcher(draft: Draft, observed: Observed, pods: Pods, settings: OperatorSettings) -> list[Action]:
    """Return the creation of the launcher's Job, where it is missing and its time has come.

    While the job is suspended the Job is made suspended, but not where the launcher is to wait for workers.
    """
    suspend = draft.job.spec.run_policy.suspend
    if observed.launcher is not None or pods.remains or not _is_time(draft, pods, suspend=suspend):
        return []
    name = object_names.launcher(draft.job.metadata.name)
    template = draft.job.spec.mpi_replica_specs.launcher.template
    if template.get("spec", {}).get("restartPolicy") and not _was_refused(observed, name):
        draft.note("Warning", conditions.TEMPLATE_RESTART_POLICY, TEMPLATE_MESSAGE)
    return [Create(resource=JOBS, document=job_document(draft, settings, suspend=suspend))]


def _is_time(draft: Draft, pods: Pods, *, suspend: bool) -> bool:
    if suspend:
        return draft.job.spec.launcher_creation_policy == LauncherCreationPolicy.AT_STARTUP
    return may_launch(draft, pods)


def _was_refused(observed: Observed, name: str) -> bool:
    return any(one.resource == JOBS and one.name == name for one in observed.rejections)


def job_document(draft: Draft, settings: OperatorSettings, *, suspend: bool) -> Object:
    """Return the launcher's Job. Where the whole job restarts on a failure it does not retry by itself."""
    found = launcher_job(draft.job, settings, suspend=suspend)
    if draft.job.metadata.annotations.get(ON_WORKER_FAILURE) != RESTART:
        return found
    spec, template = found["spec"], found["spec"]["template"]
    once = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    return {**found, "spec": {**spec, "backoffLimit": 0, **failure_policy(once), "template": once}}


def resume(
    draft: Draft, observed: Observed, pods: Pods, settings: OperatorSettings
) -> tuple[list[Action], list[Action]]:
    """Return what lets a suspended launcher go, in two stages; both come before the workers are made."""
    job = observed.launcher
    if job is None or is_going(job) or not is_suspended(job) or not may_launch(draft, pods):
        return [], []
    return [*forget_start(job)], [let_go(job, job_document(draft, settings, suspend=False))]
