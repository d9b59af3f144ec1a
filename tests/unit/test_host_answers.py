import pytest

from ringleader.launch.elastic.available_hosts import HostAnswers
from ringleader.launch.elastic.host_sources import HostSourceError, hosts_in, no_answer, with_default_slots
from ringleader.plan.host_list import parse_host_list
from ringleader.plan.job import Host


def hosts(text: str) -> tuple[Host, ...]:
    return parse_host_list(text).hosts if text else ()


def changes(answers: HostAnswers, *texts: str) -> list[str]:
    """What the answers bring: each time the hosts that count then, as words."""
    return [
        news if isinstance(news, str) else words(news) for text in texts for news in answers.take(hosts(text))
    ]


def words(named: tuple[Host, ...]) -> str:
    return ",".join(f"{host.name}:{host.slots}" for host in named)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ""),
        ("\n\n", ""),
        ("h1\n", "h1"),
        ("h1:2\nh2:3\n", "h1:2 h2:3"),
        ("h1 slots=2\n# none\nh2:1", "h1:2 h2:1"),
        ("  h1:2  \r\nh2:1\r\n", "h1:2 h2:1"),
        ("h1:2\nh1:1\n", "h1:3"),
        ("[fe80::1]:2\nuser@h2:1", "fe80::1:2 user@h2:1"),
    ],
)
def test_what_a_script_prints(text: str, found: str) -> None:
    named = [host.name if host.slots is None else f"{host.name}:{host.slots}" for host in hosts_in(text, "s")]
    assert " ".join(named) == found


def test_every_line_that_names_no_host_is_told_with_its_number() -> None:
    with pytest.raises(HostSourceError) as raised:
        hosts_in("h1:2\nError: no such job\nh2:x\n\0\n", "find.sh")
    assert [fault.where for fault in raised.value.faults] == ["find.sh:2", "find.sh:3", "find.sh:4"]
    assert "'x' is not a number of slots" in str(raised.value)


def test_slots_that_were_not_given() -> None:
    assert with_default_slots(hosts_in("h1\nh2:3", "s"), 4) == list(hosts("h1:4,h2:3"))
    assert with_default_slots(hosts_in("h1", "s"), None)[0].slots is None


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        ("h1:1", ["h1:1", "h1:1"], []),
        ("h1:1", ["h1:1,h2:1"], []),
        ("h1:1", ["h1:1,h2:1", "h1:1,h2:1"], ["h1:1,h2:1"]),
        ("h1:1,h2:1", ["h1:1", "h1:1"], ["h1:1"]),
        ("h1:1,h2:1", ["h1:1,h3:1", "h1:1,h3:1"], ["h1:1,h3:1"]),
        ("h1:1", ["h1:2", "h1:2"], ["h1:2"]),
        ("h1:2", ["h1:1", "h1:1"], ["h1:1"]),
        ("h1:1,h2:1", ["", ""], [""]),
        ("", ["h1:1", "h1:1"], ["h1:1"]),
        # One that flaps never says the same twice.
        ("h1:1", ["h1:1,h2:1", "h1:1", "h1:1,h2:1", "h1:1", "h1:1,h2:1"], []),
        ("h1:1", ["h2:1", "h3:1", "h3:1", "h3:1"], ["h3:1"]),
        # The order of the lines is no change.
        ("h1:1,h2:1", ["h2:1,h1:1", "h2:1,h1:1"], []),
    ],
)
def test_a_change_counts_once_it_was_said_twice(first: str, then: list[str], told: list[str]) -> None:
    assert changes(HostAnswers("s", hosts(first)), *then) == told


def test_hosts_that_were_there_stay_first_and_in_order() -> None:
    answers = HostAnswers("s", hosts("h1:1,h2:1,h3:1"))
    changes(answers, *["h0:1,h3:1,h1:2"] * 2)
    assert [f"{host.name}:{host.slots}" for host in answers.hosts] == ["h1:2", "h3:1", "h0:1"]


def test_a_failure_is_told_once_and_its_end_too() -> None:
    answers = HostAnswers("find.sh", hosts("h1:1,h2:1"))
    (warning,) = answers.take_failure(no_answer("find.sh", "exit code 3"))
    assert warning == "find.sh: exit code 3\n    → what it said last still counts: h1, h2"
    assert answers.take_failure(no_answer("find.sh", "exit code 3")) == []
    assert len(answers.take_failure(no_answer("find.sh", "exit code 4"))) == 1
    assert answers.take(hosts("h1:1,h2:1")) == ["find.sh names hosts again"]
    assert answers.hosts == hosts("h1:1,h2:1")


def test_a_failure_between_two_equal_answers_breaks_the_confirmation() -> None:
    answers = HostAnswers("s", hosts("h1:1"))
    assert changes(answers, "h2:1") == []
    assert answers.in_doubt
    answers.take_failure(no_answer("s", "gone"))
    assert not answers.in_doubt
    assert changes(answers, "h2:1") == ["s names hosts again"]
    assert changes(answers, "h2:1") == ["h2:1"]
