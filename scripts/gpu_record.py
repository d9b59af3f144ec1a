"""Writes what has run on a GPU from benchmarks/results/gpu-*.json: for the package, and the table of a page.

    python scripts/gpu_record.py [--check]

It writes src/ringleader/gpu_record.json and the table in docs/concepts/gpus.md; ``--check`` writes nothing,
and ends with exit code 1 where one of them is not what the results say.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from gpu import FAILED, PARTS, PASSED  # noqa: E402

RECORD = ROOT / "src" / "ringleader" / "gpu_record.json"
PAGE = ROOT / "docs" / "concepts" / "gpus.md"
BEGIN, END = "<!-- gpu_record.py: begin -->\n", "<!-- gpu_record.py: end -->"


def stored(directory: Path) -> list[dict[str, Any]]:
    """Return the result files of GPUs. Raises ValueError for one that is a rehearsal."""
    found = []
    for path in sorted(directory.glob("gpu-*.json")):
        value = json.loads(path.read_text())
        if value.get("kind") != "gpu":
            raise ValueError(f"{path.name} is not the result of a GPU; delete it")
        found.append(value)
    return found


def record(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each part of `make gpu` and how it ended on each GPU. Pure."""
    return [
        {
            "part": part.name,
            "what": part.what,
            "runs": [
                {
                    "gpu": one["context"]["gpu"],
                    **{key: ran[key] for key in ("result", "date", "torch", "nccl")},
                }
                for one in results
                if (ran := one["parts"].get(part.name)) and ran["result"] in (PASSED, FAILED)
            ],
        }
        for part in PARTS
    ]


def record_text(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return the packaged file: a line for each part."""
    return "[\n" + ",\n".join(json.dumps(part, ensure_ascii=False) for part in parts) + "\n]\n"


def table(parts: Sequence[Mapping[str, Any]], notes: Mapping[tuple[str, str], str]) -> str:
    """Return the table of the page. ``notes``: by part and GPU, what a failed one said."""
    ran = [part for part in parts if part["runs"]]
    lines = [
        f"{len(ran)} of {len(parts)} parts have run on a GPU.",
        "",
        "| part | what | result |",
        "| --- | --- | --- |",
    ]
    for part in parts:
        said = []
        for run in part["runs"]:
            note = notes.get((part["part"], run["gpu"]), "") if run["result"] == FAILED else ""
            where = f"{run['gpu']}, PyTorch {run['torch']}, NCCL {run['nccl']}, {run['date']}"
            said.append(f"{run['result']} ({where})" + f": {note}" * bool(note))
        cell = "; ".join(said).replace("|", "\\|").replace("\n", " ") or "never run"
        lines.append(f"| `{part['part']}` | {part['what']} | {cell} |")
    return "\n".join(lines) + "\n"


def page_text(page: str, inside: str) -> str:
    """Return the page with the table in its place."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + inside + END + rest.split(END)[1]


def wanted() -> dict[Path, str]:
    """Return the text that each file must have."""
    results = stored(ROOT / "benchmarks" / "results")
    parts = record(results)
    notes = {
        (name, one["context"]["gpu"]): ran["note"] for one in results for name, ran in one["parts"].items()
    }
    return {RECORD: record_text(parts), PAGE: page_text(PAGE.read_text(), table(parts, notes))}


def main() -> None:
    """Write, or check."""
    files = wanted()
    if "--check" in sys.argv[1:]:
        old = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
        if old:
            sys.exit(f"{', '.join(old)}: not what benchmarks/results says; run scripts/gpu_record.py")
        return
    for path, text in files.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
