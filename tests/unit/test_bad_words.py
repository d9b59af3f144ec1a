"""Words of the command line that no command can take: empty names, numbers beyond every bound."""

from pathlib import Path

import pytest

from ringleader.cli.main import main

EMPTY = (
    *("delete", "explain", "status", "logs", "report", "predict", "lab kill", "lab cut"),
    *("image check", "image render", "image lock", "image build", "image solve"),
)
PREDICT = ("predict", "--model", "resnet-50", "--rate", "219", "--batch", "64")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert left.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("command", EMPTY)
def test_an_empty_name_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is empty" in said(capsys, *command.split(), "")


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", "1e300", "9" * 400, "9" * 5000])
@pytest.mark.parametrize(
    "words",
    [
        ("delete", "--timeout", "{}", "job"),
        ("run", "--timeout", "{}", "true"),
        ("run", "--start-timeout", "{}", "true"),
        ("run", "-n", "{}", "true"),
        ("logs", "--tail", "{}", "job"),
        (*PREDICT, "--per-host", "{}"),
        (*PREDICT, "--straggler", "{}"),
        ("lab", "up", "--dry-run", "--hosts", "{}"),
    ],
    ids=lambda words: " ".join(words[:1] + words[-2:-1]),
)
def test_a_number_beyond_every_bound_is_refused(
    words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    option = words[words.index("{}") - 1]
    assert option in said(capsys, *(word.format(text) for word in words))


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("predict --model vgg-16 --rate 0 --batch 32", "--rate"),
        ("predict --model vgg-16 --rate 154 --batch 0", "--batch"),
        ("predict --gradients 0 --rate 154 --batch 32", "--gradients"),
        ("run --min-np 0 --reset-limit 3 true", "--min-np"),
        ("run --min-np x --reset-limit 3 true", "--min-np"),
        ("run --max-restarts -1 --warm true", "--max-restarts"),
        ("report R --against B --fail-below 0 --allow-missing", "--fail-below"),
        ("run --on kubernets --image a true", "--on"),
        ("scale --on kubernets --image a true", "--on"),
    ],
)
def test_a_wrong_word_counts_as_given(words: str, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = [one for one in said(capsys, *words.split()).splitlines() if one.startswith("ringleader: ")]
    assert [one.split(": ")[1] for one in told] == [where]


@pytest.mark.parametrize(
    ("words", "wheres"),
    [
        ("run --image a --consistency-check foo true", ["--consistency-check", "--image"]),
        ("scale --image a --in-step foo true", ["--in-step", "--image"]),
    ],
)
def test_wrong_words_are_reported_with_misplaced_options(
    words: str, wheres: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    told = [one for one in said(capsys, *words.split()).splitlines() if one.startswith("ringleader: ")]
    assert [one.split(": ")[1] for one in told] == wheres


def test_wrong_words_are_reported_with_empty_names(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "delete", "--timeout", "soon", "a", "")
    assert "--timeout: 'soon'" in text and "JOB: is empty" in text


@pytest.mark.parametrize(
    "words",
    [
        "doctor --timeout 0",
        "doctor --active-seconds 0",
        "image build --timeout 0 a.toml",
        "image lock --timeout 0 a.toml",
        "image build --timestamp -1 a.toml",
    ],
)
def test_bounds_have_one_form(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    option, value = words.split()[-3:-1] if words.endswith("toml") else words.split()[-2:]
    assert f"ringleader: {option}: {value} seconds\n" in said(capsys, *words.split())


def test_one_path_of_a_lab_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "lab", "status", "--hostfile", "--ssh-config")
    assert "--hostfile and --ssh-config: only one path is printed" in text


WRONG = {
    "one empty name among others deletes nothing": ("delete a <> b", "JOB: is empty"),
    "mpirun is given no second program": ("run --mpirun-arg : true", "--mpirun-arg: ':' begins"),
    "nor is that of a Pod": (
        "render mpijob --image a -n 2 --mpirun-arg : true",
        "--mpirun-arg: ':' begins",
    ),
    "an empty baseline is not the working directory": ("report run --against <>", "--against: is empty"),
    "more ranks than any job has": ("run --dry-run --oversubscribe -n 1000001 true", "-n: "),
    "a number of ranks beyond all bounds": (f"run --dry-run --oversubscribe -n {'9' * 20} true", "-n: "),
    "a number that is too large is a number": ("run --timeout 1e40 true", "is too large"),
    "so is a long one": (f"run --timeout {'9' * 40} true", "is too large"),
    "restarts on Kubernetes are those of its Job": (
        "run --on kubernetes --max-restarts 2 --image x true",
        "--backoff-limit",
    ),
    "restarts are a number": ("run --max-restarts some true", "--max-restarts: 'some' is not an integer"),
    "not less than none": ("run --max-restarts -2 true", "--max-restarts: -2 restarts"),
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
    "no time is too short": ("doctor --image --timeout 0", "--timeout"),
    "a list needs a directory": (
        "doctor --sbom /nowhere/at/all",
        "--sbom: there is no directory /nowhere/at",
    ),
    "a variable has a name": ("run -n 1 -x =1 true", "-x: '' is not a name"),
    "no hostfile": ("run --hostfile /nowhere/at/all true", "--hostfile: "),
    "a count of zero is misplaced as any other": (
        "doctor --rdma-count 0",
        "--rdma-count: is for nodes of a cluster",
    ),
}
"""What is wrong → the command line, with ``<>`` for an empty word; what is said."""


@pytest.mark.parametrize("name", WRONG)
def test_what_is_said_of_a_wrong_word(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, message = WRONG[name]
    assert message in said(capsys, *(word.replace("<>", "") for word in words.split()))


def test_faults_of_a_hostfile_are_those_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my hosts"
    file.write_text("h1 slots=2\nh2 slotz=2\n")
    assert f"{file}:2" in said(capsys, "run", "--hostfile", str(file), "true")
