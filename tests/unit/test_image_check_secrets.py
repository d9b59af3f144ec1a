"""What an image would give away is refused, and no message repeats it."""

import pytest
from tests.unit.image_world import HEAD
from tests.unit.test_image_dockerfile import toml

from ringleader.finding import Level
from ringleader.images import recipe_parser
from ringleader.images.check import Finding, check, selection_of
from ringleader.images.tables import load


def found(text: str) -> list[Finding]:
    recipe = recipe_parser.recipe(HEAD + text, "recipe.toml")
    return [one for one in check(selection_of(recipe), load()) if one.where == "secret"]


def of_variable(name: str, value: str) -> list[Finding]:
    return found(f"[files.env]\n{name} = {toml(value)}\n")


def of_file(path: str) -> list[Finding]:
    return found(f'[files.copy]\n{toml(path)} = "/srv/"\n')


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "HF_TOKEN",
        "WANDB_API_KEY",
        "OPENAI_APIKEY",
        "PGPASSWORD",
        "DB_PASSWORD_2",
        "SECRET",
        "my_credentials",
        "TLS_PRIVATE_KEY",
    ],
)
def test_a_variable_with_a_secret(name: str) -> None:
    (one,) = of_variable(name, "hunter2")
    assert one.level is Level.FAULT
    assert name in one.what
    assert "hunter2" not in f"{one}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", ""),
        ("HF_TOKEN", "${OTHER}"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/run/secrets/gcp.json"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "many"),
        ("EOS_TOKEN", "</s>"),
        ("MAX_TOKEN", "512"),
        ("KEYBOARD", "de"),
        ("SORT_KEY", "name"),
        ("NCCL_SOCKET_IFNAME", "eth0"),
    ],
)
def test_a_variable_without_one(name: str, value: str) -> None:
    assert of_variable(name, value) == []


@pytest.mark.parametrize(
    "path",
    [
        "id_rsa",
        "keys/id_ed25519",
        ".netrc",
        ".env",
        ".env.production",
        "home/.aws/credentials",
        ".docker/config.json",
        ".ssh",
        ".ssh/",
        "server.key",
        "tls/server.pem",
        "kubeconfig",
        ".kube/config",
        ".git-credentials",
    ],
)
def test_a_file_with_a_secret(path: str) -> None:
    (one,) = of_file(path)
    assert one.level is Level.FAULT
    assert path in one.what
    assert "mount" in one.hint


@pytest.mark.parametrize(
    "path",
    [
        "id_rsa.pub",
        "certs/company-ca.pem",
        "ca.pem",
        "bundle.pem",
        "src/train.py",
        "environment.yml",
        "keys.py",
        "data",
    ],
)
def test_a_file_without_one(path: str) -> None:
    assert of_file(path) == []
