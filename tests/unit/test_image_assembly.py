"""Blocks' halves become stages: in which order, in how many calls, and with which ending."""

from dataclasses import replace

from tests.unit.image_world import HEAD, image_of

from ringleader import __version__
from ringleader.images import image_assembly, recipe_parser
from ringleader.images.instructions import Copy, Image, Label, Run, Stage, Step

TORCH = '[torch]\nversion = "2.8.0"\nvariant = "cpu"\n'


def commands(stage: Stage) -> list[str]:
    return [command for step in stage.steps if isinstance(step, Run) for command in step.commands]


def labels(image: Image) -> dict[str, str]:
    return {
        key: one for step in image.stages[-1].steps if isinstance(step, Label) for key, one in step.labels
    }


def first(steps: tuple[Step, ...], kind: type[Step], text: str = "") -> int:
    return next(n for n, step in enumerate(steps) if isinstance(step, kind) and text in repr(step))


def test_wheels_of_the_context_are_there_for_their_call_only() -> None:
    steps = image_of(HEAD + '[torch]\nversion = "2.8.0"\nwheels = "my/wheels"\n').stages[0].steps
    copied = first(steps, Copy, "my/wheels")
    called = first(steps, Run, "torch==2.8.0")
    gone = first(steps, Run, f"rm -rf {image_assembly.WHEELS}")
    assert copied < called < gone
    found = steps[called]
    assert f"--no-index --find-links {image_assembly.WHEELS}/0" in found.commands[0]


def test_labels_say_where_it_comes_from() -> None:
    digest = f"sha256:{'a' * 64}"
    text = (
        f'name = "x"\nabout = "An x."\nbase = "debian:12@{digest}"\nbuild-base = "example.org/d:12"\n{TORCH}'
    )
    image = image_of(text + '[labels]\n"org.opencontainers.image.title" = "7"\n', mirrors=("cn",))
    assert image.stages[0].base == "example.org/d:12"
    recipe = labels(image).pop("ringleader.recipe")
    assert labels(image) == {
        "org.opencontainers.image.title": "7",
        "org.opencontainers.image.description": "An x.",
        "org.opencontainers.image.version": recipe.partition(":")[2][:12],
        "org.opencontainers.image.ref.name": "x",
        "org.opencontainers.image.base.name": "debian:12",
        "org.opencontainers.image.base.digest": digest,
        "ringleader.recipe": recipe,
        "ringleader.version": __version__,
    }


def test_the_order_of_a_recipe_does_not_matter() -> None:
    recipe = recipe_parser.recipe(HEAD + TORCH + "[mpi]\n[ucx]\n", "recipe.toml")
    turned = replace(recipe, blocks=dict(reversed(recipe.blocks.items())))
    assert list(turned.blocks) != list(recipe.blocks)
    assert image_assembly.image(turned) == image_assembly.image(recipe)
