"""Every check of a host: one host that passes it and one that does not."""

import dataclasses

import pytest
from tests.fabric_hosts import NAMES, facts
from tests.unit.fabric.check_cases import FAILING, PASSING, hgx

from ringleader.fabric.check_result import Verdict
from ringleader.fabric.checks import HOST_CHECKS, judge_host
from ringleader.fabric.checks.check import JUDGES, Check, rows

BY_ID = {one.id: one for one in HOST_CHECKS}


def test_each_check_has_a_failing_host_and_its_own_id() -> None:
    assert len(BY_ID) == len(HOST_CHECKS) >= 135
    assert set(FAILING) == set(BY_ID)
    assert set(PASSING) <= set(BY_ID)


@pytest.mark.parametrize("check", HOST_CHECKS, ids=list(BY_ID))
def test_a_sound_host_passes_and_one_that_is_not_well_does_not(check: Check) -> None:
    results = check.results(PASSING.get(check.id, hgx)())
    assert [(one.verdict, one.seen) for one in results if one.verdict is not Verdict.PASS] == []
    assert all(one.id == check.id and one.seen for one in results)
    verdict, host = FAILING[check.id]
    results = check.results(host())
    assert min((one.verdict for one in results), key=list(Verdict).index) == verdict, results
    worst = next(one for one in results if one.verdict == verdict)
    assert worst.remedy and worst.seen and not worst.seen.endswith(".")
    # Each says what it is, for the reference page.
    assert ". " in check.what and check.reads and check.judge
    assert check.fails if verdict == "fail" else check.warns
    texts = (check.what, check.reads, check.remedy, check.passes, check.warns, check.fails, check.source)
    assert not any(text.endswith(".") or "  " in text for text in texts)


def test_each_judge_has_a_row_and_causes_are_checks() -> None:
    every = {id: row for group in rows().values() for id, row in group.items()}
    assert set(JUDGES) <= set(every)
    causes = {cause.removesuffix("*") for row in every.values() for cause in row.get("follows", ())}
    assert causes <= set(every)


WRONG = {
    "connectx_pod": {"dev.match", "limit.shm"},
    "soft_rxe": {"dev.soft"},
    "cloud_vm": {"limit.shm", "limit.nofile"},
    "broken_ports": {"port.state", "port.phys", "port.rate", "port.fw", "port.pkey"},
    "saturated_counters": {"port.saturated", "port.errors", "port.flaps"},
    "no_pma": {"port.counters"},
    "half_width": {"pci.width", "pci.speed", "pci.bandwidth"},
}
"""What is wrong with hosts of the trees; the others are well."""


@pytest.mark.parametrize("name", NAMES)
def test_what_is_wrong_with_each_host(name: str) -> None:
    results = judge_host(facts(name))
    assert {one.id for one in results if one.verdict in (Verdict.FAIL, Verdict.WARN)} == WRONG.get(
        name, set()
    )
    assert not [one for one in results if "could not judge" in one.seen]


def test_a_laptop_gets_one_reason_for_all_of_rdma() -> None:
    results = judge_host(facts("laptop"))
    rdma = [one for one in results if one.id == "rdma"]
    assert len(rdma) == 1 and rdma[0].seen.startswith("no RDMA device here: ")
    assert not [one for one in results if one.id.startswith(("port.", "dev.", "roce.", "gid."))]
    assert not [one for one in results if one.verdict is Verdict.FAIL]


def test_a_check_that_breaks_is_a_skip() -> None:
    broken = dataclasses.replace(BY_ID["port.state"], judge=lambda _: iter((1 / 0,)))
    (result,) = broken.results(hgx())
    assert result.verdict is Verdict.SKIP and "ZeroDivisionError" in result.seen
