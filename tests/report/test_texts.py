"""Table, Markdown, JSON and comparison against golden files (RINGLEADER_GOLDEN=write makes them anew)."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.conftest import samples

from ringleader.cli.output import dumped
from ringleader.report import compare, scaling
from ringleader.report.compare import shown_difference
from ringleader.report.text import comparison_text, runs_text
from ringleader.scaling import Run

GOLDEN = Path(__file__).parent.parent / "golden" / "scale"


def golden(name: str, text: str) -> None:
    file = GOLDEN / name
    if os.environ.get("RINGLEADER_GOLDEN") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def faster(run: Run) -> Run:
    """The same run where 4x2 is 10% faster, 2x2 about the same, and 1x2 was not measured."""
    points = list(run.points)
    last = points[3]
    quick = tuple(replace(sample, rate=sample.rate * 1.1) for sample in last.samples)
    points[3] = replace(last, samples=quick)
    middle = points[2]
    points[2] = replace(middle, samples=tuple(replace(s, rate=s.rate * 1.005) for s in middle.samples))
    del points[1]
    context = replace(run.context, mpi="mpich 4.0.2", threads=2)
    return replace(run, name="mnist-mpich", points=tuple(points), context=context)


def test_table(run: Run) -> None:
    golden("table.txt", runs_text([run]))


def test_markdown(run: Run) -> None:
    golden("report.md", runs_text([run], "markdown"))


def test_json(run: Run) -> None:
    golden("report.json", dumped(scaling.document(run)))


def test_comparison(run: Run) -> None:
    result = compare.compare(run, faster(run))
    golden("compare.txt", comparison_text(result))
    golden("compare.md", comparison_text(result, form="markdown"))
    golden("compare.json", comparison_text(result, form="json"))


def test_columns_that_nobody_measured_are_left_out(run: Run) -> None:
    points = tuple(
        replace(
            p,
            uncoupled=(),
            samples=tuple(replace(s, step_seconds=None, exchange_seconds=None) for s in p.samples),
        )
        for p in run.points
    )
    (table,) = scaling.summary(replace(run, points=points)).tables
    names, rows = table.names, table.rows
    assert names == ("hosts×slots", "ranks", "samples/s", "95% interval", "speed-up", "efficiency")
    assert len(rows[0]) == len(names)


def test_a_command_cannot_break_the_markdown_table(run: Run) -> None:
    context = replace(run.context, command=("python", "-c", "print(1|2)\nx*y_z<b>"))
    line = next(
        line
        for line in runs_text([replace(run, context=context)], "markdown").splitlines()
        if "Command" in line
    )
    assert line == "| Command | python -c 'print(1\\|2) x\\*y\\_z\\<b>' |"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((9.0, 10.0, 11.0), (14.0, 15.0, 16.0), "faster"),
        ((9.0, 10.0, 11.0), (5.0, 5.5, 6.0), "slower"),
        ((9.0, 10.0, 11.0), (10.9, 11.0, 11.2), "no difference shown"),
        ((10.0,), (20.0, 21.0), "cannot tell: one repetition"),
    ],
)
def test_verdict_only_where_the_interval_excludes_equality(
    run: Run, before: tuple[float, ...], after: tuple[float, ...], said: str
) -> None:
    old, new = (replace(run, points=(replace(run.points[0], samples=samples(*r)),)) for r in (before, after))
    (match,) = compare.compare(old, new).matches
    assert match.verdict == said


def test_a_run_is_not_different_from_itself(run: Run) -> None:
    result = compare.compare(run, run)
    assert result.differences == ()
    assert all(match.ratio == 1.0 and match.verdict == "no difference shown" for match in result.matches)
    assert "No difference" in result.headline
    assert "Nothing that is known of their contexts differs." in compare.notes(result)


def test_runs_without_a_common_size(run: Run) -> None:
    result = compare.compare(replace(run, points=run.points[:1]), replace(run, points=run.points[1:]))
    assert result.matches == ()
    assert "no size in common" in result.headline
    assert comparison_text(result)


@pytest.mark.parametrize(
    ("name", "texts", "shown"),
    [
        ("command", ("a b -n 2 x", "a b -n 4 x"), ("… -n 2 …", "… -n 4 …")),
        ("command", ("a b", "a b -n 4"), ("…", "… -n 4")),
        ("command", ("a b", "c"), ("a b", "c")),
        ("command", ("x a x", "x a a x"), ("… …", "… a …")),
        ("command", ("a b", ""), ("a b", "")),
        ("mpi", ("openmpi 5", "openmpi 4"), ("openmpi 5", "openmpi 4")),
    ],
)
def test_of_commands_only_what_differs_is_shown(
    name: str, texts: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    assert shown_difference(name, texts) == shown
