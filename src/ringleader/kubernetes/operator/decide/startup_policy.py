"""``launcherCreationPolicy``: which Pods are to be made now, and whether the launcher may start. Pure."""

from __future__ import annotations

from ringleader.kubernetes.client.api_resources import JOBS
from ringleader.kubernetes.client.cluster import Object
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.elastic_range import elastic_range
from ringleader.kubernetes.mpijob.model import LauncherCreationPolicy
from ringleader.kubernetes.objects.launcher_and_workers import failure_policy, launcher_job
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.decide import conditions
from ringleader.kubernetes.operator.decide.decision import Action, Create, CreateWorker, Observed
from ringleader.kubernetes.operator.decide.decision_builder import DecisionBuilder
from ringleader.kubernetes.operator.decide.ownership import JobPods
from ringleader.kubernetes.operator.decide.restarts import restarts_whole

TEMPLATE_MESSAGE = "Restart policy in pod template overridden by restart policy in replica spec"


def create_workers(builder: DecisionBuilder, pods: JobPods) -> list[Action]:
    """Return the creation of every worker that is missing: all side by side."""
    job = builder.job.metadata.name
    return [CreateWorker(index=index, name=object_names.worker(job, index)) for index in pods.missing]


def may_launch(builder: DecisionBuilder, pods: JobPods) -> bool:
    """Say whether the workers are as far as the launcher is to wait for them."""
    policy, elastic = builder.job.spec.launcher_creation_policy, elastic_range(builder.job)
    are_enough = elastic is not None and len(pods.ready_workers) >= elastic.least
    return policy == LauncherCreationPolicy.AT_STARTUP or pods.are_ready or are_enough


def create_launcher(
    builder: DecisionBuilder, observed: Observed, pods: JobPods, settings: OperatorSettings
) -> list[Action]:
    """Return the creation of the launcher's Job, where it is missing and its time has come.

    While the job is suspended the Job is made suspended, but not where the launcher is to wait for workers.
    """
    spec = builder.job.spec
    suspend = spec.run_policy.suspend
    waits = spec.launcher_creation_policy != LauncherCreationPolicy.AT_STARTUP
    if observed.launcher is not None or pods.remains or (waits if suspend else not may_launch(builder, pods)):
        return []
    name = object_names.launcher(builder.job.metadata.name)
    was_refused = any(one.resource == JOBS and one.name == name for one in observed.rejections)
    if spec.mpi_replica_specs.launcher.template.get("spec", {}).get("restartPolicy") and not was_refused:
        builder.event("Warning", conditions.TEMPLATE_RESTART_POLICY, TEMPLATE_MESSAGE)
    return [Create.of(job_document(builder, settings, suspend=suspend))]


def job_document(builder: DecisionBuilder, settings: OperatorSettings, *, suspend: bool) -> Object:
    """Return the launcher's Job. Where the whole job restarts on a failure it does not retry by itself."""
    found = launcher_job(builder.job, settings, suspend=suspend)
    if not restarts_whole(builder.job):
        return found
    spec, template = found["spec"], found["spec"]["template"]
    once = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    return {**found, "spec": {**spec, "backoffLimit": 0, **failure_policy(once), "template": once}}
