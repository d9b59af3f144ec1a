import errno
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ringleader.agents import host_facts_script
from ringleader.errors import ProbeError
from ringleader.launch.host_probe.host_answer import MOST_NAMES, some_names
from ringleader.launch.host_probe.probe import probe, remote_question
from ringleader.launch.host_probe.remote_hosts import SshQuery, ask_all
from ringleader.launch.host_probe.unusable_hosts import platform_faults
from ringleader.plan.job import Host, Job


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


class Connections(SimpleNamespace):
    """Connections to hosts, of which asking one fails."""

    closed = False
    error: BaseException = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def run(self, host: Host, *words: Any, **named: Any) -> Any:
        raise self.error

    def close(self) -> None:
        self.closed = True


def query(ssh: Any, *, shared: bool) -> SshQuery:
    return SshQuery(ssh=ssh, question={"workdir": "/"}, python="python3", seconds=1.0, shared=shared)


@pytest.mark.parametrize("shared", [True, False])
def test_a_machine_that_lacks_room_or_processes_is_a_fault_of_the_host_asked(shared: bool) -> None:
    """Over the same connections an MPI's daemons may run."""
    ssh = Connections()
    one = query(ssh, shared=shared)
    answers, faults = ask_all(one.ask, [Host(name="h1")], lambda text: None, give_up=one.give_up)
    assert not answers and not ssh.closed
    assert [fault.where for fault in faults] == ["host h1"]
    assert faults[0].what == "it cannot be probed: No space left on device" and "ulimit -u" in faults[0].hint


@pytest.mark.parametrize("shared", [True, False])
def test_only_connections_of_its_own_are_closed_when_asking_fails(shared: bool) -> None:
    ssh = Connections(error=RuntimeError("can't start new thread"))
    with pytest.raises(RuntimeError):
        one = query(ssh, shared=shared)
        ask_all(one.ask, [Host(name="h1")], lambda text: None, give_up=one.give_up)
    assert ssh.closed is not shared
