"""Words of the command line that no command can take: empty names, numbers beyond every bound."""

from __future__ import annotations

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


def test_one_empty_name_among_others_deletes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "JOB: is empty" in said(capsys, "delete", "a", "", "b")


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


@pytest.mark.parametrize("where", [("run",), ("render", "mpijob", "--image", "a", "-n", "2")])
def test_mpirun_is_given_no_second_program(
    where: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--mpirun-arg: ':' begins" in said(capsys, *where, "--mpirun-arg", ":", "true")


def test_an_empty_baseline_is_not_the_working_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--against: is empty" in said(capsys, "report", "run", "--against", "")


@pytest.mark.parametrize("np", ["1000001", "9" * 20])
def test_more_ranks_than_any_job_has_are_refused_at_once(np: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "-n: " in said(capsys, "run", "--dry-run", "--oversubscribe", "-n", np, "true")


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


@pytest.mark.parametrize("text", ["1e40", "9" * 40])
def test_a_number_that_is_too_large_is_a_number(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is too large" in said(capsys, "run", "--timeout", text, "true")


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


def test_a_count_of_zero_is_misplaced_as_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--rdma-count: is for nodes of a cluster" in said(capsys, "doctor", "--rdma-count", "0")
