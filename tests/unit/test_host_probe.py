from __future__ import annotations

from ringleader.job import Host, Job
from ringleader.launch.host_probe.probe import MOST_NAMES, remote_question, some_names


def test_few_names_are_all_asked_of_every_host() -> None:
    assert some_names([]) == []
    assert some_names(["h1", "h2", "h1"]) == ["h1", "h2"]
    assert some_names([f"h{i}" for i in range(MOST_NAMES)]) == [f"h{i}" for i in range(MOST_NAMES)]


def test_what_resolvers_are_asked_grows_with_the_hosts_only() -> None:
    names = [f"h{i}" for i in range(2048)]
    asked = some_names(names)
    assert asked[0] == "h0" and len(asked) <= MOST_NAMES
    hosts = tuple(Host(name=name) for name in names)
    question = remote_question(Job(command=("x",), hosts=hosts), hosts, frozenset(), None)
    assert len(question["names"]) <= MOST_NAMES + 1
