"""Checks, comparisons and profiles take any facts: what a host says, or another program wrote."""

import dataclasses
import json
import types
import typing
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.fabric_hosts import NAMES, facts

from ringleader.dataclass_json import document, from_document
from ringleader.doctor.judgement import host_results
from ringleader.fabric.check_result import Verdict
from ringleader.fabric.checks import HOST_CHECKS, judge_host
from ringleader.fabric.checks.between_hosts import compare_hosts
from ringleader.fabric.checks.profile import judge_profile, profile_of
from ringleader.fabric.facts import HostFacts

HINTS = typing.get_type_hints(HostFacts)
PLAIN = (
    *("0", "-1", "ACTIVE", "DOWN", "InfiniBand", "Ethernet", "mlx5_0", "mlx5_core", "efa", "nvidia", "5.15"),
)
WORDS = st.sampled_from(["", *PLAIN]) | st.text(max_size=8)
OF_NCCL = (
    *("IB_HCA", "IB_GID_INDEX", "IB_TC", "IB_TIMEOUT", "SOCKET_IFNAME", "SOCKET_NTHREADS", "NET_GDR_LEVEL"),
)
OTHERS = ("UCX_TLS", "UCX_NET_DEVICES", "CUDA_VISIBLE_DEVICES", "OMPI_MCA_btl", "PCIDEVICE_X")
NAMES_OF_VARIABLES = st.sampled_from([*(f"NCCL_{name}" for name in OF_NCCL), *OTHERS])
VALUES = (
    st.sampled_from(["^", "=", "^=", ",", "mlx5_0:1,", "eth0", "٣", "²", "-5", "1e3", "99999999999"]) | WORDS
)


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of a type that facts are made of."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return st.one_of([anything(one) for one in arguments])
    if origin is tuple:
        return st.lists(anything(arguments[0]), max_size=3).map(tuple)
    if origin is not None:
        return st.dictionaries(anything(arguments[0]), anything(arguments[1]), max_size=3)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return st.fixed_dictionaries({name: anything(one) for name, one in hints.items()}).map(
            lambda values: hint(**values)
        )
    if hint is float:
        return st.sampled_from([0.0, 1.0, 1e9, -1.0]) | st.floats(allow_nan=False, allow_infinity=False)
    plain = {str: WORDS, int: st.integers(-1, 3) | st.integers(-(10**18), 10**18), bool: st.booleans()}
    return plain.get(hint, st.none())


@st.composite
def any_facts(draw: st.DrawFn) -> HostFacts:
    """Return a host of the trees, some of whose fields are anything of their type."""
    base = facts(draw(st.sampled_from(NAMES)))
    names = draw(st.sets(st.sampled_from(sorted(HINTS)), max_size=4))
    changes: dict[str, Any] = {name: draw(anything(HINTS[name])) for name in sorted(names)}
    changes["environment"] = {
        **base.environment,
        **draw(st.dictionaries(NAMES_OF_VARIABLES, VALUES, max_size=3)),
    }
    return dataclasses.replace(base, **changes)


# Facts of a host are too large to be made small within minutes; what failed is named by the assertions.
TRIED = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase is not Phase.shrink],
)


@TRIED
@given(any_facts())
def test_every_check_judges_any_facts(host: HostFacts) -> None:
    results = judge_host(host)
    assert not [one for one in results if one.seen.startswith("the check could not judge")]
    assert all(one.is_bad for one in host_results(host) if one.cause)
    judged = {one.id for one in results}
    skipped = {one.needs.id for one in HOST_CHECKS if one.needs} | {"rdma-device"}
    assert judged <= {one.id for one in HOST_CHECKS} | skipped
    assert not [one.id for one in results if not one.seen or one.verdict not in Verdict]
    assert judge_host(from_document(HostFacts, json.loads(json.dumps(document(host))))) == results


@TRIED
@given(st.dictionaries(st.sampled_from("abc"), any_facts(), max_size=3))
def test_any_hosts_are_compared(hosts: dict[str, HostFacts]) -> None:
    results = compare_hosts(hosts)
    assert not [one for one in results if one.seen.startswith("could not compare")]
    assert all(set(one.hosts) <= set(hosts) and one.hosts for one in results)


@TRIED
@given(any_facts(), any_facts())
def test_any_host_is_held_against_any_profile(host: HostFacts, model: HostFacts) -> None:
    assert all(one.id.startswith("expect.") for one in judge_profile(host, profile_of(model)))
