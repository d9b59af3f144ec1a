"""docs/reference/images.md says what the blocks' arguments say."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date() -> None:
    page = runpy.run_path(str(ROOT / "scripts/image_reference.py"))["page"]()
    assert (ROOT / "docs/reference/images.md").read_text() == page, (
        "renew it: python scripts/image_reference.py > docs/reference/images.md"
    )
