"""``ringleader predict`` as a user calls it."""

from collections.abc import Callable

import pytest

from ringleader.cli.main import ringleader
from ringleader.errors import RequestError

Shown = Callable[[str], str]
"""Words of the command → what it prints."""


def call(*words: str) -> None:
    ringleader.main(args=["predict", *words], standalone_mode=False)


def refused(*words: str) -> str:
    with pytest.raises(RequestError) as error:
        call(*words)
    return str(error.value)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    def made(line: str) -> str:
        call(*line.split())
        return capsys.readouterr().out

    return made
