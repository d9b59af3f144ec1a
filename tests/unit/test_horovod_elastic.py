"""Hosts of elastic jobs by Horovod's paths and names."""

import pickle
import time
from pathlib import Path

import pytest

from ringleader.errors import RingleaderError
from ringleader.runner import launch, settings
from ringleader.runner.hosts import FixedHosts, HostDiscoveryScript, HostManager, HostState, HostUpdateResult

NONE, REMOVED, ADDED, MIXED = (
    HostUpdateResult.no_update,
    HostUpdateResult.removed,
    HostUpdateResult.added,
    HostUpdateResult.mixed,
)


@pytest.mark.parametrize(
    ("steps", "results", "order"),
    [
        ([{"a": 2}, {"a": 2, "b": 2}, {"b": 2}], [ADDED, ADDED, REMOVED], ["b"]),
        ([{"b": 2}, {"a": 1, "b": 1}, {"a": 1, "b": 1}], [ADDED, MIXED, NONE], ["b", "a"]),
        ([{"a": 1}, {"a": 2}, {"a": 1}, {}], [ADDED, ADDED, REMOVED, REMOVED], []),
    ],
)
def test_updates(steps: list[dict[str, int]], results: list[HostUpdateResult], order: list[str]) -> None:
    discovery = FixedHosts({})
    manager = HostManager(discovery)
    for step, result in zip(steps, results, strict=True):
        discovery.set(step)
        assert manager.update_available_hosts() == result
    assert manager.current_hosts.host_assignment_order == order
    assert manager.current_hosts.count_available_slots() == sum(steps[-1].values())


def test_a_host_that_failed_is_out_for_good() -> None:
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


def test_after_its_stay_a_host_comes_back_as_added(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("limits", [(0, 10), (1, 3601)])
def test_ranges_outside_of_the_limits(limits: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="Provided cooldown"):
        HostState(limits)


@pytest.mark.process
def test_a_discovery_script(tmp_path: Path) -> None:
    script = tmp_path / "find"
    script.write_text("#!/bin/sh\necho h1:2\necho\necho h2\n")
    script.chmod(0o755)
    assert HostDiscoveryScript(str(script), 3).find_available_hosts_and_slots() == {"h1": 2, "h2": 3}
    script.write_text("#!/bin/sh\nexit 4\n")
    with pytest.raises(RingleaderError, match="exit code 4"):
        HostDiscoveryScript(str(script), 3).find_available_hosts_and_slots()


def test_names_that_tests_patch() -> None:
    assert settings.DISCOVER_HOSTS_FREQUENCY_SECS == 1.0
    assert settings.ELASTIC_TIMEOUT_SECS == 600
    assert launch._get_min_start_hosts(None) == 1
    assert settings.RESET_LIMIT_EXCEEDED_MESSAGE.format(2).endswith("exceeded limit: 2")


def test_settings_travel_without_their_discovery() -> None:
    discovery = FixedHosts({"a": 1})
    given = settings.ElasticSettings(discovery=discovery, min_num_proc=1, max_num_proc=4, num_proc=2)
    found = pickle.loads(pickle.dumps(given))
    assert (found.discovery, found.min_num_proc, found.num_proc, found.elastic) == (None, 1, 2, True)
