"""Facts that were not read in time: nothing is judged by them."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.fabric.check_cases import FAILING, hgx

from ringleader.cli.doctor.host_lines import described
from ringleader.doctor.judgement import host_results
from ringleader.doctor.software_checks import SOFTWARE_CHECKS
from ringleader.fabric.check_result import Verdict
from ringleader.fabric.checks.host_checks import HOST_CHECKS
from ringleader.fabric.checks.late_areas import AREAS_OF_CHECK, AREAS_OF_GROUP
from ringleader.fabric.facts import TOO_LATE, Unreadable
from ringleader.fabric.readers.host import _areas, read_host

CHECKS = (*HOST_CHECKS, *SOFTWARE_CHECKS)


def test_each_check_says_which_areas_it_judges() -> None:
    read = set(_areas({}, list))
    named = {area for areas in (*AREAS_OF_GROUP.values(), *AREAS_OF_CHECK.values()) for area in areas}
    assert named < read
    assert {one.group for one in CHECKS} == set(AREAS_OF_GROUP)
    assert set(AREAS_OF_CHECK) < {one.id for one in CHECKS}


def test_of_a_host_that_was_not_read_in_time_only_that_is_said() -> None:
    found = read_host(environ={}, seconds=0.0)
    assert {"network interfaces", "the process", "RDMA devices"} <= found.late_areas
    bad = [one for one in host_results(found) if one.verdict in (Verdict.FAIL, Verdict.WARN)]
    assert [one.id for one in bad] == ["host.sysfs"] and "--timeout" in bad[0].remedy
    assert "CPU" not in described(found) and "RDMA devices not read" in described(found)


@pytest.mark.parametrize(
    ("id", "area"),
    [
        ("net.up", "network interfaces"),
        ("host.processors", "the process"),
        ("host.clock", "the clock"),
        ("limit.shm", "memory"),
        ("port.state", "RDMA devices"),
    ],
)
def test_a_check_of_an_area_that_was_late_is_a_skip_with_that_reason(id: str, area: str) -> None:
    (check,) = (one for one in CHECKS if one.id == id)
    _, host = FAILING[id]
    late = dataclasses.replace(host(), unreadable=(Unreadable(path=area, reason=TOO_LATE),))
    (result,) = check.results(late)
    assert (result.verdict, result.seen) == (Verdict.SKIP, f"{area}: not read in time")
    other = dataclasses.replace(hgx(), unreadable=(Unreadable(path="NVML", reason=TOO_LATE),))
    assert check.results(other)[0].verdict is not Verdict.SKIP
