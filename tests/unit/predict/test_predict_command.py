"""``ringleader predict``: what it prints, and everything that can be wrong at once."""

import json
from pathlib import Path

import pytest
from tests.unit.predict.conftest import Shown, refused

from ringleader.bench import run_file
from ringleader.metrics import Sample
from ringleader.scaling import Context, Point, Run

MODEL = "--model vgg-16 --rate 154 --batch 64"


def kept(directory: Path, **change: object) -> Path:
    """A stored run."""

    def samples(rate: float) -> tuple[Sample, ...]:
        return (Sample(rate=rate, step_seconds=64 / 100, source="progress"),)

    points = (
        Point(hosts=1, slots=1, samples=samples(100)),
        Point(hosts=1, slots=2, samples=samples(180), uncoupled=samples(190)),
        Point(hosts=2, slots=2, samples=samples(340), uncoupled=samples(380)),
    )
    run = Run(name="mine", context=Context(command=("a",)), points=points, repeats=1, warmup=0.2)
    directory.mkdir(exist_ok=True)
    (directory / "run.json").write_text(json.dumps({**run_file.to_document(run), **change}))
    return directory


def test_a_model_by_name(shown: Shown) -> None:
    said = shown(f"{MODEL} --ranks 1,8,64 --until 0.9 --what-if 100gbe-roce")
    assert "from specifications" in said and "Efficiency falls under 90% at" in said
    assert "100gbe-roce" in said and "At 64 ranks most is lost to" in said


def test_json_has_what_the_table_has(shown: Shown, tmp_path: Path) -> None:
    document = json.loads(shown(f"{MODEL} --ranks 8,1 --json --json-file {tmp_path / 'out.json'}"))
    sizes = [(size["ranks"], size["from"]) for size in document["sizes"]]
    assert sizes == [(1, "given"), (8, "from specifications")]
    assert document == json.loads((tmp_path / "out.json").read_text())
    assert document == json.loads(shown(f"{MODEL} --ranks 8,1 --format json"))


def test_a_stored_run_is_fitted_and_not_written_over(shown: Shown, tmp_path: Path) -> None:
    run = kept(tmp_path / "run") / "run.json"
    said = shown(f"{run.parent} --gradients 25e6 --within shared-memory --algorithm engine")
    assert "measured: 85.0%" in said and "Residuals of the measured points" in said
    before = run.read_bytes()
    told = refused(str(run.parent), "--gradients", "1e8", "--json-file", str(run))
    assert f"--json-file: {run} is read by this command" in told and run.read_bytes() == before


def test_a_stored_run_that_lacks_something(tmp_path: Path) -> None:
    for change, words, said in (
        ({}, "", "--gradients"),
        ({"schema": 99}, "--gradients 8", "schema 99"),
        ({"points": []}, "--gradients 8", "no sample of one rank"),
        ({"strong": True}, "--gradients 8", "is strong scaling"),
    ):
        assert said in refused(str(kept(tmp_path / "run", **change)), *words.split())


PROFILE = """\
name = "mine"
batch = 32
unit = "images"
parts = {input = 0.01, forward = 0.1, backward = 0.2, optimizer = 0.02}
layers = [{name = "a", bytes = 4000000, backward_seconds = 0.15}, {bytes = 90000000, backward_seconds = 0.05}]
points = [{ranks = 4, step_seconds = 0.36}]
"""


def test_a_profile_with_layers_and_points(shown: Shown, tmp_path: Path) -> None:
    profile = tmp_path / "job.toml"
    profile.write_text(PROFILE)
    words = f"{profile} --per-host 4"
    said = shown(f"{words} --format markdown")
    assert "mine: 330 ms a step on one rank, 89.6 MiB" in said and "| " in said
    assert "from specifications" in shown(f"{words} --ranks 64 --from-specifications")
    for more, told in (
        ("--ranks 64", "more than 4 times 4"),
        ("--gradients 8 --batch 2", f"--gradients: is in {profile}|--batch: is in {profile}"),
        ("--rate 9", f"--rate: is in {profile}"),
        ("--model llama-3-8b", "how the gradients of"),
    ):
        said = refused(*f"{words} {more}".split())
        assert all(part in said for part in told.split("|")), said


def test_a_measured_curve_takes_the_place_of_a_name(shown: Shown, tmp_path: Path) -> None:
    curve = tmp_path / "curve.txt"
    curve.write_text("# bytes seconds\n8, 2e-5\n1000000 3e-4\n10000000 3e-3\n")
    words = f"{MODEL} --curve {curve}"
    assert "3.33 GB/s" in shown(f"{words} --ranks 64")
    assert "--network: is what --curve measured" in refused(*words.split(), "--network", "10gbe-tcp")
    curve.write_text("8 x\n1 2 3\n" + "no\n" * 998)
    said = refused(*words.split())
    assert ":1:" in said and ":2:" in said
    assert said.count("is not two numbers") == 5 and "995 more lines" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--model lenet --rate -1 --network token-ring --within x --ranks 0,a --per-host 0 --until 7 "
            "--what-if none",
            "lenet|--rate|--batch|token-ring|--within|--ranks|--per-host|--until|none",
        ),
        (f"{MODEL} --ranks 9,12", "fill hosts of 8"),
        ("", "nothing says what is trained"),
        ("nowhere.json", "PROFILE nowhere.json: cannot be read"),
        (f"{MODEL} --curve=", "--curve: cannot be read"),
    ],
)
def test_all_that_is_wrong_at_once(words: str, said: str) -> None:
    told = refused(*words.split())
    assert all(word in told for word in said.split("|")), told


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
        *((text, "") for text in ("", "[]", '{"batch": 1e999}', "[" * 100_000, "9" * 5000)),
    ],
)
def test_every_wrong_field_of_a_profile_is_named(tmp_path: Path, text: str, places: str) -> None:
    file = tmp_path / "job.json"
    file.write_text(text)
    told = refused(str(file))
    assert str(file) in told and all(f"{file}: {place}" in told for place in places.split()), told


def test_a_name_that_no_terminal_should_get(shown: Shown, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    text = '{"name": "a\\u001b[31m", "batch": 1, "step_seconds": 1e-12, "gradient_bytes": 1e15}'
    file.write_text(text)
    assert shown(f"{file} --ranks 1,8,100000").startswith("a?[31m: ")
    file.write_text(text.replace("31m", "31m\\ud800"))
    assert "lone surrogate" in refused(str(file))
