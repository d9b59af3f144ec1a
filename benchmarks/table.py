"""Write the table of required and reached into README.md, from the last whole run of `make bench`.

    python benchmarks/table.py

Reasons of what is short come from reasons.toml.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rows import BY_CASE, Row, reasons

HERE = Path(__file__).parent
BEGIN, END = "<!-- table.py: begin -->\n", "<!-- table.py: end -->\n"


def rows_of(result: dict[str, Any]) -> list[Row]:
    """Return the rows of a kept run that are required by name."""
    return [row for row in (Row(**one) for one in result["rows"]) if row.case in BY_CASE]


def markdown(result: dict[str, Any], why: dict[str, str]) -> str:
    """Return the table, and a sentence on the run it is from."""
    lines = [
        "| case | what is divided | reached | required | aim | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows_of(result):
        *cells, verdict = row.cells()
        explained = row.short and row.reached is not None
        reason = f"short: {why.get(row.case, 'not explained yet')}" if explained else verdict
        lines.append(f"| {' | '.join([*cells, reason])} |")
    about = result["context"]
    scripts = result["scripts"].values()
    minutes = sum(script["seconds"] for script in scripts) / 60
    load = max((script["load before"] for script in scripts), default=0.0)
    told = f"{about['cores']} cores; load before a script at most {load:g}; {minutes:.0f} minutes in all."
    lines += ["", told]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Renew the table."""
    page = HERE / "README.md"
    text = page.read_text()
    head, rest = text.split(BEGIN)
    _old, tail = rest.split(END)
    result = json.loads((HERE / "results/bench.json").read_text())
    page.write_text(f"{head}{BEGIN}{markdown(result, reasons())}{END}{tail}")


if __name__ == "__main__":
    main()
