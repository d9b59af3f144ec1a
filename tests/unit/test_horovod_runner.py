"""Small parts of Horovod's launcher that scripts import by its paths."""

import io
import pickle
import threading
import time

import pytest

from ringleader.runner import hosts, launch, settings, shell_commands, tiny_shell_exec
from ringleader.runner.hosts import (
    FixedHosts,
    HostManager,
    HostState,
    HostUpdateResult,
    SlotInfo,
    get_host_assignments,
    parse_host_files,
    parse_hosts,
    parse_hosts_and_slots,
)
from ringleader.runner.launch import is_intel_mpi, is_mpich, is_open_mpi, mpi_available
from ringleader.runner.shell_commands import execute_function_multithreaded, on_event


def test_hosts_of_text_and_files(tmp_path):
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
    ],
)
def test_places_of_ranks(given, least, most, places):
    found = get_host_assignments(parse_hosts(given), least, most)
    expected = [SlotInfo(place.split()[0], *map(int, place.split()[1:])) for place in places]
    assert found == expected
    assert found[-1].to_response_string().split(",")[:2] == [str(len(found) - 1), str(len(found))]


def test_what_goes_to_ranks():
    kept = ("PATH", "LD_LIBRARY_PATH", "HOROVOD_TIMELINE")
    assert all(map(settings.is_exportable, kept))
    for name in ("BASH_FUNC_module%%", "OLDPWD", "CUDA_VISIBLE_DEVICES", settings.HOROVOD_SECRET_KEY):
        assert not settings.is_exportable(name)


@pytest.mark.process
def test_a_shells_command():
    for command, code, out, err in (
        ("echo a; echo b >&2", 0, "a\n", "b\n"),
        ("printf 'a\\nb'", 0, "a\nb", ""),
        ("exit 3", 3, "", ""),
        ("kill -TERM $$", 143, "", ""),
        ("nosuchprogram 2>&-", 127, "", ""),
    ):
        stdout, stderr = io.StringIO(), io.StringIO()
        assert shell_commands.execute(command, stdout=stdout, stderr=stderr) == code
        assert (stdout.getvalue(), stderr.getvalue()) == (out, err)
        if not err:
            assert tiny_shell_exec.execute(command) == (out, code)


def test_small_parts():
    assert settings.loads_base64(settings.dumps_base64({"a": [1, 2]})) == {"a": [1, 2]}
    assert len(settings.make_secret_key()) == settings.DIGEST_LENGTH
    assert hosts.host_hash() == hosts.host_hash("") != hosts.host_hash("salt")
    late = settings.Timeout(0.0, "Timed out waiting for {activity}. Look there.")
    time.sleep(0.01)
    assert late.timed_out() and late.remaining() == 0
    with pytest.raises(settings.TimeoutException, match=r"waiting for hosts. Look there. Timeout after 0.0"):
        late.check_time_out_for("hosts")
    settings.Timeout(60, "").check_time_out_for("hosts")
    with pytest.raises(ValueError, match="5 ranks asked for, 4 slots"):
        get_host_assignments(parse_hosts("a:2,b:2"), 5)
    assert execute_function_multithreaded(divmod, [[7, 2], [9, 3]]) == {0: (3, 1), 1: (3, 0)}
    assert execute_function_multithreaded(divmod, [[7, 2]], block_until_all_done=False) is None
    with pytest.raises(RuntimeError, match="divmod has failed"):
        execute_function_multithreaded(divmod, [[7, 0]])


def test_a_function_on_an_event():
    event, stop, called = threading.Event(), threading.Event(), []
    waiting = on_event(event, called.append, (1,), stop=stop, check_stop_interval_s=0.01)
    event.set()
    waiting.join(5)
    stopped = on_event(threading.Event(), called.append, (2,), stop=stop, check_stop_interval_s=0.01)
    stop.set()
    stopped.join(5)
    assert called == [1] and not stopped.is_alive()
    for words, said in (((None, print), "None"), ((event, print, 1), "a tuple")):
        with pytest.raises(ValueError, match=f"must (not )?be {said}"):
            on_event(*words)
    with pytest.raises(ValueError, match="Stop event"):
        on_event(event, print, daemon=False)


@pytest.mark.process
def test_each_line_of_a_command_begins_with_its_index_and_an_event_ends_it():
    assert mpi_available() and is_open_mpi() and not is_mpich() and not is_intel_mpi()
    stdout = io.StringIO()
    shell_commands.execute("printf '10%%\\r20%%\\ndone'", stdout=stdout, index=7)
    assert stdout.getvalue() == "[7]<stdout>:10%\r[7]<stdout>:20%\n[7]<stdout>:done"
    shell_commands.execute("echo x", {"A": "1"}, stdout, index=1, prefix_output_with_timestamp=True)
    assert stdout.getvalue().endswith(f"{time.localtime().tm_year}[1]<stdout>:x\n")
    event = threading.Event()
    threading.Timer(0.3, event.set).start()
    assert shell_commands.execute("sleep 60 & sleep 60; wait", events=[event]) == 143


NONE, REMOVED, ADDED, MIXED = (
    HostUpdateResult.no_update,
    HostUpdateResult.removed,
    HostUpdateResult.added,
    HostUpdateResult.mixed,
)


def test_updates():
    for steps, results, order in (
        ([{"a": 2}, {"a": 2, "b": 2}, {"b": 2}], [ADDED, ADDED, REMOVED], ["b"]),
        ([{"b": 2}, {"a": 1, "b": 1}, {"a": 1, "b": 1}], [ADDED, MIXED, NONE], ["b", "a"]),
        ([{"a": 1}, {"a": 2}, {"a": 1}, {}], [ADDED, ADDED, REMOVED, REMOVED], []),
    ):
        discovery = FixedHosts({})
        manager = HostManager(discovery)
        for step, result in zip(steps, results, strict=True):
            discovery.set(step)
            assert manager.update_available_hosts() == result
        assert manager.current_hosts.host_assignment_order == order
        assert manager.current_hosts.count_available_slots() == sum(steps[-1].values())


def test_a_host_that_failed_is_out_for_good():
    manager = HostManager(FixedHosts({"a": 2, "b": 2}))
    manager.update_available_hosts()
    before, event = manager.current_hosts, manager.get_host_event("a")
    manager.blacklist("a")
    assert event.is_set() and manager.is_blacklisted("a")
    assert before.available_hosts == {"a", "b"}
    assert manager.current_hosts.available_hosts == {"b"}
    assert manager.current_hosts.host_slots == {"a": 2, "b": 2}
    assert manager.update_available_hosts() == NONE
    assert not manager.get_host_event("a").is_set()


@pytest.mark.parametrize("limits", [(0, 10), (1, 3601)])
def test_ranges_outside_of_the_limits(limits):
    with pytest.raises(ValueError, match="Provided cooldown"):
        HostState(limits)


def test_settings_travel_without_their_discovery():
    discovery = FixedHosts({"a": 1})
    given = settings.ElasticSettings(discovery=discovery, min_num_proc=1, max_num_proc=4, num_proc=2)
    found = pickle.loads(pickle.dumps(given))
    assert (found.discovery, found.min_num_proc, found.num_proc, found.elastic) == (None, 1, 2, True)


def test_rank_and_size_of_the_environment(monkeypatch):
    for name in ("HOROVOD", "OMPI_COMM_WORLD", "PMI"):
        monkeypatch.delenv(f"{name}_RANK", raising=False)
        monkeypatch.delenv(f"{name}_SIZE", raising=False)
    assert settings.get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("PMI_RANK", "1")
    with pytest.raises(RuntimeError, match="PMI_RANK"):
        settings.get_env_rank_and_size()
    for kind, size in (("PMI", 2), ("OMPI_COMM_WORLD", 3), ("HOROVOD", 4)):
        monkeypatch.setenv(f"{kind}_RANK", "1")
        monkeypatch.setenv(f"{kind}_SIZE", str(size))
        assert settings.get_env_rank_and_size() == (1, size)


def test_after_its_stay_a_host_comes_back_as_added(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    manager = HostManager(FixedHosts({"a": 1, "b": 1}), cooldown_range=(10, 100))
    manager.update_available_hosts()
    manager.blacklist("b")
    assert manager.update_available_hosts() == NONE
    now[0] += 20.0
    assert manager.update_available_hosts() == ADDED
    assert manager.current_hosts.host_assignment_order == ["a", "b"]
    assert manager.update_available_hosts() == NONE
    manager.blacklist("b")
    now[0] += 19.0  # the second stay is twice as long
    assert manager.update_available_hosts() == NONE


def test_names_that_tests_patch():
    assert settings.DISCOVER_HOSTS_FREQUENCY_SECS == 1.0
    assert settings.ELASTIC_TIMEOUT_SECS == 600
    assert launch._get_min_start_hosts(None) == 1
    assert settings.RESET_LIMIT_EXCEEDED_MESSAGE.format(2).endswith("exceeded limit: 2")


def test_functions_in_threads():
    assert execute_function_multithreaded(divmod, [[7, 2], [9, 3]]) == {0: (3, 1), 1: (3, 0)}
    assert execute_function_multithreaded(divmod, [[7, 2]], block_until_all_done=False) is None
    assert execute_function_multithreaded(divmod, []) == {}
    with pytest.raises(RuntimeError, match="divmod has failed"):
        execute_function_multithreaded(divmod, [[7, 0]])
