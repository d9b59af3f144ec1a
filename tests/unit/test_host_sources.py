"""Sources of hosts, with real programs and files."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.time_limits import patience

from ringleader.errors import RequestError
from ringleader.launch.elastic.available_hosts import AvailableHosts, first_hosts
from ringleader.launch.elastic.host_sources import (
    HostSource,
    HostSourceError,
    command_words,
    discovery_script,
    fixed_hosts,
    hostfile,
    output_of,
    slurm_nodes,
    source_of,
)
from ringleader.plan.batch_system import find_allocation, slurm_job_id
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.job import Host, Job


def named(hosts: tuple[Host, ...]) -> str:
    return " ".join(f"{host.name}:{host.slots}" for host in hosts)


def is_running(pid: int) -> bool:
    """Say whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    def make(body: str, name: str = "find.sh") -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


def wait_for(offers: AvailableHosts, count: int, seconds: float = 20.0) -> list[str]:
    """The first ``count`` warnings and hosts, as the launcher's loop hears them."""
    found: list[str] = []
    until = time.monotonic() + patience(seconds)
    while len(found) < count:
        ready, _, _ = select.select([offers], [], [], until - time.monotonic())
        assert ready, f"only {found}"
        hosts, warnings = offers.news(1.0)
        found += warnings if hosts is None else [*warnings, " ".join(name for name, _ in hosts)]
    return found


# --- programs ---------------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_script_and_its_arguments(script: Callable[[str], str]) -> None:
    path = script('echo "$1:$2"; echo "; touch $HOME/x" >&2')
    source = discovery_script(command_words(f"{path} 'h1' 3", "--host-discovery-script"))
    assert named(source.look()) == "h1:3"
    assert named(discovery_script((script("echo h1"),), default_slots=4).look()) == "h1:4"


@pytest.mark.process
def test_a_name_with_spaces_is_one_word(script: Callable[..., str]) -> None:
    path = script("echo h1:1", name="find hosts.sh")
    assert command_words(path, "-") == (path,)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "names no program"),
        ("'x", "unmatched quotes"),
        ("/no/such/script", "there is no program /no/such"),
    ],
)
def test_programs_that_cannot_be_run(words: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        command_words(words, "--host-discovery-script")


def test_a_script_that_may_not_be_run_says_how_to_change_that(tmp_path: Path) -> None:
    (tmp_path / "find.sh").write_text("echo h1")
    with pytest.raises(RequestError, match=r"may not be run\n.*chmod \+x"):
        command_words(str(tmp_path / "find.sh"), "--host-discovery-script")


@pytest.mark.process
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo one >&2; echo the server is away >&2; exit 3", r"find.sh: exit code 3: the server is away"),
        ("kill -SEGV $$", r"find.sh: ended by SIGSEGV"),
        ("echo h1:2; echo 'no hosts?'", r"find.sh:2: 'no' is not understood|find.sh:2: .*hosts\?"),
        ("yes h1 | head -c 2000000", r"printed more than 1 MiB"),
        ("echo h1:1; exit 1", r"exit code 1"),
    ],
)
def test_scripts_that_fail(script: Callable[[str], str], body: str, said: str) -> None:
    with pytest.raises(HostSourceError, match=said):
        discovery_script((script(body),)).look()


@pytest.mark.process
def test_a_script_without_a_first_line_is_one_for_sh(tmp_path: Path) -> None:
    path = tmp_path / "find"
    path.write_text('echo "$1:2"\n')
    path.chmod(0o755)
    assert named(discovery_script((str(path), "h1")).look()) == "h1:2"


@pytest.mark.process
def test_a_script_without_an_interpreter_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "find"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    with pytest.raises(HostSourceError, match=r"find: "):
        discovery_script((str(path),)).look()


@pytest.mark.process
def test_a_script_that_hangs_is_ended_with_its_children(script: Callable[[str], str], tmp_path: Path) -> None:
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
def test_what_a_script_prints(script: Callable[[str], str], body: str, printed: str) -> None:
    assert output_of((script(body),), seconds=30.0) == printed


@pytest.mark.process
def test_a_look_is_given_up_when_the_caller_stops(script: Callable[[str], str]) -> None:
    read, write = os.pipe()
    os.close(write)
    try:
        with pytest.raises(KeyboardInterrupt):
            discovery_script((script("sleep 600"),)).look(read)
    finally:
        os.close(read)


# --- hostfiles --------------------------------------------------------------------------------------------


def test_a_hostfile_is_read_again_when_it_changed(tmp_path: Path) -> None:
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
def test_hostfiles_that_name_no_hosts(tmp_path: Path, content: bytes | None, said: str) -> None:
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


# --- Slurm ------------------------------------------------------------------------------------------------

SHOWN = (
    "JobId=42 JobName=train UserId=a(1) JobState=RUNNING Requeue=1 Restarts=1 "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList={} BatchHost=n1 NumNodes=2 TRES=cpu=8,node=2\n"
)


@pytest.mark.parametrize(("nodes", "found"), [("n[1,3]", ("n1", "n3")), ("n1", ("n1",))])
def test_slurms_nodes(nodes: str, found: tuple[str, ...]) -> None:
    assert slurm_nodes(SHOWN.format(nodes), "s") == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SHOWN.format("(null)"), r"no nodes \(RUNNING\)"),
        ("", "no nodes"),
        (SHOWN.format("n[3-1]"), "runs backwards"),
    ],
)
def test_slurm_answers_without_nodes(text: str, said: str) -> None:
    with pytest.raises(HostSourceError, match=said):
        slurm_nodes(text, "scontrol show job 42")


@pytest.mark.process
def test_slurms_controller_is_asked(
    script: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_a_job_begins_on_slurms_nodes_where_its_controller_cannot_be_asked(
    script: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("echo no controller >&2; exit 1", name="scontrol")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    hosts = (Host(name="n1", slots=4), Host(name="n2", slots=2))
    source = source_of(Job(command=("x",), hosts=hosts), ElasticOptions(slurm_job="42"))
    warnings: list[str] = []
    assert first_hosts(source, None, warn=warnings.append) == hosts
    assert "no controller" in warnings[0] and "Slurm's variables" in warnings[0]
    failing = source_of(Job(command=("x",)), ElasticOptions(hostfile=str(tmp_path / "none")))
    with pytest.raises(HostSourceError, match="cannot be read"):
        first_hosts(failing, None, warn=pytest.fail)


# --- watching ---------------------------------------------------------------------------------------------


def prepared(*answers: tuple[Host, ...] | Exception) -> HostSource:
    """A source that gives prepared answers, the last one for ever."""
    left = list(answers)

    def probe(stop: int | None) -> tuple[Host, ...]:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return HostSource(name="prepared", probe=probe, period=0.01)


H1, H2 = (Host(name="h1", slots=1),), (Host(name="h2", slots=1),)


def test_news_reach_the_loop_in_order() -> None:
    source = prepared(H1, HostSourceError("away"), ValueError("odd"), H1, H2, H2, H2)
    offers = AvailableHosts(source, H1)
    first, second, third, fourth = wait_for(offers, 4)
    offers.close()
    offers.close()
    assert "away" in first and "ValueError: odd" in second
    assert third == "prepared names hosts again" and fourth == "h2"
    assert not [thread for thread in threading.enumerate() if thread.name == "hosts of prepared"]


def test_a_refresh_does_not_wait_for_the_period() -> None:
    source = prepared(H2)
    offers = AvailableHosts(source, H1, period=3600.0)
    offers.refresh()
    assert wait_for(offers, 1) == ["h2"]
    offers.close()


def test_fixed_hosts_never_change() -> None:
    source = fixed_hosts(H1)
    offers = AvailableHosts(source, source.look(), period=0.001)
    assert offers.fileno() is None and not offers.refresh()
    assert offers.usable() == [("h1", 1)] and offers.news(1.0) == (None, [])
    offers.close()


@pytest.mark.process
def test_a_watch_that_is_closed_ends_the_running_script(script: Callable[[str], str], tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    path = script(f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 600")
    offers = AvailableHosts(discovery_script((path,)), H1, period=0.01)
    until = time.monotonic() + patience(20)
    while not pid.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    offers.close()
    assert not is_running(int(pid.read_text()))


@pytest.mark.process
def test_descriptors_do_not_grow(script: Callable[[str], str]) -> None:
    source = discovery_script((script("echo h1:1"),))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        offers = AvailableHosts(source, source.look())
        offers.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_host_with_more_slots_than_a_job_may_have_ranks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost slots=1000000\n")
    source = hostfile(str(tmp_path / "hosts"))
    with pytest.raises(
        HostSourceError, match="localhost has 1000000 slots; an elastic job has at most 16384"
    ):
        first_hosts(source, None, warn=lambda text: None)
