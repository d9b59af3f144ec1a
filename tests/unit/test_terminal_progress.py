"""A line of progress: overwritten on a terminal, now and then in a log."""

from __future__ import annotations

from ringleader.cli.terminal_progress import EVERY, ProgressLine


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
