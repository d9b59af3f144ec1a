"""A line of progress: overwritten on a terminal, now and then in a log."""

import threading

import pytest

from ringleader.cli.terminal_progress import EVERY, ProgressLine, bar, shown_while


class Screen:
    def __init__(self, *, is_tty: bool, width: int = 80) -> None:
        self.text, self.now = "", 100.0
        self.line = ProgressLine(
            is_tty=is_tty, write=self._write, clock=lambda: self.now, width=width, prefix="job: "
        )

    def _write(self, text: str) -> None:
        self.text += text


def test_on_a_terminal_each_text_overwrites_the_last() -> None:
    screen = Screen(is_tty=True, width=12)
    screen.line.show("1 of 9 hosts")
    screen.line.show("2")
    screen.line.keep("stays")
    screen.line.show("")
    assert screen.text == "job: 1 of 9\r\x1b[Kjob: 2\r\x1b[Kjob: stays\n"


def test_in_a_log_a_new_text_is_shown_now_and_then() -> None:
    screen = Screen(is_tty=False)
    screen.line.show("1 of 9 hosts")
    screen.now += EVERY
    screen.line.show("2 of 9 hosts")
    screen.line.show("3 of 9 hosts")
    screen.now += EVERY - 1
    screen.line.show("4 of 9 hosts")
    screen.now += 1
    screen.line.show("5 of 9 hosts")
    screen.now += EVERY
    screen.line.show("5 of 9 hosts")
    screen.line.show("")
    screen.line.clear()
    assert screen.text == "job: 2 of 9 hosts\njob: 5 of 9 hosts\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0 of 4 hosts", "[                    ] "),
        ("p2p: round 3 of 4", "[===============     ] "),
        ("4 of 4 ranks have reported", "[====================] "),
        ("5 of 4", ""),
        ("0 of 0", ""),
        ("waiting for sshd", ""),
    ],
)
def test_what_counts_has_a_bar(text: str, shown: str) -> None:
    assert bar(text) == shown
    for width in (80, 59):
        screen = Screen(is_tty=True, width=width)
        screen.line.show(text)
        assert screen.text == f"job: {shown if width == 80 else ''}{text}"


def test_long_work_is_shown_on_a_terminal_and_its_line_removed() -> None:
    written, shown = [], threading.Event()

    def write(text: str) -> None:
        written.append(text)
        shown.set()

    with shown_while("drawing the page", ProgressLine(is_tty=True, write=write, width=80), after=0.0):
        assert shown.wait(60)
    assert written[0].startswith("ringleader: drawing the page (") and written[-1] == "\r\x1b[K"


def test_short_work_and_a_log_show_nothing() -> None:
    for is_tty in (True, False):
        screen = Screen(is_tty=is_tty)
        with shown_while("drawing the page", screen.line, after=1000.0 if is_tty else 0.0):
            pass
        assert screen.text == ""


def test_an_error_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(OSError), shown_while("work", Screen(is_tty=True).line):
        raise OSError
    assert threading.active_count() == before
