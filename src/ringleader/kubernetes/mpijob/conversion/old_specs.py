"""Specs of the versions before v2beta1: what their controllers read, for checking manifests of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from ringleader.kubernetes.mpijob.field_schema import Count, FieldFlag, IntegerRange, MapKey, Template
from ringleader.kubernetes.mpijob.model import CleanPodPolicy, RunPolicy
from ringleader.kubernetes.mpijob.parser import OLD_VERSIONS

V1, V1ALPHA2, V1ALPHA1 = OLD_VERSIONS


class AnyRestartPolicy(StrEnum):
    """Restart policies that the types of older versions named."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class MpiDistribution(StrEnum):
    """MPI libraries as v1alpha2 called them."""

    OPENMPI = "OpenMPI"
    INTEL_MPI = "IntelMPI"
    MPICH = "MPICH"


@dataclass(frozen=True, kw_only=True)
class OldReplicaSpec:
    """Pods of one kind."""

    replicas: Annotated[int | None, IntegerRange(minimum=1)] = None
    restart_policy: Annotated[AnyRestartPolicy | None, FieldFlag.EMPTY_IS_DEFAULT] = None
    template: Template


@dataclass(frozen=True, kw_only=True)
class OldReplicaSpecs:
    """The two kinds of Pods."""

    launcher: Annotated[OldReplicaSpec, MapKey("Launcher")]
    worker: Annotated[OldReplicaSpec | None, MapKey("Worker")] = None


@dataclass(frozen=True, kw_only=True)
class V1Spec:
    """kubeflow.org/v1: bare Pods, exec through kubectl."""

    mpi_replica_specs: OldReplicaSpecs
    slots_per_worker: Count | None = None
    clean_pod_policy: CleanPodPolicy | None = None
    main_container: str = ""
    run_policy: RunPolicy | None = None
    """``suspend`` and ``managedBy`` are of the training operator's v1 only."""


@dataclass(frozen=True, kw_only=True)
class V1alpha2Spec(V1Spec):
    """kubeflow.org/v1alpha2: a Job and a StatefulSet, exec through kubectl."""

    backoff_limit: Count | None = None
    active_deadline_seconds: Annotated[int | None, IntegerRange(bits=64, minimum=0)] = None
    mpi_distribution: MpiDistribution | None = None


@dataclass(frozen=True, kw_only=True)
class V1alpha1Spec:
    """kubeflow.org/v1alpha1: one template for launcher and workers."""

    template: Template
    replicas: Annotated[int | None, IntegerRange(minimum=1)] = None
    gpus: Annotated[int | None, IntegerRange(minimum=1)] = None
    gpus_per_node: Annotated[int | None, IntegerRange(minimum=1)] = None
    processing_units: Annotated[int | None, IntegerRange(minimum=1)] = None
    processing_units_per_node: Annotated[int | None, IntegerRange(minimum=1)] = None
    processing_resource_type: str = ""
    slots_per_worker: Count | None = None
    launcher_on_master: bool = False
    backoff_limit: Count | None = None
    active_deadline_seconds: Annotated[int | None, IntegerRange(bits=64, minimum=0)] = None


SPECS = {V1: V1Spec, V1ALPHA2: V1alpha2Spec, V1ALPHA1: V1alpha1Spec}
"""Version → its spec."""
