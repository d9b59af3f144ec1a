"""What is said of words that are no command, no option, or missing: one style, and what was meant."""

import io
import json
import sys

import pytest

from ringleader.cli import output
from ringleader.cli.main import main

CASES = {
    "rn": "rn: no such command\n    → did you mean run? ringleader --help lists them",
    "k8s statu": "statu: no such command\n    → did you mean status? ringleader k8s --help lists them",
    "xyzzy": "xyzzy: no such command\n    → ringleader --help lists them",
    "run --num-procs 2 x": "--num-procs: no such option\n    → did you mean -n? ringleader run --help",
    "run --hostfil x": "--hostfil: no such option\n    → did you mean --hostfile",
    "run -n": "-n: requires an argument",
    "run --profile 40:20 x": "--profile: step 20 comes before step 40\n    → write 20:40",
    "run --profile 1:5 x": "--profile: step 1 cannot be recorded: its beginning is unknown",
    "run --profile 20 x": "--profile: '20' is not a range of steps\n    → write FIRST:LAST, such as 20:40",
    "run --profile-dir d x": "--profile-dir: requires --profile",
    "k8s logs": "JOB: is missing\n    → ringleader k8s logs --help",
    "logs": "JOB: is missing\n    → ringleader",
    "completion": "bash|zsh|fish: is missing\n    → ringleader completion --help",
    "completion ksh": "shell: 'ksh' is not one of 'bash', 'zsh', 'fish'",
}


@pytest.mark.parametrize("line", CASES)
def test_it_says_what_was_meant(call, line):
    code, out, err = call(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"ringleader: {CASES[line]}"), err


@pytest.mark.parametrize("name", ["submit", "status", "logs", "explain", "delete"])
def test_commands_of_jobs_on_a_cluster_have_two_names(call, name):
    new, old = call("k8s", name, "--help"), call(name, "--help")
    assert new[0] == old[0] == 0
    assert new[1].replace("ringleader k8s", "ringleader") == old[1].replace("ringleader k8s", "ringleader")
    assert f"  {name} " not in call("--help")[1]
    assert f"  {name} " in call("k8s", "--help")[1]


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(call, shell):
    code, out, _err = call("completion", shell)
    assert code == 0 and "_RINGLEADER_COMPLETE" in out and "ringleader" in out


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_verdicts_are_colored_on_terminals_alone(monkeypatch, variables):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    text = "Between hosts\n  FAIL  hosts.mtu  a FAIL is red\n  WARN  x\n"
    assert output.colored(text) == text
    monkeypatch.setattr(sys, "stdout", Terminal())
    red = text.replace("  FAIL", "  \x1b[1;31mFAIL\x1b[0m").replace("  WARN", "  \x1b[1;33mWARN\x1b[0m")
    assert output.colored(text) == (text if variables else red)


@pytest.mark.process
def test_scale_removes_nothing_that_it_has_not_made(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/kept").write_text("kept")
    for name in ("data", "new"):
        code, _out, err = call(
            "scale", "--output", str(tmp_path), "--name", name, "--", "python", "missing.py"
        )
        assert code == 2 and "missing.py" in err and "continue" not in err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["data", "kept"]


@pytest.mark.parametrize("table", ["submit", "k8s.submit"])
def test_defaults_of_a_command_with_two_names_are_read_under_both(call, tmp_path, monkeypatch, table):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ringleader.toml").write_text(f"[{table}]\nnamespace = 'Wrong_Name'\n")
    for words in (("submit",), ("k8s", "submit")):
        code, _out, err = call(*words, "--dry-run", "-n", "2", "--image", "i", "--", "x")
        assert code == 2 and f"[{table}] namespace: 'Wrong_Name'" in err, err


EMPTY = (
    *("delete", "explain", "status", "logs", "report", "predict", "lab kill", "lab cut"),
    *("image check", "image render", "image lock", "image build", "image solve"),
)
PREDICT = ("predict", "--model", "resnet-50", "--rate", "219", "--batch", "64")


def said(capsys, *words):
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert left.value.code == 2
    return capsys.readouterr().err


def test_a_wrong_word_counts_as_given(capsys):
    for words, where in (
        ("predict --model vgg-16 --rate 154 --batch 0", "--batch"),
        ("predict --gradients 0 --rate 154 --batch 32", "--gradients"),
        ("run --min-np 0 --reset-limit 3 true", "--min-np"),
        ("run --max-restarts -1 --warm true", "--max-restarts"),
        ("report R --against B --fail-below 0 --allow-missing", "--fail-below"),
        ("run --on kubernets --image a true", "--on"),
    ):
        told = [one for one in said(capsys, *words.split()).splitlines() if one.startswith("ringleader: ")]
        assert [one.split(": ")[1] for one in told] == [where]


WRONG = {
    "one empty name among others deletes nothing": ("delete a <> b", "JOB: is empty"),
    "mpirun is given no second program": ("run --mpirun-arg : true", "--mpirun-arg: ':' begins"),
    "nor is that of a Pod": (
        "render mpijob --image a -n 2 --mpirun-arg : true",
        "--mpirun-arg: ':' begins",
    ),
    "an empty baseline is not the working directory": ("report run --against <>", "--against: is empty"),
    "more ranks than any job has": ("run --dry-run --oversubscribe -n 1000001 true", "-n: "),
    "a number that is too large is a number": ("run --timeout 1e40 true", "is too large"),
    "restarts on Kubernetes are those of its Job": (
        "run --on kubernetes --max-restarts 2 --image x true",
        "--backoff-limit",
    ),
    "restarts are a number": ("run --max-restarts some true", "--max-restarts: 'some' is not an integer"),
    "nothing that is measured starts again": ("scale --max-restarts 2 true", "--max-restarts"),
    "warm ranks are those of restarts": ("run --warm python x.py", "--warm: means nothing without restarts"),
    "they run a script": (
        "run --warm --max-restarts 2 true",
        "--warm: the command is not a Python script",
    ),
    "and no text": ("run --warm --max-restarts 2 python -c 0", "--warm: -c is an option"),
    "an elastic job has its own": (
        "run --warm --min-np 1 python x.py",
        "--warm: means nothing for an elastic job",
    ),
    "no fewer ranks at most than at least": (
        "run --min-np 4 --max-np 2 python -c 0",
        "at least 4, but at most 2",
    ),
    "a list of packages has standard output to itself": ("doctor --image --sbom -", "--sbom -"),
    "a list needs a directory": (
        "doctor --sbom /nowhere/at/all",
        "--sbom: there is no directory /nowhere/at",
    ),
    "a variable has a name": ("run -n 1 -x =1 true", "-x: '' is not a name"),
    "a count of zero is misplaced as any other": (
        "doctor --rdma-count 0",
        "--rdma-count: is for nodes of a cluster",
    ),
}
"""What is wrong → the command line, with ``<>`` for an empty word; what is said."""


@pytest.mark.parametrize("name", WRONG)
def test_what_is_said_of_a_wrong_word(name, capsys):
    words, message = WRONG[name]
    assert message in said(capsys, *(word.replace("<>", "") for word in words.split()))


def test_an_empty_name_is_refused(capsys):
    for command in EMPTY:
        assert "is empty" in said(capsys, *command.split(), ""), command
    text = said(capsys, "delete", "--timeout", "soon", "a", "")
    assert "--timeout: 'soon'" in text and "JOB: is empty" in text
    text = said(capsys, "lab", "status", "--hostfile", "--ssh-config")
    assert "--hostfile and --ssh-config: only one path is printed" in text


@pytest.mark.parametrize(
    "words",
    [
        ("delete", "--timeout", "{}", "job"),
        ("run", "--timeout", "{}", "true"),
        ("run", "-n", "{}", "true"),
        ("logs", "--tail", "{}", "job"),
        (*PREDICT, "--straggler", "{}"),
        ("lab", "up", "--dry-run", "--hosts", "{}"),
    ],
    ids=lambda words: " ".join(words[:1] + words[-2:-1]),
)
def test_a_number_beyond_every_bound_is_refused(words, capsys):
    for text in ("nan", "inf", "-inf", "1e400", "1e300", "9" * 400, "9" * 5000):
        assert words[words.index("{}") - 1] in said(capsys, *(word.format(text) for word in words))


def test_wrong_words_are_reported_with_misplaced_options(capsys):
    for words, wheres in (
        ("run --image a --consistency-check foo true", ["--consistency-check", "--image"]),
        ("scale --image a --in-step foo true", ["--in-step", "--image"]),
        ("doctor --timeout 0", ["--timeout"]),
        ("image build --timestamp -1 a.toml", ["--timestamp"]),
    ):
        told = [one for one in said(capsys, *words.split()).splitlines() if one.startswith("ringleader: ")]
        assert [one.split(": ")[1] for one in told] == wheres


@pytest.fixture(autouse=True)
def no_batch_system(monkeypatch):
    for name in (
        "SLURM_JOB_NODELIST",
        "SLURM_NODELIST",
        "PBS_NODEFILE",
        "LSB_MCPU_HOSTS",
        "LSB_DJOB_HOSTFILE",
    ):
        monkeypatch.delenv(name, raising=False)


def test_all_faults_are_told_at_once(call, tmp_path):
    hosts = tmp_path / "my hosts"
    hosts.write_text("h1 slots=2\nh2 slots=none\n")
    file = tmp_path / "out.json"
    words = ("-n", "0", "--hostfile", str(hosts), "--bind", "x", "--json-file", str(file), "true")
    code, out, err = call("run", *words)
    assert (code, out) == (2, "")
    assert f"ringleader: {hosts}:2: 'none' is not a number of slots" in err
    assert "ringleader: -n: 0 ranks asked for" in err
    assert "ringleader: --bind: 'x' is unknown" in err
    found = json.loads(file.read_text())
    assert (found["exit_code"], found["whose"], found["command"]) == (2, "ringleader", ["true"])
    assert sorted(fault["where"] for fault in found["faults"]) == ["--bind", "-n", f"{hosts}:2"]
    code, out, err = call("run")
    assert code == 2 and "Usage: ringleader run" in out + err


def test_a_script_without_its_interpreter(call, tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("print()")
    monkeypatch.chdir(tmp_path)
    for word, *said in (
        ("train.py", "write ./train.py or python train.py"),
        ("./train.py", "is not executable", "python ./train.py"),
        ("./nothing.py", f"there is no program {tmp_path}/nothing.py"),
    ):
        code, _, err = call("run", word)
        assert code == 2 and all(part in err for part in said), err


def test_a_dry_run_prints_the_plan_and_starts_nothing(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("run", "-n", "2", "--oversubscribe", "--dry-run", "touch", "a b")
    assert (code, err) == (0, "")
    assert out.startswith("# plan: 2 ranks on 1 host, openmpi5")
    assert "localhost slots=2 max_slots=2" in out
    assert f"cd {tmp_path}\ntouch 'a b'\n" in out
    assert "WORLD_SIZE=2\n" in out
    assert "0: " in out
    assert list(tmp_path.iterdir()) == []


def test_the_allocation_is_shown(call, monkeypatch):
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
def test_one_fault_is_named_with_its_cure(call, words, said):
    code, out, err = call("run", *words.split())
    assert (code, out) == (2, "") and all(part in err for part in said), err
