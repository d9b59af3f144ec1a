"""What an API server's refusal means for the user, and what to do. Pure."""

from __future__ import annotations

from ringleader.errors import Fault, RefusedError, RequestError, RingleaderError
from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import MPIJOBS, Resource
from ringleader.kubernetes.jobs import message_hints

OPERATOR = "ringleader operator crd | kubectl apply -f - and ringleader operator manifests, or use --on pods"


def is_unknown_kind(error: ApiError) -> bool:
    """Say whether the server has no such kind of object at all, rather than no object of that name."""
    said = ("could not find the requested resource", "page not found")
    return error.status == 404 and any(words in error.message for words in said)


def refused(error: ApiError, *, doing: str, resource: Resource, name: str, namespace: str) -> RingleaderError:
    """Return the error that a user is told. ``doing``: ``create``, ``read``, ``delete``, ``watch``."""
    what, hint = _meaning(error, doing, resource, name, namespace)
    kind = RequestError if error.status in (400, 422) else RefusedError
    where = f"{resource.kind} {namespace}/{name}" if name else f"namespace {namespace}"
    return kind(Fault(where=where, what=what, hint=hint))


def _meaning(error: ApiError, doing: str, resource: Resource, name: str, namespace: str) -> tuple[str, str]:
    said = error.message or error.reason
    if error.status == 404 and f'namespaces "{namespace}" not found' in said:
        return f"there is no namespace {namespace}", "--namespace, or kubectl create namespace"
    if is_unknown_kind(error):
        if resource == MPIJOBS:
            return "no MPIJob CRD on this cluster", OPERATOR
        return f"this cluster has no {resource.kind} ({resource.api_version})", ""
    if error.status == 404:
        return f"there is no {resource.kind} of this name", "ringleader status lists the jobs"
    if error.status == 401:
        return "the cluster does not accept the credentials", "log in again; kubectl auth whoami"
    if error.status == 403 and "exceeded quota" in said:
        return said, message_hints.of_quota(said)
    if error.status == 403 and "is being terminated" in said:
        return f"the namespace {namespace} is being deleted", "wait until it is gone, or use another"
    if error.status == 403:
        hint = f"ask for a Role with the verb {doing} on {resource.plural}"
        hint += f".{resource.group}" if resource.group else ""
        return f"not allowed: {said}", f"{hint}; kubectl auth can-i --list -n {namespace}"
    if error.is_there_already:
        return "one of this name exists", f"--name another, or ringleader delete {name}"
    return f"{said} (HTTP {error.status})", ""
