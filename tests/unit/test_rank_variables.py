import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.cli.options.rank_options import parse_assignments, parse_env_file

CALLER = {"HERE": "from the caller", "EMPTY": ""}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("  A=b c  ", "b c"),
        ("export A=b", "b"),
        ("A=", ""),
        ("A=b # comment", "b"),
        ("A=b#no comment", "b#no comment"),
        ("A=# comment", ""),
        ("A='b # c'", "b # c"),
        ("A='b\\n'", "b\\n"),
        ('A="b\\nc\\t\\"d\\" \\\\ \\$x \\q"', 'b\nc\t"d" \\ $x \\q'),
        ('A="b" # comment', "b"),
        ("A=$HOME", "$HOME"),
        ("A=b=c", "b=c"),
        ("A='it''s", None),
        ("A=b\r", "b"),
        ("A= b", "b"),
    ],
)
def test_values(line: str, value: str | None) -> None:
    parsed = parse_env_file(line, {}, "f")
    if value is None:
        assert len(parsed.faults) == 1
    else:
        assert (parsed.values, parsed.faults) == ((("A", value),), ())


def test_a_whole_file() -> None:
    text = "\ufeff# settings\n\nA=1\nHERE\nEMPTY  # passed on\nexport HERE\nA=2\n"
    parsed = parse_env_file(text, CALLER, "f")
    assert parsed.faults == ()
    assert parsed.values == (
        ("A", "1"),
        ("HERE", "from the caller"),
        ("EMPTY", ""),
        ("HERE", "from the caller"),
        ("A", "2"),
    )


def test_every_bad_line_is_named() -> None:
    text = "A=1\n1A=2\nMISSING\nB='open\nC=\"x\" y\nRANK=3\nD E=1\nA=\0\nF='x'\n"
    parsed = parse_env_file(text, CALLER, "my env")
    assert [fault.where for fault in parsed.faults] == [f"my env:{line}" for line in range(2, 9)]
    assert parsed.values == (("A", "1"), ("F", "x"))


def test_words_of_the_command_line_are_taken_as_they_are() -> None:
    words = ("A=b # c", "B='x'", "HERE", "C=", "D=a=b")
    parsed = parse_assignments(words, CALLER)
    assert parsed.faults == ()
    assert parsed.values == (
        ("A", "b # c"),
        ("B", "'x'"),
        ("HERE", "from the caller"),
        ("C", ""),
        ("D", "a=b"),
    )


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("NOT_SET", "not set here"),
        ("=x", "not a name"),
        ("A-B=x", "not a name"),
        ("", "not a name"),
        ("WORLD_SIZE=4", "rank's place"),
        ("RINGLEADER_TOKEN=x", "rank's place"),
    ],
)
def test_words_that_set_nothing(word: str, what: str) -> None:
    parsed = parse_assignments((word,), CALLER)
    assert what in parsed.faults[0].what
    assert parsed.faults[0].where.startswith("-x")


@given(st.text(alphabet="A=1'\"\\# \n\texport$\r"))
def test_any_text_gives_values_or_faults(text: str) -> None:
    parsed = parse_env_file(text, {}, "f")
    assert all(name and "\n" not in name for name, _ in parsed.values)
    assert all(fault.where.startswith("f:") for fault in parsed.faults)


@given(st.text(st.characters(exclude_characters="\0\n", exclude_categories=("Cs",))))
def test_a_quoted_value_comes_back(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_env_file(f'A="{escaped}"', {}, "f").values == (("A", value),)
