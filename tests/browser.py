"""A headless Chromium for tests of pages: the report's and the site's."""

import shutil
from pathlib import Path

from tests.commands import finished
from tests.system_programs import program

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def chromium() -> str:
    """Return its path; see `tests.system_programs.program` where there is none."""
    others = shutil.which("chromium-browser") or shutil.which("google-chrome")
    return others or program("chromium", "chromium")


def browse(tmp_path: Path, *words: str) -> str:
    """Run it with these words to its end; return what it prints."""
    profile = tmp_path / "profile"
    profile.mkdir(exist_ok=True)
    done = finished([chromium(), *FLAGS, f"--user-data-dir={profile}", *words], timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


PHONE = """<!DOCTYPE html><title>waiting</title><body style="margin:0">
<iframe src="{page}" style="width:{width}px;height:1500px;border:0"></iframe>
<script>addEventListener("message", m => {{ document.title = m.data; }});</script>"""
"""A page in a frame as narrow as a phone: the browser's own window is never that narrow."""
