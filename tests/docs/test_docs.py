"""What the documents say is held against the commands, the tree and each other."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [body for lang, body in FENCE.findall(page.read_text()) if lang == language]


def commands(page: Path) -> list[list[str]]:
    """Every `ringleader …` that a console block of the page shows, continuation lines joined."""
    found = []
    for block in blocks(page, "console"):
        for line in block.replace("\\\n", " ").splitlines():
            match = re.match(r"^[$#] (?:sudo )?(ringleader .*)", line)
            if match:
                found.append(shlex.split(match.group(1), comments=True))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_shown_are_commands_we_have(page: Path) -> None:
    from ringleader.cli.main import ringleader

    for words in commands(page):
        command: click.Command = ringleader
        rest = words[1:]
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            child = command.get_command(click.Context(command), rest.pop(0))
            assert child is not None, f"{page.name}: {shlex.join(words)}"
            command = child
        known = {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for word in rest:
            if word == "--" or word.startswith("python"):
                break
            if word.startswith("--"):
                assert word.split("=")[0] in known | {"--help"}, f"{page.name}: {word} in {shlex.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_shown_is_python(page: Path) -> None:
    for block in blocks(page, "python"):
        ast.parse(block)


@pytest.mark.parametrize("page", ["README", "docs/guides/getting-started"])
def test_the_chinese_page_shows_the_same_commands(page: str) -> None:
    assert commands(ROOT / f"{page}.md") == commands(ROOT / f"{page}.zh-CN.md") != []


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_index_leads_to_every_page(page: str) -> None:
    """Of two languages to the Chinese page where there is one, else to the English one."""
    docs = ROOT / "docs"
    linked = {(docs / link).resolve() for link in re.findall(r"\]\(([^)#:]+\.md)", (docs / page).read_text())}
    chinese = page == "README.zh-CN.md"
    for found in sorted(docs.glob("*/*.md")):
        if found.parent.name == "decisions" or found.name.endswith(".zh-CN.md"):
            continue
        translated = found.with_name(f"{found.stem}.zh-CN.md")
        assert (translated if chinese and translated.exists() else found) in linked, f"{page}: {found}"


def test_the_chinese_guide_of_elastic_jobs_shows_the_same() -> None:
    block = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    english, chinese = (
        block.findall((ROOT / "docs/guides" / name).read_text())
        for name in ("elastic.md", "elastic.zh-CN.md")
    )
    assert english == chinese


def test_the_chinese_guide_of_scaling_has_the_same_sections_and_commands() -> None:
    pages = [ROOT / "docs/guides" / name for name in ("scaling.md", "scaling.zh-CN.md")]
    english, chinese = ([body.count("\n| ") for _, body in sections(page)] for page in pages)
    assert english == chinese  # rows of tables, section by section
    assert sorted(commands(pages[0])) == sorted(commands(pages[1]))


def sections(page: Path) -> list[tuple[str, str]]:
    """Return (title, text) of each section."""
    return re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", page.read_text(), re.MULTILINE)


def test_command_line_reference_is_up_to_date() -> None:
    # In a process of its own: click keeps what a command's help was first called with.
    page = subprocess.run(
        [sys.executable, str(ROOT / "scripts/cli_reference.py")], capture_output=True, text=True, check=True
    ).stdout
    assert (ROOT / "docs/reference/cli.md").read_text() == page, (
        "renew it: python scripts/cli_reference.py > docs/reference/cli.md"
    )


def test_no_page_leaves_a_gap() -> None:
    for page in PAGES:
        assert "@@" not in page.read_text(), page


def test_the_dry_run_that_the_readme_shows_works(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('not run')\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ringleader",
            "run",
            "-n",
            "2",
            "--oversubscribe",
            "--dry-run",
            sys.executable,
            str(script),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "mpirun" in done.stdout and "not run" not in done.stdout
