"""A host that would run other code than the job's ranks is told from one that runs the same."""

import pytest

from ringleader.launch.elastic.elastic_hosts import other_packages, other_script


@pytest.mark.parametrize(
    ("began_with", "there", "said"),
    [
        ("a" * 64, "a" * 64, ""),
        ("a" * 64, "", ""),
        ("", "b" * 64, ""),
        ("a" * 64, "b" * 64, "SHA-256 bbbbbbbbbbbb… there, aaaaaaaaaaaa… then"),
    ],
)
def test_scripts(began_with: str, there: str, said: str) -> None:
    found = other_script("train.py", began_with=began_with, there=there)
    assert (said in found and "the script train.py" in found) if said else not found


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"torch": "2.4.0", "numpy": "2.1"}, ""),
        ({"torch": "2.3.1", "numpy": "2.1"}, "torch is 2.3.1 there, 2.4.0 on h1"),
        (
            {"torch": "2.3.1", "numpy": "1.26"},
            "torch is 2.3.1 there, 2.4.0 on h1; numpy is 1.26 there, 2.1 on h1",
        ),
        ({"torch": ""}, ""),
        ({"extra": "1"}, ""),
        ({}, ""),
    ],
)
def test_packages(there: dict[str, str], said: str) -> None:
    assert other_packages(there, known={"torch": "2.4.0", "numpy": "2.1", "mine": ""}, of="h1") == said
