"""``ringleader run`` as far as it goes without starting a rank: what a user types and what they are told."""

import json
from pathlib import Path

import pytest
from tests.unit.conftest import Call


@pytest.fixture(autouse=True)
def no_batch_system(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "SLURM_JOB_NODELIST",
        "SLURM_NODELIST",
        "PBS_NODEFILE",
        "LSB_MCPU_HOSTS",
        "LSB_DJOB_HOSTFILE",
    ):
        monkeypatch.delenv(name, raising=False)


def test_all_faults_are_told_at_once(call: Call, tmp_path: Path) -> None:
    hosts = tmp_path / "my hosts"
    hosts.write_text("h1 slots=2\nh2 slots=none\n")
    code, out, err = call("run", "-n", "0", "--hostfile", str(hosts), "--bind", "x", "true")
    assert (code, out) == (2, "")
    assert f"ringleader: {hosts}:2: 'none' is not a number of slots" in err
    assert "ringleader: -n: 0 ranks asked for" in err
    assert "ringleader: --bind: 'x' is unknown" in err


def test_a_script_without_its_interpreter(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("print()")
    monkeypatch.chdir(tmp_path)
    code, _, err = call("run", "train.py")
    assert code == 2
    assert "write ./train.py or python train.py" in err
    code, _, err = call("run", "./train.py")
    assert code == 2
    assert "is not executable" in err
    assert "python ./train.py" in err
    code, _, err = call("run", "./nothing.py")
    assert code == 2
    assert f"there is no program {tmp_path}/nothing.py" in err


def test_without_words_there_is_help(call: Call) -> None:
    code, out, err = call("run")
    assert code == 2
    assert "Usage: ringleader run" in out + err


def test_faults_for_programs(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    code, out, _ = call("run", "-n", "0", "--json-file", str(file), "true")
    assert (code, out) == (2, "")
    found = json.loads(file.read_text())
    assert (found["exit_code"], found["whose"], found["command"]) == (2, "ringleader", ["true"])
    assert [fault["where"] for fault in found["faults"]] == ["-n"]


def test_a_dry_run_prints_the_plan_and_starts_nothing(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call("run", "-n", "2", "--oversubscribe", "--dry-run", "touch", "a b")
    assert (code, err) == (0, "")
    assert out.startswith("# plan: 2 ranks on 1 host, openmpi5")
    assert "localhost slots=2 max_slots=2" in out
    assert f"cd {tmp_path}\ntouch 'a b'\n" in out
    assert "WORLD_SIZE=2\n" in out
    assert "0: " in out
    assert list(tmp_path.iterdir()) == []


def test_the_allocation_is_shown(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "localhost")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "1")
    code, out, err = call("run", "--dry-run", "true")
    assert code == 0
    assert err.startswith("ringleader: Slurm allocation with 1 slot: localhost:1")
    assert out.startswith("# plan: 1 rank on 1 host")
    code, _, err = call("run", "--dry-run", "--no-allocation", "true")
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-n 1 no-such-program-anywhere", ("no program 'no-such-program-anywhere' in /", "spelling")),
        ("--hostsfile f true", ("--hostsfile", "--hostfile")),
        ("-n 0 --json-file /none/out.json true", ("--json", "cannot be written")),
    ],
    ids=["a program that does not exist", "an unknown option", "a file that cannot be written"],
)
def test_one_fault_is_named_with_its_cure(call: Call, words: str, said: tuple[str, ...]) -> None:
    code, out, err = call("run", *words.split())
    assert (code, out) == (2, "") and all(part in err for part in said), err
