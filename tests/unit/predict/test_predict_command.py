"""``ringleader predict``: what it prints, and everything that can be wrong at once."""

import json
from pathlib import Path

import pytest

from ringleader.bench import run_file
from ringleader.cli.main import ringleader
from ringleader.errors import RequestError
from ringleader.metrics import Sample
from ringleader.scaling import Context, Point, Run

MODEL = ("--model", "vgg-16", "--rate", "154", "--batch", "64")


def call(*words: str) -> None:
    ringleader.main(args=["predict", *words], standalone_mode=False)


def refused(*words: str) -> str:
    with pytest.raises(RequestError) as error:
        call(*words)
    return str(error.value)


def kept(directory: Path, **change: object) -> Path:
    def samples(rate: float) -> tuple[Sample, ...]:
        return (Sample(rate=rate, step_seconds=64 / 100, source="progress"),)

    run = Run(
        name="mine",
        context=Context(command=("a",)),
        points=(
            Point(hosts=1, slots=1, samples=samples(100)),
            Point(hosts=1, slots=2, samples=samples(180), uncoupled=samples(190)),
            Point(hosts=2, slots=2, samples=samples(340), uncoupled=samples(380)),
        ),
        repeats=1,
        warmup=0.2,
    )
    document = {**run_file.to_document(run), **change}
    directory.mkdir(exist_ok=True)
    (directory / "run.json").write_text(json.dumps(document))
    return directory


def test_a_model_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    call(*MODEL, "--ranks", "1,8,64", "--until", "0.9", "--what-if", "100gbe-roce")
    shown = capsys.readouterr().out
    assert "from specifications" in shown and "Efficiency falls below 90% at" in shown
    assert "100gbe-roce" in shown and "At 64 ranks, the largest loss is" in shown


def test_a_measurement_that_is_read_is_not_written_over(tmp_path: Path) -> None:
    run = kept(tmp_path / "mine") / "run.json"
    before = run.read_bytes()
    told = refused(str(run.parent), "--gradients", "1e8", "--json-file", str(run))
    assert f"--json-file: {run} is read by this command" in told
    assert run.read_bytes() == before


def test_json_has_what_the_table_has(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    call(*MODEL, "--ranks", "8,1", "--json", "--json-file", str(tmp_path / "out.json"))
    document = json.loads(capsys.readouterr().out)
    assert [size["ranks"] for size in document["sizes"]] == [1, 8]
    assert [size["from"] for size in document["sizes"]] == ["given", "from specifications"]
    assert document == json.loads((tmp_path / "out.json").read_text())
    call(*MODEL, "--ranks", "8,1", "--format", "json")
    assert json.loads(capsys.readouterr().out) == document


def test_a_stored_run_is_fitted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--gradients", "25e6", "--within", "shared-memory", "--algorithm", "engine")
    call(str(kept(tmp_path / "run")), *words)
    shown = capsys.readouterr().out
    assert "measured: 85.0%" in shown and "Residuals of the measured points" in shown


@pytest.mark.parametrize(
    ("change", "words", "said"),
    [
        ({}, "", "--gradients"),
        ({"schema": 99}, "--gradients 8", "schema 99"),
        ({"points": []}, "--gradients 8", "no sample of one rank"),
        ({"strong": True}, "--gradients 8", "is strong scaling"),
    ],
)
def test_a_stored_run_that_lacks_something(
    tmp_path: Path, change: dict[str, object], words: str, said: str
) -> None:
    assert said in refused(str(kept(tmp_path / "run", **change)), *words.split())


def test_a_profile_with_layers_and_points(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile = tmp_path / "job.toml"
    profile.write_text(
        'name = "mine"\nbatch = 32\nunit = "images"\n[parts]\ninput = 0.01\nforward = 0.1\nbackward = 0.2\n'
        "optimizer = 0.02\n[[layers]]\nname = 'a'\nbytes = 4000000\nbackward_seconds = 0.15\n[[layers]]\n"
        "bytes = 90000000\nbackward_seconds = 0.05\n[[points]]\nranks = 4\nstep_seconds = 0.36\n"
    )
    call(str(profile), "--per-host", "4", "--format", "markdown")
    shown = capsys.readouterr().out
    assert "mine: 330 ms per step on one rank, 89.6 MiB" in shown and "| " in shown
    assert "more than 4 times 4" in refused(str(profile), "--per-host", "4", "--ranks", "64")
    said = refused(str(profile), "--per-host", "4", "--gradients", "8", "--batch", "2")
    assert f"--gradients: is in {profile}" in said and f"--batch: is in {profile}" in said
    assert f"--rate: is in {profile}" in refused(str(profile), "--per-host", "4", "--rate", "9")
    assert "how the gradients of" in refused(str(profile), "--per-host", "4", "--model", "llama-3-8b")
    call(str(profile), "--per-host", "4", "--ranks", "64", "--from-specifications")
    assert "from specifications" in capsys.readouterr().out


def test_a_measured_curve_takes_the_place_of_a_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    curve = tmp_path / "curve.txt"
    curve.write_text("# bytes seconds\n8, 2e-5\n1000000 3e-4\n10000000 3e-3\n")
    call(*MODEL, "--curve", str(curve), "--ranks", "64")
    assert "3.33 GB/s" in capsys.readouterr().out
    assert "--network: is what --curve measured" in refused(
        *MODEL, "--curve", str(curve), "--network", "10gbe-tcp"
    )
    curve.write_text("8 x\n1 2 3\n")
    said = refused(*MODEL, "--curve", str(curve))
    assert ":1:" in said and ":2:" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--model lenet --rate -1 --network token-ring --within x --ranks 0,a --per-host 0 --until 7 "
            "--what-if none",
            "lenet --rate --batch token-ring --within --ranks --per-host --until none",
        ),
        ("--model vgg-16 --rate 154 --batch 64 --ranks 9,12", "fill hosts of 8"),
        ("", "nothing says what is trained"),
        ("nowhere.json", "PROFILE nowhere.json: cannot be read"),
        ("--model vgg-16 --rate 1 --batch 1 --curve=", "--curve: cannot be read"),
    ],
)
def test_all_that_is_wrong_at_once(words: str, said: str) -> None:
    told = refused(*words.split())
    for word in said.split(" ") if said.startswith("lenet") else [said]:
        assert word in told, word


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (
            '{"batch": 0, "step_seconds": -1, "gradient_bytes": "x", "color": 1, "points": [{}], "unit": 7}',
            "batch step_seconds gradient_bytes color points[0].ranks points[0].rate unit",
        ),
        (
            '{"batch": 1, "parts": {"speed": 1}, "layers": 3, "points": [{"ranks": 3, "per_host": 2, '
            '"rate": 1, "sharing": 2}]}',
            "parts.speed parts.backward layers points[0].per_host points[0].sharing",
        ),
        *((text, "") for text in ("", "[", "[]", "nul", "7", '{"batch": 1e999}', "[" * 100_000, "9" * 5000)),
    ],
)
def test_every_wrong_field_of_a_profile_is_named(tmp_path: Path, text: str, places: str) -> None:
    file = tmp_path / "job.json"
    file.write_text(text)
    told = refused(str(file))
    assert str(file) in told
    for place in places.split():
        assert f"{file}: {place}" in told, place


def test_a_name_that_no_terminal_should_get(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    text = '{"name": "a\\u001b[31m", "batch": 1, "step_seconds": 1e-12, "gradient_bytes": 1e15}'
    file.write_text(text)
    call(str(file), "--ranks", "1,8,100000")
    assert capsys.readouterr().out.startswith("a?[31m: ")
    file.write_text(text.replace("31m", "31m\\ud800"))
    assert "lone surrogate" in refused(str(file))


def test_of_a_file_that_is_no_curve_a_few_lines_are_named(tmp_path: Path) -> None:
    (tmp_path / "curve").write_text("no\n" * 1000)
    said = refused(*MODEL, "--curve", str(tmp_path / "curve"))
    assert said.count("is not two numbers") == 5 and "995 more lines" in said
