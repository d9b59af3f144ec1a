from __future__ import annotations

import sys

import pytest

from ringleader.errors import ProbeError
from ringleader.job import Host, Job
from ringleader.launch.host_probe.host_checks import platform_faults
from ringleader.launch.host_probe.host_query import MOST_NAMES, some_names
from ringleader.launch.host_probe.probe import probe, remote_question
from ringleader.ranks import host_facts_script


def test_few_names_are_all_asked_of_every_host() -> None:
    assert some_names([]) == []
    assert some_names(["h1", "h2", "h1"]) == ["h1", "h2"]
    assert some_names([f"h{i}" for i in range(MOST_NAMES)]) == [f"h{i}" for i in range(MOST_NAMES)]


def test_what_resolvers_are_asked_grows_with_the_hosts_only() -> None:
    names = [f"h{i}" for i in range(2048)]
    asked = some_names(names)
    assert asked[0] == "h0" and len(asked) <= MOST_NAMES
    hosts = tuple(Host(name=name) for name in names)
    job = Job(command=("x",), hosts=hosts)
    question = remote_question({"workdir": "/"}, job, hosts, frozenset(), None)
    assert len(question["names"]) <= MOST_NAMES + 1


def test_ranks_need_linux_on_every_machine() -> None:
    faults = platform_faults({"host a": "linux", "host b": "darwin", "host c": "freebsd14"})
    assert [(fault.where, fault.what.partition(";")[0]) for fault in faults] == [
        ("host b", "this is macOS"),
        ("host c", "this is freebsd14"),
    ]


def test_on_another_system_the_job_is_refused_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ProbeError, match="this machine: this is macOS; ranks need Linux") as refused:
        probe(Job(command=("python",), np=1), environ={}, progress=lambda line: None)
    assert refused.value.exit_code == 3
    assert host_facts_script.answer({}, {}) == {"platform": "darwin"}
