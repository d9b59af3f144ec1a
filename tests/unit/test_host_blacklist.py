import pytest

from ringleader.launch.elastic.available_hosts import AvailableHosts, HostBlacklist, stay_seconds
from ringleader.launch.elastic.host_sources import fixed_hosts
from ringleader.plan.job import Host

COOLDOWN = (10.0, 100.0)


@pytest.mark.parametrize(
    ("failures", "jitter", "seconds"),
    [(1, 0.0, 10), (1, 0.5, 15), (2, 0.0, 20), (2, 1.0, 30), (3, 0.0, 40), (4, 0.0, 80), (5, 0.0, 100),
     (5000, 1.0, 100)],
)  # fmt: skip
def test_each_stay_is_twice_as_long_up_to_the_longest(failures: int, jitter: float, seconds: float) -> None:
    assert stay_seconds(COOLDOWN, failures, jitter) == seconds


def test_a_host_stays_out_and_comes_back() -> None:
    listed = HostBlacklist(COOLDOWN)
    listed.add_failure("h1", now=5.0, jitter=0.0)
    assert [listed.is_out("h1", now) for now in (5.0, 14.9, 15.0)] == [True, True, False]
    assert not listed.is_out("h2", 5.0)
    assert listed.next_return(5.0) == 15.0
    assert listed.next_return(15.0) is None
    listed.add_failure("h1", now=16.0, jitter=0.0)
    assert listed.next_return(16.0) == 36.0


def test_failures_while_it_is_out_do_not_count_again() -> None:
    listed = HostBlacklist(COOLDOWN)
    listed.add_failure("h1", now=0.0, jitter=0.0)
    listed.add_failure("h1", now=9.0, jitter=0.9)
    assert listed.next_return(9.0) == 10.0


def test_without_a_range_a_host_is_out_for_good() -> None:
    listed = HostBlacklist()
    listed.add_failure("h1", now=0.0, jitter=0.5)
    assert listed.is_out("h1", 1e9)
    assert listed.next_return(0.0) is None


def test_the_hosts_that_may_be_used() -> None:
    hosts = tuple(Host(name=name, slots=1) for name in ("h1", "h2", "h3"))
    offers = AvailableHosts(fixed_hosts(hosts), hosts, cooldown=COOLDOWN)
    offers.exclude("h2")
    assert offers.news(1.0) == ([("h1", 1), ("h3", 1)], [])
    assert offers.news(2.0) == (None, [])
    assert offers.news(200.0) == ([("h1", 1), ("h2", 1), ("h3", 1)], [])
