"""Whatever job there can be: written and read, through JSON and through YAML, it is the same job."""

import json

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ringleader.kubernetes.mpijob.field_schema import JsonContent, field_schemas
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.parser import read, write
from ringleader.kubernetes.mpijob.yaml_text import documents, text_of

WORDS = ["yes", "n", "010", "1e3", "null", "~", "1:30", "2020-01-01", "#", "<<", "=", "0x1", ".5"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [*WORDS, "a: b", "- x", "x\ny\n"]
)
KEY = TEXT.filter(bool)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
NAME = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
CONTAINERS = st.lists(NAME, min_size=1, max_size=3, unique=True).flatmap(
    lambda names: st.tuples(
        *(
            st.builds(lambda more, n=name: {**more, "name": n}, st.dictionaries(TEXT, JSON, max_size=2))
            for name in names
        )
    )
)
CONTENT = {
    JsonContent.ANY: st.dictionaries(TEXT, JSON, max_size=2),
    JsonContent.TEXTS: st.dictionaries(TEXT.map(lambda text: f"x/{text}"), TEXT, max_size=3),
    JsonContent.QUANTITIES: st.dictionaries(
        KEY, st.sampled_from(["4", "500m", "2Gi", "0.5", "1e3"]) | st.integers(0), max_size=2
    ),
    JsonContent.TEMPLATE: st.builds(
        lambda containers, more: {"spec": {"containers": list(containers), "nodeSelector": more}},
        CONTAINERS,
        st.dictionaries(TEXT, JSON, max_size=2),
    ),
}


def models(model):
    """Any value of a dataclass of the model that its fields' marks allow."""
    return st.builds(model, **{shape.attribute: field(model, shape) for shape in field_schemas(model)})


def field(model, shape):
    if model.__name__ == "Metadata" and shape.attribute in ("name", "generate_name", "namespace"):
        return NAME
    one = value(shape)
    if shape.is_list:
        return st.lists(one, max_size=2).map(tuple)
    return one if shape.default is not None or shape.is_required else st.none() | one


def value(shape):
    if shape.is_model:
        return models(shape.kind)
    content = shape.content
    if content is not None:
        return CONTENT[content]
    if shape.kind is bool:
        return st.booleans()
    if shape.kind is int:
        limits = shape.limits
        low = -(2 ** (limits.bits - 1)) if limits.minimum is None else limits.minimum
        high = 2 ** (limits.bits - 1) - 1 if limits.maximum is None else limits.maximum
        return st.integers(low, high)
    if shape.kind is str:
        return KEY if shape.name == "sshAuthMountPath" else TEXT
    return st.sampled_from(list(shape.kind))


JOBS = models(MPIJob)
SLOW = settings(
    max_examples=40, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow]
)


@SLOW
@given(JOBS)
def test_written_and_read_it_is_the_same_job(job):
    document = write(job)
    assert read(document) == job
    assert read(json.loads(json.dumps(document))) == job


@SLOW
@given(JOBS)
def test_yaml_keeps_every_word(job):
    text = text_of([write(job), write(job)])
    assert [read(document.value) for document in documents(text, "job.yaml")] == [job, job]


@SLOW
@given(JSON)
def test_yaml_keeps_any_json(value):
    found = documents(text_of([{"value": value}]), "a.yaml")
    assert [one.value for one in found] == [{"value": value}]


@SLOW
@given(JOBS)
def test_a_document_shares_nothing_with_the_job(job):
    document = write(job)
    document["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"].append({"name": "x"})
    assert document["spec"] != write(job)["spec"]
