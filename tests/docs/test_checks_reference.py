"""The page of all checks is what the checks say of themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_of_checks_is_up_to_date() -> None:
    page = subprocess.run(
        [sys.executable, str(ROOT / "scripts/checks_reference.py")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (ROOT / "docs/reference/checks.md").read_text() == page, (
        "renew it: python scripts/checks_reference.py > docs/reference/checks.md"
    )
