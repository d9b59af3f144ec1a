"""What pages say is compared with the commands, the tree, the data and each other: one row a page."""

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from tests.commands import finished
from tests.docs.pages import ROOT, Executed, blocks, commands, execute, text_of
from tests.fabric_hosts import facts

from ringleader.cli.main import ringleader
from ringleader.dataclass_json import document
from ringleader.fabric.transport_proof.requirement import WORDS
from ringleader.kubernetes import why_not_running
from ringleader.kubernetes.mpijob import annotations
from ringleader.kubernetes.operator.decide import conditions, first_failure, obstacles, restarts
from ringleader.render.rdma_profiles import PROFILES, Counts, Multus

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
every_page = pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in PAGES])


@every_page
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text_of(page)):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


@every_page
def test_commands_shown_are_commands_we_have(page: str) -> None:
    for words in commands(page):
        command: click.Command = ringleader
        rest = words[1:]
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            child = command.get_command(click.Context(command), rest.pop(0))
            assert child is not None, f"{page}: {shlex.join(words)}"
            command = child
        known = {one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)}
        known -= {one for parameter in command.params for one in getattr(parameter, "old", ())}
        for word in rest:
            if word == "--" or word.startswith("python"):
                break
            if word.startswith("--"):
                assert word.split("=")[0] in known | {"--help"}, f"{page}: {word} in {shlex.join(words)}"


@every_page
def test_python_shown_is_python_and_no_gap_is_left(page: str) -> None:
    for _, body in blocks(page, "python"):
        ast.parse(body)
    assert "@@" not in text_of(page)


# --- pages that a script writes ---------------------------------------------------------------------------

GENERATED = {
    "docs/reference/cli.md": "scripts/cli_reference.py",
    "docs/reference/checks.md": "scripts/checks_reference.py",
    "docs/reference/images.md": "scripts/image_reference.py",
    "docs/reference/mpijob.md": "scripts/mpijob_reference.py",
}


@pytest.mark.parametrize("page", GENERATED)
@pytest.mark.process
def test_a_reference_is_up_to_date(page: str) -> None:
    # In its own process: click keeps what a command's help was first called with.
    argv = [sys.executable, str(ROOT / GENERATED[page])]
    written = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert text_of(page) == written, f"renew it: python {GENERATED[page]} > {page}"


# --- pages in two languages -------------------------------------------------------------------------------


TRANSLATED = [str(page.relative_to(ROOT)) for page in PAGES if page.name.endswith(".zh-CN.md")]


def rows_by_section(page: str) -> list[int]:
    """Return how many rows of tables each section has."""
    return [part.count("\n| ") for part in re.split(r"^## ", text_of(page), flags=re.MULTILINE)[1:]]


def printed(page: str) -> list[str]:
    """Return the blocks that are neither commands nor Python: what is printed, files, settings."""
    return [body for language, body in blocks(page) if language not in ("console", "python")]


def typed(page: str) -> list[list[str]]:
    """Return the words of every line that a reader types, of any program, without comments."""
    lines = [line for _, body in blocks(page, "console") for line in body.replace("\\\n", " ").splitlines()]
    return [shlex.split(line[2:], comments=True) for line in lines if line[:2] in ("$ ", "# ")]


def code(page: str) -> list[str]:
    """Return each block of Python without its comments."""
    return [ast.unparse(ast.parse(body)) for _, body in blocks(page, "python")]


SAME: dict[str, tuple[Callable[[str], list[object]], ...]] = {
    "README": (printed,),
    "docs/guides/doctor": (printed, rows_by_section),
    "docs/guides/elastic": (printed,),
    "docs/guides/how-close-to-linear": (printed,),
    "docs/guides/is-my-job-on-rdma": (printed,),
    "docs/guides/kubernetes": (printed, rows_by_section),
    "docs/guides/pytorch-libraries": (rows_by_section,),
    "docs/guides/scaling": (rows_by_section,),
    "docs/guides/several-hosts": (printed, rows_by_section),
    "docs/guides/will-it-scale": (printed,),
    "docs/tutorial/first-report": (printed, rows_by_section),
    "docs/tutorial/one-gpu-machine": (rows_by_section,),
    "docs/tutorial/two-machines": (printed, rows_by_section),
}
"""Page → what it has in common with the Chinese one beside commands and code."""


@pytest.mark.parametrize("page", TRANSLATED)
def test_commands_and_code_are_the_same_in_both_languages(page: str) -> None:
    english = page.replace(".zh-CN.md", ".md")
    assert typed(page) == typed(english)
    assert code(page) == code(english)


@pytest.mark.parametrize("page", SAME)
def test_the_chinese_page_shows_the_same(page: str) -> None:
    for what in SAME[page]:
        assert what(f"{page}.md") == what(f"{page}.zh-CN.md") != []


@pytest.mark.parametrize("page", TRANSLATED)
def test_each_language_leads_to_the_other(page: str) -> None:
    english = page.replace(".zh-CN.md", ".md")
    assert f"[English]({Path(english).name})" in text_of(page)
    assert f"[中文]({Path(page).name})" in text_of(english)


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_index_leads_to_every_page(page: str) -> None:
    """Of two languages to the Chinese page where there is one, else to the English one."""
    docs = ROOT / "docs"
    linked = {(docs / link).resolve() for link in re.findall(r"\]\(([^)#:]+\.md)", (docs / page).read_text())}
    for found in sorted(docs.glob("*/*.md")):
        if found.parent.name == "decisions" or found.name.endswith(".zh-CN.md"):
            continue
        translated = found.with_name(f"{found.stem}.zh-CN.md")
        chosen = translated if page == "README.zh-CN.md" and translated.exists() else found
        assert chosen in linked, f"{page}: {found}"


# --- commands that are run --------------------------------------------------------------------------------


def stored(name: str) -> Callable[[], str]:
    """Return what makes a file of facts of a stored host."""
    return lambda: json.dumps(document(facts(name)))


EXECUTED = (
    Executed(page="docs/guides/rdma-pods.md", least=8, shows=5, language="yaml", files={"yaml": ""}),
    Executed(
        page="docs/concepts/prediction.md", least=2, shows=2, language="text", files={"toml": "job.toml"}
    ),
    *(
        Executed(page=f"docs/guides/will-it-scale{language}.md", least=6, shows=6, language="text")
        for language in ("", ".zh-CN")
    ),
    *(
        Executed(
            page=f"docs/guides/is-my-job-on-rdma{language}.md",
            least=3,
            shows=3,
            only="--facts-from",
            files={"toml": "nodes.toml"},
            stored={"node7.json": stored("broken_ports"), "pod.json": stored("connectx_pod")},
            codes=frozenset((0, 1, 2, 3)),
            has_fixed_columns=False,
        )
        for language in ("", ".zh-CN")
    ),
)


@pytest.mark.parametrize("row", EXECUTED, ids=lambda row: row.page)
def test_commands_print_what_the_page_shows(
    row: Executed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "/dev/null")
    execute(row, tmp_path, capsys)


# --- what must be named, and how --------------------------------------------------------------------------

OPERATOR = "docs/concepts/operator.md"
FIRST, LONGEST = int(restarts.FIRST_PAUSE), int(restarts.LONGEST_PAUSE / 60)
REASONS = (
    "CREATED RUNNING SUCCEEDED FAILED EVICTED SUSPENDED RESUMED RESTARTING INVALID CORRECTED FOREIGN "
    "API_WARNING TEMPLATE_RESTART_POLICY WORKER_FAILED RESTART_LIMIT DEADLINE LAUNCHER_GONE"
)
OBSTACLES = "UNSCHEDULABLE QUOTA REJECTED FORBIDDEN REFUSED"
NAMED: dict[str, list[str]] = {
    OPERATOR: [
        *(f"`{getattr(conditions, name)}`" for name in REASONS.split()),
        *(f"`{getattr(why_not_running, name)}`" for name in OBSTACLES.split()),
        *(f"`{one}`" for one in why_not_running._CONTAINERS if one != "ErrImagePull"),
        *(f"`{obstacles.NO_LAUNCHER_POD}`", f"`{obstacles.STUCK_TERMINATING}`"),
        *(f"`{annotations.ON_WORKER_FAILURE}`", f"`{annotations.RESTART_LIMIT}`"),
        f"`{first_failure.FIRST_FAILURE}`",
        *(f"| `{policy}` |" for policy in annotations.KNOWN[annotations.ON_WORKER_FAILURE]),
        f"a pause of {FIRST} s, then {2 * FIRST} s, up to {LONGEST} minutes",
        f"else `backoffLimit`, else {restarts.DEFAULT_LIMIT}",
        f"2 s, 4 s … {int(obstacles.LONGEST_PAUSE)} s",
        f"`{why_not_running.UNSCHEDULABLE}` (after {int(obstacles.PATIENCE)} s)",
        f"still exists {int(obstacles.DELETION_PATIENCE)} s after its grace period",
        f"no Pod for {int(obstacles.LAUNCHER_PATIENCE)} s",
        f"{conditions.LONGEST_MESSAGE} characters",
        f"A failure {int(first_failure.EPISODE / 60)} minutes older",
    ]
}
"""Page → what is in it: reasons, annotations, numbers of the program."""


@pytest.mark.parametrize(("page", "text"), [(page, text) for page, texts in NAMED.items() for text in texts])
def test_a_page_names(page: str, text: str) -> None:
    assert text in text_of(page)


@pytest.mark.parametrize("language", ["", ".zh-CN"])
def test_every_word_of_require_is_explained(language: str) -> None:
    rows = re.findall(
        r"^\| ((?:`[a-z0-9]+`[,、 ]*)+) \|",
        text_of(f"docs/guides/is-my-job-on-rdma{language}.md"),
        re.MULTILINE,
    )
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(WORDS)


COUNTED = {
    Counts.NICS: "NICs",
    Counts.SLOT: "a slot: always 1",
    Counts.CONFIGURED: "as the plugin is configured",
    Counts.PAIRS: "pairs of GPU and NIC",
    Counts.NOTHING: "",
}


def test_the_table_of_rdma_profiles_says_what_the_data_say() -> None:
    cells = r"^\| `([a-z-]+)` \| (.*?) \| (.*?) ?\| (.*?) ?\| (.*?) ?\|$"
    rows = re.findall(cells, text_of("docs/guides/rdma-pods.md"), re.MULTILINE)
    assert [row[0] for row in rows] == list(PROFILES)
    for name, summary, resource, counted, network in rows:
        profile = PROFILES[name]
        assert (summary, counted) == (profile.summary, COUNTED[profile.counts])
        assert all(f"`{one}`" in resource for one in profile.seen), name
        assert network.startswith("yes") is (profile.multus is Multus.MUST), name
        assert profile.network in network


@pytest.mark.process
def test_the_dry_run_that_the_readme_shows_works(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('not run')\n")
    words = ("run", "-n", "2", "--oversubscribe", "--dry-run", sys.executable, str(script))
    done = finished([sys.executable, "-m", "ringleader", *words], timeout=60)
    assert done.returncode == 0, done.stderr
    assert "mpirun" in done.stdout and "not run" not in done.stdout
