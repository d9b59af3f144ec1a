"""Facts that were not read in time are unknown: no check, comparison or profile takes them for absent."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.fabric.check_cases import efa, hgx, pod

from ringleader.cli.doctor.judged_hosts import described
from ringleader.cli.doctor.stored_facts import write_profile
from ringleader.doctor.judgement import host_results
from ringleader.doctor.software_checks import SOFTWARE_CHECKS
from ringleader.errors import RefusedError
from ringleader.fabric.check_result import Verdict
from ringleader.fabric.checks import HOST_CHECKS
from ringleader.fabric.checks.between_hosts import compare_hosts
from ringleader.fabric.checks.profile import judge_profile, profile_of
from ringleader.fabric.facts import TOO_LATE, HostFacts, Unreadable
from ringleader.fabric.readers import host as reader
from ringleader.fabric.unread_areas import FIELDS_OF_AREA, UnreadError, known

CHECKS = (*HOST_CHECKS, *SOFTWARE_CHECKS)


def late(facts: HostFacts, area: str) -> HostFacts:
    """Return the facts as a host tells them that did not read one area in time: nothing is in it."""
    nothing = reader.read_host(Path("/nonexistent"), {}, seconds=60.0)
    fields = {name: getattr(nothing, name) for name in FIELDS_OF_AREA[area]}
    unreadable = (*facts.unreadable, Unreadable(path=area, reason=TOO_LATE))
    return dataclasses.replace(facts, **fields, unreadable=unreadable)


def slowed(area: str, monkeypatch: pytest.MonkeyPatch) -> HostFacts:
    """Return this machine's facts, read with one reader that takes longer than it may."""
    areas = reader._areas

    def slow(files: Any) -> dict[str, Any]:
        files._stopped = True  # as its next read finds after the deadline
        return {}

    monkeypatch.setattr(reader, "_areas", lambda *given: {**areas(*given), area: slow})
    return reader.read_host(environ={"PATH": "/usr/bin"}, seconds=60.0)


@functools.cache
def whole_results(host: Any) -> dict[str, Any]:
    return {one.id: one.results(host()) for one in CHECKS}


@pytest.fixture(params=sorted(FIELDS_OF_AREA))
def area(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


def test_every_area_that_is_read_has_its_fields() -> None:
    fields = [name for names in FIELDS_OF_AREA.values() for name in names]
    assert set(reader._areas({}, list)) == {*FIELDS_OF_AREA, "NVML"}
    assert len(fields) == len(set(fields))
    others = {one.name for one in dataclasses.fields(HostFacts)} - set(fields)
    assert others == {"unreadable", "seconds", "earlier"}


def test_a_reader_that_is_slow_leaves_its_area_unknown(area: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = slowed(area, monkeypatch)
    assert found.late_areas == {area}
    for name in FIELDS_OF_AREA[area]:
        with pytest.raises(UnreadError, match=f"{area}: not read in time"):
            getattr(known(found), name)


@pytest.mark.parametrize("host", [hgx, pod, efa])
def test_no_check_judges_what_was_not_read(area: str, host: Any) -> None:
    unread, whole = late(host(), area), whole_results(host)
    for check in CHECKS:
        results = check.results(unread)
        skip = len(results) == 1 and results[0].verdict is Verdict.SKIP and area in results[0].seen
        assert check.id == "host.sysfs" or skip or results == whole[check.id], (check.id, results)


def test_a_host_that_was_slow_is_named_and_never_the_odd_one(area: str) -> None:
    found = compare_hosts({"a": hgx(), "b": late(hgx(), area), "c": hgx()})
    assert [one for one in found if one.hosts == ("b",) and one.verdict is not Verdict.SKIP] == []
    skips = [one for one in found if one.verdict is Verdict.SKIP]
    assert all(one.hosts == ("b",) and one.seen == f"{area}: not read in time" for one in skips)
    assert skips or area in ("PCI devices", "the kernel's log")  # which no comparison uses


def test_a_profile_is_neither_judged_nor_written_by_what_was_not_read(area: str, tmp_path: Path) -> None:
    profile = profile_of(hgx())
    failed = [one.id for one in judge_profile(late(hgx(), area), profile) if one.verdict is Verdict.FAIL]
    assert failed == []
    if area in ("RDMA devices", "GPUs", "the process", "software", "memory", "network interfaces"):
        with pytest.raises(RefusedError, match="not read in time"):
            write_profile(str(tmp_path / "profile.toml"), late(hgx(), area))
        assert not list(tmp_path.iterdir())


def test_of_a_host_that_was_not_read_in_time_only_that_is_said() -> None:
    found = reader.read_host(environ={}, seconds=0.0)
    assert {"network interfaces", "the process", "RDMA devices"} <= found.late_areas
    bad = [one for one in host_results(found) if one.verdict in (Verdict.FAIL, Verdict.WARN)]
    assert [one.id for one in bad] == ["host.sysfs"] and "--start-timeout" in bad[0].remedy
    assert "CPU" not in described(found) and "RDMA devices not read" in described(found)
