"""What `make test` itself relies on: stages and their summary, and deadlines that grow with the load."""

import importlib.util
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from tests import time_limits
from tests.interpreter import write_program

STAGE = Path(__file__).resolve().parents[2] / "scripts/stage"
Stage = Callable[..., tuple[int, str]]


def loaded(path: Path) -> Any:
    """Return a script as a module."""
    spec = importlib.util.spec_from_loader(path.name, SourceFileLoader(path.name, str(path)))
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Stage]:
    """Call `scripts/stage` in a directory where nothing has run: its exit code and what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    script = loaded(STAGE)

    def call(*words: str) -> tuple[int, str]:
        code = script.main(list(words))
        return code, capfd.readouterr().out

    assert call("--begin") == (0, "")
    yield call
    del sys.modules[STAGE.name]


def outcome(
    name: str, seconds: float | str, *, mark: str = "", phase: str = "call", began: float = 1000.0
) -> str:
    return f"passed\t{phase}\t{began}\t{seconds}\t{mark}\t{name}\t\n"


def test_the_summary_counts_skipped_tests_by_reason(stage: Stage, tmp_path: Path) -> None:
    root, chromium = "only root can make namespaces", "chromium is not installed: apt-get install chromium"
    outcomes = "".join(
        f"skipped\tsetup\t1000.0\t0.1\t\t{name}\t{why}\n"
        for name, why in (("tests/a.py::one", root), ("tests/a.py::two", root), ("tests/b.py::one", chromium))
    )
    (tmp_path / "build/stages/x.outcomes").write_text(outcomes + outcome("tests/b.py::two", 2.0))
    code, said = stage("--summary")
    assert code == 0, said
    part = said.partition("tests that were skipped\n")[2].splitlines()
    assert [line.split(None, 1) for line in part[:2]] == [["2", root], ["1", chromium]]
    assert part[2] == ""


@pytest.mark.parametrize(
    ("outcomes", "speed", "listed", "code"),
    [
        (outcome("a", 4.9), {990: 1.0}, False, 0),
        (outcome("a", 14.0), {990: 1.0}, True, 0),
        (outcome("a", 16.0), {990: 1.0}, True, 1),
        (outcome("a", 16.0), {}, True, 1),
        (outcome("a", 160.0, mark="long"), {990: 1.0}, False, 0),
        (outcome("a", 160.0, mark="smoke"), {990: 1.0}, False, 0),
        (outcome("a", 60.0, phase="setup") + outcome("a", 1.0), {990: 1.0}, False, 0),
        (outcome("a", 16.0), {990: 2.0, 1005: 2.0, 1010: 1.0}, True, 0),
        (outcome("a", 31.0), {990: 2.0, 1005: 2.0, 1010: 1.0}, True, 1),
        (outcome("a", 16.0), {500: 9.0, 510: 9.0, 990: 1.0}, True, 1),
        (outcome("a", 16.0), {500: 4.0, 510: 4.0}, False, 0),
        (outcome("a", 600.0), {990: 11.0}, True, 0),
    ],
    ids=[
        "within its budget",
        "over it, not clearly",
        "clearly over it",
        "clearly over it on a machine that was not measured",
        "long",
        "smoke",
        "a fixture is slow",
        "the machine was slower, by most measurements",
        "clearly over it on a slower machine",
        "the machine was slower at another time",
        "measured at another time alone",
        "a machine so busy that its speed says nothing",
    ],
)
def test_a_test_that_is_clearly_over_its_budget_fails_the_summary(
    stage: Stage, tmp_path: Path, outcomes: str, speed: dict[int, float], listed: bool, code: int
) -> None:
    kept = tmp_path / "build/stages"
    (kept / "x.outcomes").write_text(outcomes)
    (kept / "speed.tsv").write_text("".join(f"{when}\t{factor}\n" for when, factor in speed.items()))
    found, said = stage("--summary")
    assert found == code, said
    assert ("tests over their budget" in said) == listed
    assert ("FAILED: 1 took more than 15 s" in said) == bool(code)


@pytest.mark.process
def test_the_summary_names_what_was_left_out(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stage("first", "true")[0] == 0
    monkeypatch.setenv("STAGES_BEGIN_WITHIN", "-1")
    assert stage("second", "false")[0] == 0
    code, said = stage("--summary")
    assert code == 0 and "left out, the time was over: second\n" in said


def test_each_stage_is_among_the_first_third_on_one_of_three_days(stage: Stage) -> None:
    names = [f"stage-{number}" for number in range(16)]
    days = [stage("--rotate", str(day), *names)[1].split() for day in (20_000, 20_001, 20_002)]
    assert all(sorted(day) == sorted(names) for day in days)
    assert {name for day in days for name in day[:6]} == set(names)


def test_the_outcome_of_a_test_has_its_mark(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    conftest = next(one for one in pytestconfig.pluginmanager.get_plugins() if hasattr(one, "Outcomes"))
    report = pytest.TestReport(
        "tests/a.py::one", ("tests/a.py", 1, "one"), {"one": 1, "smoke": 1}, "passed", None, "call",
        duration=2.5, start=1000.0, stop=1002.5,
    )  # fmt: skip
    conftest.Outcomes(tmp_path / "outcomes").pytest_runtest_logreport(report)
    assert (tmp_path / "outcomes").read_text() == outcome("tests/a.py::one", "2.500", mark="smoke")


TESTS = STAGE.parents[1] / "tests"
MOST_SMOKE_TESTS = 14
"""About one for each package that starts processes: each makes `make test` five seconds longer or more."""
FOLDERS = sorted({path.relative_to(TESTS).parts[0] for path in TESTS.rglob("*/test_*.py")} - {"rdma"})
"""`make test-rdma` alone runs that one: its hosts are emulated machines."""


def test_smoke_tests_stay_few() -> None:
    others = (path for path in TESTS.rglob("*.py") if path != Path(__file__))
    assert sum(path.read_text().count("mark.smoke") for path in others) <= MOST_SMOKE_TESTS


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("target", ["TEST", "TEST_LONG"])
def test_every_folder_of_tests_has_a_stage(target: str, folder: str) -> None:
    text = (STAGE.parents[1] / "Makefile").read_text().replace("\\\n", "")
    values = dict(line.split(" := ", 1) for line in text.splitlines() if " := " in line and line[0] != "\t")
    if folder == "collectives":  # by their files, with all that no other stage names
        assert any("filter-out" in values[f"RUN_{name}"] for name in values[target].split() if folder in name)
    else:
        targets = values[target].split() if folder != "images" else values["TEST_LONG"].split()  # all long
        commands = [values[f"RUN_{name}"].split() for name in targets]
        assert any(f"tests/{folder}" in command for command in commands)


@pytest.fixture
def mutation() -> Any:
    return loaded(STAGE.with_name("mutation.py"))


@pytest.mark.parametrize(("killed", "below"), [(160, False), (145, False), (144, True), (60, True)])
def test_fewer_mutants_than_the_floor_by_more_than_chance(mutation: Any, killed: int, below: bool) -> None:
    assert mutation.below({"killed": killed, "tried": 200}, {"killed": 160, "tried": 200}) == below


def test_every_package_has_a_floor_and_tests(mutation: Any) -> None:
    table = tomllib.loads(mutation.FLOOR.read_text())
    assert table.pop("seed") == 1
    for package in table.values():
        if "killed" in package:
            assert 0 < package["killed"] <= package["tried"] <= min(package["sample"], package["mutants"])
        assert all(any(mutation.ROOT.glob(glob)) for glob in package["tests"])
        assert all(any((mutation.ROOT / "src/ringleader").glob(glob)) for glob in package["modules"])


def test_a_floor_is_stored_where_its_package_is(
    mutation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutation, "FLOOR", tmp_path / "mutation.toml")
    mutation.FLOOR.write_text(
        '# Why.\nseed = 1\n\n[one]\ntests = [\n  "a",\n]\nkilled = 1\n\n[two]\nkilled = 2\n'
    )
    mutation.store("one", {"killed": 7, "tried": 9})
    mutation.store("two", {"killed": 8, "tried": 9})
    assert tomllib.loads(mutation.FLOOR.read_text()) == {
        "seed": 1,
        "one": {"tests": ["a"], "killed": 7, "tried": 9},
        "two": {"killed": 8, "tried": 9},
    }
    assert mutation.FLOOR.read_text().startswith("# Why.\n")


def test_a_busy_machine_has_longer_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(time_limits.VARIABLE, raising=False)
    monkeypatch.setattr(time_limits, "_slowness", 1.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    for load, factor in ((0.0, 1.0), (2.0, 2.0), (20.0, 11.0), (1000.0, time_limits.LARGEST)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert time_limits.factor() == factor
    monkeypatch.setenv(time_limits.VARIABLE, "3")
    assert time_limits.patience(10) == 30


@pytest.mark.process
def test_only_deadlines_of_tests_grow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(time_limits.VARIABLE, "1000")
    call = "subprocess.run(('sleep', '0.3'), timeout=0.1, check=True)"
    exec(compile(call, __file__, "exec"))
    subprocess.run(("sleep", "0.3"), timeout=0.1, check=True)
    with subprocess.Popen(("sleep", "0.3")) as process:
        assert process.wait(0.1) == 0
    with pytest.raises(subprocess.TimeoutExpired):
        exec(compile(call.replace("0.3", "60"), str(tmp_path / "code_under_test.py"), "exec"))


@pytest.mark.process
def test_a_program_for_path_runs_in_this_interpreter(tmp_path: Path) -> None:
    path = tmp_path / "a program"
    write_program(path, "import sys\nprint(sys.executable, sys.argv, sys.flags.isolated)\n", "-I")
    done = subprocess.run((path, "a b"), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{sys.executable} {[str(path), 'a b']} 1\n"
