"""Sources of hosts, with real programs and files; which answers count, and hosts that stay out."""

from __future__ import annotations

import os
import select
import threading
import time
from pathlib import Path

import pytest
from tests.time_limits import patience

from ringleader.errors import RequestError
from ringleader.launch.elastic.available_hosts import (
    AvailableHosts,
    HostAnswers,
    HostBlacklist,
    first_hosts,
    stay_seconds,
)
from ringleader.launch.elastic.host_sources import (
    HostSource,
    HostSourceError,
    command_words,
    discovery_script,
    fixed_hosts,
    hostfile,
    hosts_in,
    no_answer,
    output_of,
    slurm_nodes,
    source_of,
)
from ringleader.plan.batch_system import find_allocation, slurm_job_id
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.host_list import parse_host_list
from ringleader.plan.job import Host, Job


def named(hosts):
    return " ".join(f"{host.name}:{host.slots}" for host in hosts)


def is_running(pid):
    """Say whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def script(tmp_path):
    def make(body, name="find.sh"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.mark.process
def test_a_script_and_its_arguments(script, tmp_path):
    path = script('echo "$1:$2"; echo "; touch $HOME/x" >&2')
    before = len(os.listdir("/proc/self/fd"))
    source = discovery_script(command_words(f"{path} 'h1' 3", "--host-discovery-script"))
    assert named(source.look()) == "h1:3"
    assert named(discovery_script((script("echo h1"),), default_slots=4).look()) == "h1:4"
    spaced = script("echo h1:1", name="find hosts.sh")
    assert command_words(spaced, "-") == (spaced,)
    (tmp_path / "find hosts.sh").write_text('echo "$1:2"\n')  # without a first line it is one for sh
    assert named(discovery_script((spaced, "h1")).look()) == "h1:2"
    (tmp_path / "find hosts.sh").write_text("#!/no/such/interpreter\n")
    with pytest.raises(HostSourceError, match=r"find hosts\.sh: "):
        discovery_script((spaced,)).look()
    assert len(os.listdir("/proc/self/fd")) == before


def test_programs_that_cannot_be_run(tmp_path):
    (tmp_path / "find.sh").write_text("echo h1")
    for words, said in (
        ("", "names no program"),
        ("'x", "unmatched quotes"),
        ("/no/such/script", "there is no program /no/such"),
        (f"{tmp_path}/find.sh", r"may not be run\n.*chmod \+x"),
    ):
        with pytest.raises(RequestError, match=said):
            command_words(words, "--host-discovery-script")


@pytest.mark.process
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo one >&2; echo the server is away >&2; exit 3", r"find.sh: exit code 3: the server is away"),
        ("kill -SEGV $$", r"find.sh: ended by SIGSEGV"),
        ("echo h1:2; echo 'no hosts?'", r"find.sh:2: 'no' is not understood|find.sh:2: .*hosts\?"),
        ("yes h1 | head -c 2000000", r"printed more than 1 MiB"),
    ],
)
def test_scripts_that_fail(script, body, said):
    with pytest.raises(HostSourceError, match=said):
        discovery_script((script(body),)).look()


@pytest.mark.process
def test_a_script_that_hangs_is_ended_with_its_children(script, tmp_path):
    pids = tmp_path / "pids"
    path = script(f"trap '' TERM; sleep 600 & echo $$ $! > {pids}; wait; sleep 600")
    with pytest.raises(HostSourceError, match=r"was ended: it had not answered after 0\.5 s"):
        output_of((path,), seconds=0.5)
    assert not any(is_running(int(pid)) for pid in pids.read_text().split())


@pytest.mark.process
@pytest.mark.parametrize(
    ("body", "printed"),
    [
        ("echo h1:2; echo h2:2 > /dev/stdout; echo h3:2\n", "h1:2\nh2:2\nh3:2\n"),
        ("head -c 3000000 /dev/zero >&2; echo h1:2\n", "h1:2\n"),
        ("sleep 40 & echo h1:1", "h1:1\n"),
    ],
    ids=["it opens its output by name", "standard error is no list of hosts", "what it leaves running"],
)
def test_what_a_script_prints(script, body, printed):
    assert output_of((script(body),), seconds=30.0) == printed


def test_a_hostfile_is_read_again_when_it_changed(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("h1 slots=2\n")
    source = hostfile(str(path), default_slots=1)
    assert named(source.look()) == "h1:2"
    path.write_text("h1 slots=2\nh2\n")
    assert named(source.look()) == "h1:2 h2:1"
    new = tmp_path / "new"
    new.write_text("h3 slots=2\nh2\n")
    new.rename(path)
    assert named(source.look()) == "h3:2 h2:1"


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read: No such file"), (b"", "names no host"),
     (b"h1 slot=2", "hosts:1: 'slot=2' is not"), (b"\xff\xfe", "not a text in UTF-8")],
)  # fmt: skip
def test_hostfiles_that_name_no_hosts(tmp_path, content, said):
    path = tmp_path / "hosts"
    path.write_text("h1:1")
    source = hostfile(str(path))
    source.look()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(HostSourceError, match=said):
        source.look()
    path.write_text("h1:1")
    assert named(source.look()) == "h1:1"


def test_a_host_with_more_slots_than_a_job_may_have_ranks_is_refused(tmp_path):
    (tmp_path / "hosts").write_text("localhost slots=1000000\n")
    source = hostfile(str(tmp_path / "hosts"))
    with pytest.raises(
        HostSourceError, match="localhost has 1000000 slots; an elastic job has at most 16384"
    ):
        first_hosts(source, None, warn=lambda text: None)


SHOWN = (
    "JobId=42 JobName=train UserId=a(1) JobState=RUNNING Requeue=1 Restarts=1 "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList={} BatchHost=n1 NumNodes=2 TRES=cpu=8,node=2\n"
)


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ("n[1,3]", ("n1", "n3")),
        ("(null)", r"no nodes \(RUNNING\)"),
        (None, "no nodes"),
        ("n[3-1]", "runs backwards"),
    ],
)
def test_slurms_nodes(nodes, found):
    text = "" if nodes is None else SHOWN.format(nodes)
    if isinstance(found, tuple):
        assert slurm_nodes(text, "s") == found
        return
    with pytest.raises(HostSourceError, match=found):
        slurm_nodes(text, "scontrol show job 42")


@pytest.mark.process
def test_slurms_controller_is_asked(script, tmp_path, monkeypatch):
    shown = SHOWN.format("n[1,3]")
    script(f'test "$*" = "--oneliner show job 42" && echo "{shown}"', name="scontrol")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    environ = {
        "SLURM_JOB_ID": "42",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_TASKS_PER_NODE": "4,2",
        "SLURM_NTASKS": "6",
    }
    allocation = find_allocation(environ, lambda path: "")
    assert allocation is not None
    assert slurm_job_id(allocation, environ) == "42"
    assert slurm_job_id(allocation, {}) is None
    source = source_of(Job(command=("x",), hosts=allocation.hosts), ElasticOptions(slurm_job="42"))
    assert named(first_hosts(source, None, warn=pytest.fail)) == "n1:4 n3:2"


@pytest.mark.process
def test_a_job_begins_on_slurms_nodes_where_its_controller_cannot_be_asked(script, tmp_path, monkeypatch):
    script("echo no controller >&2; exit 1", name="scontrol")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    hosts = (Host(name="n1", slots=4), Host(name="n2", slots=2))
    source = source_of(Job(command=("x",), hosts=hosts), ElasticOptions(slurm_job="42"))
    warnings = []
    assert first_hosts(source, None, warn=warnings.append) == hosts
    assert "no controller" in warnings[0] and "Slurm's variables" in warnings[0]
    failing = source_of(Job(command=("x",)), ElasticOptions(hostfile=str(tmp_path / "none")))
    with pytest.raises(HostSourceError, match="cannot be read"):
        first_hosts(failing, None, warn=pytest.fail)


def wait_for(offers, count, seconds=20.0):
    """The first ``count`` warnings and hosts, as the launcher's loop hears them."""
    found = []
    until = time.monotonic() + patience(seconds)
    while len(found) < count:
        ready, _, _ = select.select([offers], [], [], until - time.monotonic())
        assert ready, f"only {found}"
        hosts, warnings = offers.news(1.0)
        found += warnings if hosts is None else [*warnings, " ".join(name for name, _ in hosts)]
    return found


def prepared(*answers):
    """A source that gives prepared answers, the last one for ever."""
    left = list(answers)

    def probe(stop):
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return HostSource(name="prepared", probe=probe, period=0.01)


H1, H2 = (Host(name="h1", slots=1),), (Host(name="h2", slots=1),)


def test_news_reach_the_loop_in_order():
    source = prepared(H1, HostSourceError("away"), ValueError("odd"), H1, H2, H2, H2)
    offers = AvailableHosts(source, H1)
    first, second, third, fourth = wait_for(offers, 4)
    offers.close()
    offers.close()
    assert "away" in first and "ValueError: odd" in second
    assert third == "prepared names hosts again" and fourth == "h2"
    assert not [thread for thread in threading.enumerate() if thread.name == "hosts of prepared"]


def test_fixed_hosts_never_change_and_a_refresh_does_not_wait_for_the_period():
    source = fixed_hosts(H1)
    offers = AvailableHosts(source, source.look(), period=0.001)
    assert offers.fileno() is None and not offers.refresh()
    assert offers.usable() == [("h1", 1)] and offers.news(1.0) == (None, [])
    offers.close()
    offers = AvailableHosts(prepared(H2), H1, period=3600.0)
    offers.refresh()
    assert wait_for(offers, 1) == ["h2"]
    offers.close()


def hosts(text):
    return parse_host_list(text).hosts if text else ()


def changes(answers, *texts):
    """What the answers bring: each time the hosts that count then, as words."""
    return [
        news if isinstance(news, str) else words(news) for text in texts for news in answers.take(hosts(text))
    ]


def words(named):
    return ",".join(f"{host.name}:{host.slots}" for host in named)


def test_hosts_that_a_script_prints():
    for text, found in (
        ("", ""),
        ("h1:2\nh2:3\n", "h1:2 h2:3"),
        ("h1 slots=2\n# none\nh2:1", "h1:2 h2:1"),
        ("  h1:2  \r\nh2:1\r\n", "h1:2 h2:1"),
        ("h1:2\nh1:1\n", "h1:3"),
        ("[fe80::1]:2\nuser@h2:1", "fe80::1:2 user@h2:1"),
    ):
        named = [
            host.name if host.slots is None else f"{host.name}:{host.slots}" for host in hosts_in(text, "s")
        ]
        assert " ".join(named) == found


def test_every_line_that_names_no_host_is_told_with_its_number():
    with pytest.raises(HostSourceError) as raised:
        hosts_in("h1:2\nError: no such job\nh2:x\n\0\n", "find.sh")
    assert [fault.where for fault in raised.value.faults] == ["find.sh:2", "find.sh:3", "find.sh:4"]
    assert "'x' is not a number of slots" in str(raised.value)


def test_a_change_counts_once_it_was_said_twice():
    for first, then, told in (
        ("h1:1", ["h1:1", "h1:1"], []),
        ("h1:1", ["h1:1,h2:1", "h1:1,h2:1"], ["h1:1,h2:1"]),
        ("h1:1,h2:1", ["h1:1", "h1:1"], ["h1:1"]),
        ("h1:1,h2:1", ["h1:1,h3:1", "h1:1,h3:1"], ["h1:1,h3:1"]),
        ("h1:1", ["h1:2", "h1:2"], ["h1:2"]),
        ("h1:1,h2:1", ["", ""], [""]),
        # One that flaps never says the same twice.
        ("h1:1", ["h1:1,h2:1", "h1:1", "h1:1,h2:1", "h1:1", "h1:1,h2:1"], []),
        ("h1:1", ["h2:1", "h3:1", "h3:1", "h3:1"], ["h3:1"]),
        # The order of the lines is no change.
        ("h1:1,h2:1", ["h2:1,h1:1", "h2:1,h1:1"], []),
    ):
        assert changes(HostAnswers("s", hosts(first)), *then) == told


def test_hosts_that_were_there_stay_first_and_in_order():
    answers = HostAnswers("s", hosts("h1:1,h2:1,h3:1"))
    changes(answers, *["h0:1,h3:1,h1:2"] * 2)
    assert [f"{host.name}:{host.slots}" for host in answers.hosts] == ["h1:2", "h3:1", "h0:1"]


def test_a_failure_is_told_once_and_its_end_too():
    answers = HostAnswers("find.sh", hosts("h1:1,h2:1"))
    (warning,) = answers.take_failure(no_answer("find.sh", "exit code 3"))
    assert warning == "find.sh: exit code 3\n    → what it said last still counts: h1, h2"
    assert answers.take_failure(no_answer("find.sh", "exit code 3")) == []
    assert len(answers.take_failure(no_answer("find.sh", "exit code 4"))) == 1
    assert answers.take(hosts("h1:1,h2:1")) == ["find.sh names hosts again"]
    assert answers.hosts == hosts("h1:1,h2:1")


def test_a_failure_between_two_equal_answers_breaks_the_confirmation():
    answers = HostAnswers("s", hosts("h1:1"))
    assert changes(answers, "h2:1") == []
    assert answers.in_doubt
    answers.take_failure(no_answer("s", "gone"))
    assert not answers.in_doubt
    assert changes(answers, "h2:1") == ["s names hosts again"]
    assert changes(answers, "h2:1") == ["h2:1"]


COOLDOWN = (10.0, 100.0)


def test_a_host_stays_out_and_comes_back():
    stays = [stay_seconds(COOLDOWN, failures, 0.0) for failures in (1, 2, 3, 4, 5, 5000)]
    assert stays == [10, 20, 40, 80, 100, 100]
    assert [stay_seconds(COOLDOWN, *one) for one in ((1, 0.5), (2, 1.0), (5000, 1.0))] == [15, 30, 100]
    listed = HostBlacklist(COOLDOWN)
    listed.add_failure("h1", now=5.0, jitter=0.0)
    assert [listed.is_out("h1", now) for now in (5.0, 14.9, 15.0)] == [True, True, False]
    assert not listed.is_out("h2", 5.0)
    listed.add_failure("h1", now=14.0, jitter=0.9)
    assert listed.next_return(14.0) == 15.0, "failures while it is out do not count again"
    assert listed.next_return(15.0) is None
    listed.add_failure("h1", now=16.0, jitter=0.0)
    assert listed.next_return(16.0) == 36.0
    forever = HostBlacklist()
    forever.add_failure("h1", now=0.0, jitter=0.5)
    assert forever.is_out("h1", 1e9) and forever.next_return(0.0) is None


def test_the_hosts_that_may_be_used():
    hosts = tuple(Host(name=name, slots=1) for name in ("h1", "h2", "h3"))
    offers = AvailableHosts(fixed_hosts(hosts), hosts, cooldown=COOLDOWN)
    offers.exclude("h2")
    assert offers.news(1.0) == ([("h1", 1), ("h3", 1)], [])
    assert offers.news(2.0) == (None, [])
    assert offers.news(200.0) == ([("h1", 1), ("h2", 1), ("h3", 1)], [])
