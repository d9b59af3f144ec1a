"""The table that ``make bench`` ends with: every required row is in it, read from what the scripts print."""

import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(name="rows")
def _rows(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import rows

    yield rows
    del sys.modules["rows"]


def test_lines_are_read_as_printed_and_what_nobody_printed_is_missing(rows: Any) -> None:
    printed = [
        "4 KiB: 12 µs",
        rows.required("1 MiB, ordinary", 1.3),
        rows.line("more", 0.0512, 0.05, at_most=True),
    ]
    first, second = rows.collected({"a script": printed}, whole=False)
    assert first.cells() == ("1 MiB, ordinary", "Open MPI over ours", "1.300", "≥ 1.25", "1.5", "ok")
    assert (second.case, second.reached, second.at_most, second.aim) == ("more", 0.051, True, None)
    assert second.short and second.cells()[-1] == "SHORT"
    found = rows.collected({"a script": printed[1:]}, whole=True)
    assert [row.case for row in found] == [*rows.BY_CASE, "more"]
    missing = next(row for row in found if row.reached is None)
    assert missing.short and missing.cells()[-1] == "missing"


def test_every_row_has_a_script_that_prints_it(rows: Any) -> None:
    texts = "".join(path.read_text() for path in BENCHMARKS.glob("*.py") if path.name != "rows.py")
    by_size = [*(f"{size} MiB, ordinary" for size in (1, 8, 64)), "1 MiB, registered", "4 KiB, ordinary"]
    calls = "".join((BENCHMARKS / name).read_text() for name in ("new_results.py", "hosts.py"))
    left = [case for case in rows.BY_CASE if case not in by_size and f'"{case}"' not in texts]
    assert [case for case in left if f'"{case.rpartition(", ")[2]}"' not in calls] == []
    assert set(rows.reasons()) <= set(rows.BY_CASE)
