"""Small parts of Horovod's launcher that scripts import by its paths."""

import io
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.time_limits import patience

from ringleader.runner import hosts, settings, shell_commands, tiny_shell_exec
from ringleader.runner.hosts import (
    SlotInfo,
    get_host_assignments,
    parse_host_files,
    parse_hosts,
    parse_hosts_and_slots,
)
from ringleader.runner.launch import is_intel_mpi, is_mpich, is_open_mpi, mpi_available
from ringleader.runner.shell_commands import execute_function_multithreaded, on_event


def test_hosts_of_text_and_files(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("172.31.32.7 slots=8\n# a comment\n\nb slots=2\n")
    assert parse_host_files(str(path)) == "172.31.32.7:8,b:2"
    assert parse_hosts_and_slots("a:2,b-1.c:3") == (["a", "b-1.c"], {"a": 2, "b-1.c": 3})
    for wrong in ("a:x", "a:2,", "a:0"):
        with pytest.raises(ValueError, match=r"a:|empty"):
            parse_hosts_and_slots(wrong)


@pytest.mark.parametrize(
    ("given", "least", "most", "places"),
    [
        ("a:2,b:2", 4, None, ["a 0 0 0 4 2 2", "a 1 1 0 4 2 2", "b 2 0 1 4 2 2", "b 3 1 1 4 2 2"]),
        ("a:2,b:2", 1, 2, ["a 0 0 0 2 2 1", "a 1 1 0 2 2 1"]),
        ("a:1,b:2", 3, None, ["a 0 0 0 3 1 2", "b 1 0 1 3 2 2", "b 2 1 0 3 2 1"]),
    ],
)
def test_places_of_ranks(given: str, least: int, most: int | None, places: list[str]) -> None:
    found = get_host_assignments(parse_hosts(given), least, most)
    expected = [SlotInfo(place.split()[0], *map(int, place.split()[1:])) for place in places]
    assert found == expected
    assert found[-1].to_response_string().split(",")[:2] == [str(len(found) - 1), str(len(found))]


def test_too_few_slots() -> None:
    with pytest.raises(ValueError, match="5 ranks asked for, 4 slots"):
        get_host_assignments(parse_hosts("a:2,b:2"), 5)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, (0, 1)),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4", "PMI_RANK": "9", "PMI_SIZE": "9"}, (1, 4)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, (2, 3)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2)),
    ],
)
def test_rank_and_size_of_the_environment(
    environ: dict[str, str], found: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOROVOD", "OMPI_COMM_WORLD", "PMI"):
        monkeypatch.delenv(f"{name}_RANK", raising=False)
        monkeypatch.delenv(f"{name}_SIZE", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert settings.get_env_rank_and_size() == found
    monkeypatch.delenv("PMI_SIZE", raising=False)
    monkeypatch.setenv("PMI_RANK", "1")
    if found in ((0, 1), (0, 2)):
        with pytest.raises(RuntimeError, match="PMI_RANK"):
            settings.get_env_rank_and_size()


def test_what_goes_to_ranks() -> None:
    kept = ("PATH", "LD_LIBRARY_PATH", "HOROVOD_TIMELINE")
    assert all(map(settings.is_exportable, kept))
    for name in ("BASH_FUNC_module%%", "OLDPWD", "CUDA_VISIBLE_DEVICES", settings.HOROVOD_SECRET_KEY):
        assert not settings.is_exportable(name)


def test_small_parts() -> None:
    assert settings.loads_base64(settings.dumps_base64({"a": [1, 2]})) == {"a": [1, 2]}
    assert isinstance(settings.dumps_base64(1, to_ascii=False), bytes)
    assert len(settings.make_secret_key()) == settings.DIGEST_LENGTH
    assert hosts.host_hash() == hosts.host_hash("") != hosts.host_hash("salt")
    late = settings.Timeout(0.0, "Timed out waiting for {activity}. Look there.")
    time.sleep(0.01)
    assert late.timed_out() and late.remaining() == 0
    with pytest.raises(settings.TimeoutException, match=r"waiting for hosts. Look there. Timeout after 0.0"):
        late.check_time_out_for("hosts")
    settings.Timeout(60, "").check_time_out_for("hosts")


def test_functions_in_threads() -> None:
    assert execute_function_multithreaded(divmod, [[7, 2], [9, 3]]) == {0: (3, 1), 1: (3, 0)}
    assert execute_function_multithreaded(divmod, [[7, 2]], block_until_all_done=False) is None
    assert execute_function_multithreaded(divmod, []) == {}
    with pytest.raises(RuntimeError, match="divmod has failed"):
        execute_function_multithreaded(divmod, [[7, 0]])


def test_a_function_on_an_event() -> None:
    event, stop, called = threading.Event(), threading.Event(), []
    waiting = on_event(event, called.append, (1,), stop=stop, check_stop_interval_s=0.01)
    event.set()
    waiting.join(5)
    assert called == [1]
    stopped = on_event(threading.Event(), called.append, (2,), stop=stop, check_stop_interval_s=0.01)
    stop.set()
    stopped.join(5)
    assert called == [1] and not stopped.is_alive()
    with pytest.raises(ValueError, match="must not be None"):
        on_event(None, print)
    with pytest.raises(ValueError, match="must be a tuple"):
        on_event(event, print, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Stop event"):
        on_event(event, print, daemon=False)


@pytest.mark.process
def test_which_mpi_there_is() -> None:
    assert mpi_available() and is_open_mpi()
    assert not is_mpich() and not is_intel_mpi()


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "code", "out", "err"),
    [
        ("echo a; echo b >&2", 0, "a\n", "b\n"),
        ("printf 'a\\nb'", 0, "a\nb", ""),
        ("exit 3", 3, "", ""),
        ("kill -TERM $$", 143, "", ""),
        ("nosuchprogram 2>&-", 127, "", ""),
        ("printf 'ü\\n'", 0, "ü\n", ""),
    ],
)
def test_a_shells_command(command: str, code: int, out: str, err: str) -> None:
    stdout, stderr = io.StringIO(), io.StringIO()
    assert shell_commands.execute(command, stdout=stdout, stderr=stderr) == code
    assert (stdout.getvalue(), stderr.getvalue()) == (out, err)
    if not err:
        assert tiny_shell_exec.execute(command) == (out, code)


@pytest.mark.process
def test_each_line_of_a_command_begins_with_its_index() -> None:
    stdout = io.StringIO()
    shell_commands.execute("printf '10%%\\r20%%\\ndone'", stdout=stdout, index=7)
    assert stdout.getvalue() == "[7]<stdout>:10%\r[7]<stdout>:20%\n[7]<stdout>:done"
    shell_commands.execute("echo x", {"A": "1"}, stdout, index=1, prefix_output_with_timestamp=True)
    assert stdout.getvalue().endswith(f"{time.localtime().tm_year}[1]<stdout>:x\n")


@pytest.mark.process
def test_an_event_ends_a_command() -> None:
    event = threading.Event()
    threading.Timer(0.3, event.set).start()
    began = time.monotonic()
    assert shell_commands.execute("sleep 60 & sleep 60; wait", events=[event]) == 143
    assert time.monotonic() - began < 10


@pytest.mark.process
def test_a_command_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = (
        "from ringleader.runner.shell_commands import execute\n"
        f"execute('echo $$ > {pid}.part; mv {pid}.part {pid}; sleep 60; true')\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code])
    until = time.monotonic() + patience(20)
    while not pid.exists() and time.monotonic() < until:
        time.sleep(0.02)
    shell = int(pid.read_text())
    starter.kill()
    starter.wait()
    while Path(f"/proc/{shell}").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not Path(f"/proc/{shell}").exists()
