"""What `make test` itself relies on: stages and their summary, and deadlines that grow with the load."""

import importlib.util
import sys
import tomllib
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from tests import time_limits

STAGE = Path(__file__).resolve().parents[2] / "scripts/stage"


def loaded(path):
    """Return a script as a module."""
    spec = importlib.util.spec_from_loader(path.name, SourceFileLoader(path.name, str(path)))
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def stage(tmp_path, monkeypatch, capfd):
    """Call `scripts/stage` in a directory where nothing has run: its exit code and what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    script = loaded(STAGE)

    def call(*words):
        code = script.main(list(words))
        return code, capfd.readouterr().out

    assert call("--begin") == (0, "")
    yield call
    del sys.modules[STAGE.name]


def outcome(name, seconds, *, mark="", phase="call", began=1000.0):
    return f"passed\t{phase}\t{began}\t{seconds}\t{mark}\t{name}\t\n"


@pytest.mark.process
def test_the_summary_names_what_was_left_out(stage, monkeypatch):
    assert stage("first", "true")[0] == 0
    monkeypatch.setenv("STAGES_BEGIN_WITHIN", "-1")
    assert stage("second", "false")[0] == 0
    code, said = stage("--summary")
    assert code == 0 and "left out, the time was over: second\n" in said


TESTS = STAGE.parents[1] / "tests"
MOST_SMOKE_TESTS = 14
"""About one for each package that starts processes: each makes `make test` five seconds longer or more."""
FOLDERS = sorted({path.relative_to(TESTS).parts[0] for path in TESTS.rglob("*/test_*.py")} - {"rdma"})
"""`make test-rdma` alone runs that one: its hosts are emulated machines."""


def test_smoke_tests_stay_few():
    others = (path for path in TESTS.rglob("*.py") if path != Path(__file__))
    assert sum(path.read_text().count("mark.smoke") for path in others) <= MOST_SMOKE_TESTS


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("target", ["TEST", "TEST_LONG"])
def test_every_folder_of_tests_has_a_stage(target, folder):
    text = (STAGE.parents[1] / "Makefile").read_text().replace("\\\n", "")
    values = dict(line.split(" := ", 1) for line in text.splitlines() if " := " in line and line[0] != "\t")
    if folder == "collectives":  # by their files, with all that no other stage names
        assert any("filter-out" in values[f"RUN_{name}"] for name in values[target].split() if folder in name)
    else:
        targets = values[target].split() if folder != "images" else values["TEST_LONG"].split()  # all long
        commands = [values[f"RUN_{name}"].split() for name in targets]
        assert any(f"tests/{folder}" in command for command in commands)


@pytest.fixture
def mutation():
    return loaded(STAGE.with_name("mutation.py"))


def test_every_package_has_a_floor_and_tests(mutation):
    table = tomllib.loads(mutation.FLOOR.read_text())
    assert table.pop("seed") == 1
    for package in table.values():
        if "killed" in package:
            assert 0 < package["killed"] <= package["tried"] <= min(package["sample"], package["mutants"])
        assert all(any(mutation.ROOT.glob(glob)) for glob in package["tests"])
        assert all(any((mutation.ROOT / "src/ringleader").glob(glob)) for glob in package["modules"])


def test_a_busy_machine_has_longer_deadlines(monkeypatch):
    monkeypatch.delenv(time_limits.VARIABLE, raising=False)
    monkeypatch.setattr(time_limits, "_slowness", 1.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    for load, factor in ((0.0, 1.0), (2.0, 2.0), (20.0, 11.0), (1000.0, time_limits.LARGEST)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert time_limits.factor() == factor
    monkeypatch.setenv(time_limits.VARIABLE, "3")
    assert time_limits.patience(10) == 30


@pytest.mark.parametrize(
    ("outcomes", "speed", "listed", "code"),
    [
        (outcome("a", 4.9), {990: 1.0}, False, 0),
        (outcome("a", 16.0), {}, True, 1),
        (outcome("a", 160.0, mark="long"), {990: 1.0}, False, 0),
        (outcome("a", 60.0, phase="setup") + outcome("a", 1.0), {990: 1.0}, False, 0),
        (outcome("a", 16.0), {990: 2.0, 1005: 2.0, 1010: 1.0}, True, 0),
        (outcome("a", 31.0), {990: 2.0, 1005: 2.0, 1010: 1.0}, True, 1),
        (outcome("a", 16.0), {500: 4.0, 510: 4.0}, False, 0),
    ],
)
def test_a_test_that_is_clearly_over_its_budget_fails_the_summary(
    stage, tmp_path, outcomes, speed, listed, code
):
    """``speed``: when the machine was measured → by how much it was slower."""
    kept = tmp_path / "build/stages"
    (kept / "x.outcomes").write_text(outcomes)
    (kept / "speed.tsv").write_text("".join(f"{when}\t{factor}\n" for when, factor in speed.items()))
    found, said = stage("--summary")
    assert found == code, said
    assert ("tests over their budget" in said) == listed
    assert ("FAILED: 1 took more than 15 s" in said) == bool(code)
