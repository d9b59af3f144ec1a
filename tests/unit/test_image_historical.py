"""Historical images: files that are kept as they are, pages that say what is in them, and their self-test."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.image_world import HEAD, ROOT, docker_commands, image_of, shellcheck

from ringleader.cli.image.recipe_options import UNCHANGED, RecipeOptions, opened_image
from ringleader.errors import RequestError
from ringleader.images import apptainer, dockerfile
from ringleader.images.bundled_recipes import HISTORICAL, SELFTEST, historical

PAGES = ROOT / "docs/reference"
NOTHING = "–"
every_image = pytest.mark.parametrize("name", HISTORICAL)


def rows(page: str) -> list[list[str]]:
    table = re.split(r"\n\n", page[page.rindex("\n| --" if "\n| --" in page else "\n|--") :])[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def quoted(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def stages(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    stage = ""
    for line in re.sub(r" *\\\n *", " ", dockerfile.text(historical(name).image)).splitlines():
        if line.startswith("FROM "):
            stage = line.split(" AS ")[1] if " AS " in line else "image"
            found[stage] = []
        if stage and not line.startswith("#"):
            found[stage].append(line)
    return found


@every_image
def test_each_quoted_part_stands_in_its_stage_and_each_finding_is_one_of_the_check(name: str) -> None:
    table = rows((PAGES / "historical" / f"{name}.md").read_text(encoding="utf-8"))
    assert len(table) >= 15
    lines = stages(name)
    said = {text for one in historical(name).findings for text in (one.what, one.hint)}
    for what, stage, ours, check in table:
        assert quoted(ours), what
        for part in quoted(ours):
            assert any(part in line for line in lines[stage]), (what, stage, part)
        assert check == NOTHING or quoted(check)
        assert quoted(check) <= said, what


def test_all_that_cannot_be_had_and_all_that_is_lacking_is_listed() -> None:
    page = (PAGES / "historical-images.md").read_text(encoding="utf-8")
    table = rows(page)
    head = re.findall(r"^\| finding \|(.*)\|$", page, re.M)[0].split("|")
    for column, name in enumerate((one.strip() for one in head), 1):
        found = {f"{one.level}: {one.where}" for one in historical(name).findings}
        assert {row[0] for row in table if row[column] == "yes"} == {
            one for one in found if one.startswith(("gone", "exemption"))
        }
        assert not [one for one in found if one.startswith(("fault", "warning"))]


@every_image
def test_it_is_opened_as_it_is_with_its_own_self_test(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    image, contents = opened_image(name, UNCHANGED, checked=True)
    assert dockerfile.text(image).startswith(f"# Made by `ringleader image render` from the recipe {name}")
    assert apptainer.text(image).count("Bootstrap: docker") == len(stages(name))
    assert (image.context, contents(), image.test) == ((), {}, (SELFTEST,))
    assert f"{name}: gone: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("opening", "told"),
    [
        (lambda name: opened_image(name, RecipeOptions(set=("a=b",)), checked=True), "no option changes"),
        (lambda name: opened_image(name, RecipeOptions(base="debian:12"), checked=True), "> Dockerfile"),
        (lambda name: opened_image(name, UNCHANGED, checked=True, machine="aarch64"), "linux/amd64 only"),
        (lambda name: image_of(HEAD + "historical = true\n"), "kept as Dockerfiles"),
    ],
)  # fmt: skip
def test_what_it_cannot_be_is_refused(opening, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        opening("horovod-0.11")


PROGRAMS = {
    "ldconfig": "echo libcuda.so.1",
    "sshd": "exec sleep 60",
    "ssh": "echo logged in",
    "ssh-keyscan": "echo 127.0.0.1 ssh-rsa AAAA",
    "mpirun": "echo one; echo two",
    "gcc-4.9": "echo 4.9.3",
}
MODULES = {"tensorflow": "1.12.0", "torch": "1.3.0+cu92", "torchvision": "0.4.1+cu92", "mxnet": "1.4.1"}


def written(name: str, target: Path) -> Path:
    """The script, as the Dockerfile writes it, for this Python."""
    (step,) = (
        one.value[0]
        for one in docker_commands(dockerfile.text(historical(name).image))
        if one.cmd.upper() == "RUN" and f"> {SELFTEST}" in one.value[0]
    )
    place = shlex.quote(str(target))
    subprocess.run(["/bin/sh", "-c", step.replace(SELFTEST, place)], check=True, timeout=60)
    python = target.with_name("python")  # a word without spaces, wherever the clone lies
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    target.write_text(re.sub(r"/usr/bin/python[0-9.]+", str(python), target.read_text(encoding="utf-8")))
    return target


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """Programs and modules of such an image, as far as the script sees them."""
    place = tmp_path / "stand-ins"
    place.mkdir()
    for name, body in PROGRAMS.items():
        (place / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (place / name).chmod(0o755)
    for name, version in MODULES.items():
        (place / f"{name}.py").write_text(f"__version__ = {version!r}\n", encoding="utf-8")
    return place


@pytest.mark.process
@pytest.mark.parametrize(
    ("changed", "failed"),
    [
        ({}, ()),
        ({"mpirun": "#!/bin/sh\necho no slots; exit 1\n"}, ("mpirun",)),
        ({"torch.py": "__version__ = '1.2.0'\n"}, ("torch 1.3.0",)),
        ({"ssh": "#!/bin/sh\nexit 255\n", "sleep": "#!/bin/sh\nexit 0\n",
          "sshd": "#!/bin/sh\necho no hostkeys >&2; exec tail -f /dev/null\n"}, ("sshd on port ",)),
    ],
)  # fmt: skip
def test_the_self_test_names_what_is_wrong_and_tries_the_rest(tmp_path, stand_ins, changed, failed):
    script = written("all-frameworks-2019", tmp_path / "selftest")
    for name, body in changed.items():
        (stand_ins / name).write_text(body, encoding="utf-8")
        (stand_ins / name).chmod(0o755)
    before = set(tmp_path.iterdir())
    env = {"PATH": f"{stand_ins}:{os.defpath}", "PYTHONPATH": str(stand_ins), "TMPDIR": str(tmp_path)}
    argv = ["/bin/sh", str(script)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout.splitlines()
    assert done.returncode == bool(failed), done
    wrong = [line.removeprefix("FAILED  ") for line in said if line.startswith("FAILED")]
    assert len(wrong) == len(failed) and all(map(str.startswith, wrong, failed)), said
    good = {"gcc: 4.9.3", "tensorflow 1.12.0: 1.12.0", "torch 1.3.0: 1.3.0+cu92", "mpirun: two"}
    assert {f"ok      {one}" for one in good if not one.startswith(failed or ("-",))} <= set(said)
    assert set(tmp_path.iterdir()) == before, "nothing is left behind"


@pytest.mark.process
def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    assert shellcheck(*(written(name, tmp_path / name) for name in HISTORICAL)) == ""
