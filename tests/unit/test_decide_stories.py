"""What is decided of a job in the course of its life: the stories of ``decide_stories.txt``."""

from pathlib import Path

import pytest
from tests.stories import stories
from tests.unit.decide_story import play

STORIES = stories(Path(__file__).with_name("decide_stories.txt"))


@pytest.mark.parametrize("title", STORIES)
def test_a_story(title: str) -> None:
    play(STORIES[title])
