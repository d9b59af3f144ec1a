# ruff: noqa: E501 - lines of the page stand here as they are
"""Write docs/reference/mpijob.md from the model (``python scripts/mpijob_reference.py > …``)."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from types import ModuleType
from typing import Any

from ringleader.kubernetes.mpijob import annotations, object_names, pod_template_checks
from ringleader.kubernetes.mpijob.conversion import SPECS
from ringleader.kubernetes.mpijob.crd import COLUMNS, RULES, SHORT_NAMES
from ringleader.kubernetes.mpijob.document_faults import ROOT, FieldPath
from ringleader.kubernetes.mpijob.field_schema import (
    FieldFlag,
    FieldSchema,
    IntegerRange,
    JsonContent,
    descriptions,
    field_schemas,
    summary,
)
from ringleader.kubernetes.mpijob.model import Metadata, Spec
from ringleader.kubernetes.mpijob.object_metadata import API_VERSION
from ringleader.kubernetes.mpijob.status import Status

CONTENT = {
    JsonContent.ANY: "object",
    JsonContent.TEXTS: "map of text",
    JsonContent.QUANTITIES: "map of quantities",
    JsonContent.TEMPLATE: "Pod template",
}
HEAD = f"""# MPIJob

Written from the model by `scripts/mpijob_reference.py`. Version `{API_VERSION}`, short names
{" and ".join(f"`{name}`" for name in SHORT_NAMES)}. Fields and defaults are those of
Kubeflow's mpi-operator.

    ringleader render mpijob FILE…             the manifest with every default spelt out; all faults at once, exit code 2
    ringleader render mpijob --convert FILE…   the same for manifests of {", ".join(reversed(SPECS))}; changes on standard error
    ringleader operator crd                    the CustomResourceDefinition, for `kubectl apply -f -`
"""
READING = f"""## Rules beyond the table

* A field that is not in the table is a fault, with the name that may have been meant. (On a cluster the API server drops it
  and `kubectl` warns.) A Pod template's own fields are left to Kubernetes, except that there is a container, that every
  container has its own name, that labels and annotations are text, and that no volume is called
  {" or ".join(f"`{name}`" for name in pod_template_checks.RESERVED_VOLUMES)}: the controller adds those.
* `Worker` may be missing: then the launcher does all the work. Where it is there it needs `replicas`.
* The name of the last worker's Pod, `{object_names.worker("<name>", 0)[:-1]}<replicas-1>`, must be a DNS label: a letter first, a-z, 0-9 and
  `-`, at most {object_names.LONGEST_LABEL} characters. Five characters are added to `metadata.generateName`.
* `null` is as good as leaving a field out. An empty string is, for fields marked *empty*.
* YAML is read as `kubectl` reads it: `yes`, `on` and `y` are true, `010` is eight. A key that is given twice is a fault.
"""
OLD = """## Older versions

`--convert` reads them by their own rules and writes v2beta1. What the old controllers did by themselves is spelt out:

| was | is |
| --- | --- |
| `cleanPodPolicy`, `backoffLimit`, `activeDeadlineSeconds` at the top level | under `runPolicy`. Where both places have it, the one that counted then counts: the top level for `cleanPodPolicy`, `runPolicy` for the others |
| `mpiDistribution: IntelMPI` | `mpiImplementation: Intel` |
| `mainContainer` | that container is put first |
| kubectl exec into the workers | the annotation `ringleader/spawn: exec`: images without sshd keep working |
| workers without a command | still without: the controller chooses it |
| `restartPolicy` of v1alpha2 workers, always `Always` | `OnFailure` unless `Never` was written |
| `restartPolicy: ExitCode` | `Never` (v1) or `OnFailure` (v1alpha2's launcher); listed as not carried over |
| v1: the launcher, a bare Pod | a Job: tried again up to `runPolicy.backoffLimit` (6) times |
| v1: GPUs in the launcher's limits | `runLauncherAsWorker: true` |
| v1alpha1: `gpus: 16`, `gpusPerNode: 8` | 2 workers with 8 GPUs and 8 slots each. Without `gpusPerNode` the size is unknown, which is a fault |
| v1alpha1: workers removed at the end | `cleanPodPolicy: All` |
| v1alpha1: one template | the launcher's without resources, the workers' without command |
| v1alpha1: `launcherOnMaster` | affinity and tolerations for the old and the new label of such nodes |
| `status`, and metadata that a server set | dropped |
"""


def page() -> str:
    """Return the whole page."""
    parts = [HEAD, "## Metadata\n", *table(Metadata, ROOT.field("metadata")), ""]
    parts += ["## Spec\n", *table(Spec, ROOT.field("spec")), "", READING, *rules(), ""]
    parts += ["## Annotations\n", *notes(), "", "## Status\n", *table(Status, ROOT.field("status")), ""]
    return "\n".join([*parts, *columns(), "", OLD])


def table(model: Any, path: FieldPath) -> Iterator[str]:
    """Yield a table of every field below a model that a user or the controller writes."""
    yield "| field | type | default | meaning |"
    yield "| --- | --- | --- | --- |"
    yield from rows(model, path)


def rows(model: Any, path: FieldPath) -> Iterator[str]:
    """Yield the rows of a model's fields, each part's after the part."""
    texts = descriptions(model)
    for shape in field_schemas(model):
        if shape.has(FieldFlag.SET_BY_SERVER):
            continue
        here = shape.below(path)
        shown = f"{here.text}[]" if shape.is_list and shape.is_model else here.text
        meaning = texts.get(shape.attribute) or (summary(shape.kind) if shape.is_model else "")
        yield f"| `{shown}` | {kind(shape)} | {default(shape)} | {meaning} |"
        if shape.is_model:
            yield from rows(shape.kind, FieldPath(keys=here.keys, text=shown))


def kind(shape: FieldSchema) -> str:
    """Return what a field holds, with its limits."""
    if shape.content is not None:
        found = CONTENT[shape.content]
        return f"list of {found}s" if shape.is_list else found
    if shape.is_model:
        return "list" if shape.is_list else "object"
    if shape.kind is bool:
        return "true or false"
    if shape.kind is int:
        return number(shape.limits)
    if shape.kind is not str:
        return ", ".join(f"`{word}`" for word in shape.kind)
    return "time" if shape.has(FieldFlag.TIME) else "list of text" if shape.is_list else "text"


def number(limits: IntegerRange) -> str:
    """Return an integer's range."""
    if limits.minimum is not None and limits.minimum == limits.maximum:
        return str(limits.minimum)
    return f"int{limits.bits}" if limits.minimum is None else f"int{limits.bits}, at least {limits.minimum}"


def default(shape: FieldSchema) -> str:
    """Return a field's default as a reader of the page needs it."""
    if shape.is_required:
        return "*required*"
    if shape.is_model or not isinstance(shape.default, bool | int | str) or shape.default == "":
        return ""
    value = str(shape.default) if isinstance(shape.default, StrEnum) else shape.default
    shown = f"`{str(value).lower() if isinstance(value, bool) else value}`"
    return f"{shown} *(empty)*" if shape.has(FieldFlag.EMPTY_IS_DEFAULT) else shown


def rules() -> Iterator[str]:
    """Yield what the API server itself checks beyond types and limits."""
    yield "The API server checks types, limits and these rules (CEL):\n"
    for found in RULES.values():
        for rule in found:
            yield f"* {rule['message']}"


def notes() -> Iterator[str]:
    """Yield the annotations of a job that mean something here."""
    meanings = _texts_below(annotations)
    for name, values in annotations.KNOWN.items():
        choice = (
            f" {' or '.join(f'`{value}`' for value in values)}{'; the first is the default' * (len(values) > 1)}."
            if values
            else ""
        )
        yield f"* `{name}`:{choice} {meanings[name]}"
        yield from (f"  - `{value}`: {meanings[value]}" for value in values if value in meanings)


def _texts_below(module: ModuleType) -> dict[str, str]:
    """Return the value of each constant of a module → the text below it, on one line."""
    body = ast.parse(inspect.getsource(module)).body
    return {
        ast.literal_eval(one.value): " ".join(ast.literal_eval(text.value).split())
        for one, text in pairwise(body)
        if isinstance(one, ast.Assign) and isinstance(text, ast.Expr) and isinstance(one.value, ast.Constant)
    }


def columns() -> Iterator[str]:
    """Yield what kubectl shows."""
    shown = ", ".join(name for name, _, _, priority in COLUMNS if not priority)
    wide = ", ".join(name for name, _, _, priority in COLUMNS if priority)
    yield f"`kubectl get mpijobs` shows {shown}; with `-o wide` also {wide}. `kubectl scale --replicas=4 mpijob/NAME`"
    yield "changes the number of workers."


if __name__ == "__main__":
    sys.stdout.write(page())
