"""Table, Markdown, JSON and comparison against golden files (RINGLEADER_GOLDEN=write makes them anew)."""

import os
from dataclasses import replace
from pathlib import Path

from tests.report.conftest import samples

from ringleader.cli.output import dumped
from ringleader.report import compare, scaling
from ringleader.report.compare import shown_difference
from ringleader.report.text import comparison_text, runs_text
from ringleader.scaling import Point, Run

GOLDEN = Path(__file__).parent.parent / "golden" / "scale"


def golden(name: str, text: str) -> None:
    file = GOLDEN / name
    if os.environ.get("RINGLEADER_GOLDEN") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def faster(run: Run) -> Run:
    """The same run where 4x2 is 10% faster, 2x2 about the same, and 1x2 was not measured."""

    def times(place: int, factor: float) -> Point:
        point = run.points[place]
        return replace(point, samples=tuple(replace(s, rate=s.rate * factor) for s in point.samples))

    context = replace(run.context, mpi="mpich 4.0.2", threads=2)
    points = (run.points[0], times(2, 1.005), times(3, 1.1))
    return replace(run, name="mnist-mpich", points=points, context=context)


def test_a_run(run: Run) -> None:
    golden("table.txt", runs_text([run]))
    golden("report.md", runs_text([run], "markdown"))
    golden("report.json", dumped(scaling.document(run)))


def test_comparison(run: Run) -> None:
    result = compare.compare(run, faster(run))
    golden("compare.txt", comparison_text(result))
    golden("compare.md", comparison_text(result, form="markdown"))
    golden("compare.json", comparison_text(result, form="json"))


def test_columns_that_nobody_measured_are_left_out(run: Run) -> None:
    points = tuple(replace(one, uncoupled=(), samples=samples(100.0)) for one in run.points)
    (table,) = scaling.summary(replace(run, points=points)).tables
    assert table.names == ("hosts×slots", "ranks", "samples/s", "95% interval", "speed-up", "efficiency")
    assert len(table.rows[0]) == len(table.names)


def test_a_command_cannot_break_the_markdown_table(run: Run) -> None:
    context = replace(run.context, command=("python", "-c", "print(1|2)\nx*y_z<b>"))
    text = runs_text([replace(run, context=context)], "markdown")
    assert "\n| Command | python -c 'print(1\\|2) x\\*y\\_z\\<b>' |\n" in text


def test_verdict_only_where_the_interval_excludes_equality(run: Run) -> None:
    before = (9.0, 10.0, 11.0)
    for one, other, said in (
        (before, (14.0, 15.0, 16.0), "faster"),
        (before, (5.0, 5.5, 6.0), "slower"),
        (before, (10.9, 11.0, 11.2), "no difference shown"),
        ((10.0,), (20.0, 21.0), "cannot tell: one repetition"),
    ):
        old, new = (replace(run, points=(replace(run.points[0], samples=samples(*r)),)) for r in (one, other))
        (match,) = compare.compare(old, new).matches
        assert match.verdict == said


def test_a_run_is_not_different_from_itself(run: Run) -> None:
    result = compare.compare(run, run)
    assert result.differences == ()
    assert all(match.ratio == 1.0 and match.verdict == "no difference shown" for match in result.matches)
    assert "No difference" in result.headline
    assert "Nothing that is known of their contexts differs." in compare.notes(result)
    other = compare.compare(replace(run, points=run.points[:1]), replace(run, points=run.points[1:]))
    assert other.matches == () and "no size in common" in other.headline and comparison_text(other)


def test_of_commands_only_what_differs_is_shown() -> None:
    for texts, shown in (
        (("a b -n 2 x", "a b -n 4 x"), ("… -n 2 …", "… -n 4 …")),
        (("a b", "a b -n 4"), ("…", "… -n 4")),
        (("a b", "c"), ("a b", "c")),
        (("x a x", "x a a x"), ("… …", "… a …")),
        (("a b", ""), ("a b", "")),
    ):
        assert shown_difference("command", texts) == shown
    assert shown_difference("mpi", ("openmpi 5", "openmpi 4")) == ("openmpi 5", "openmpi 4")
