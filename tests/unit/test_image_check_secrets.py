"""What an image would give away is refused, and no message repeats it."""

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


def test_variables() -> None:
    for name in (
        *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "HF_TOKEN", "WANDB_API_KEY", "OPENAI_APIKEY"),
        *("PGPASSWORD", "DB_PASSWORD_2", "SECRET", "my_credentials", "TLS_PRIVATE_KEY"),
    ):
        (one,) = of_variable(name, "hunter2")
        assert one.level is Level.FAULT and name in one.what and "hunter2" not in f"{one}"
    for name, value in {
        **{
            "HF_TOKEN": "${OTHER}",
            "GOOGLE_APPLICATION_CREDENTIALS": "/run/secrets/gcp.json",
            "KEYBOARD": "de",
        },
        **{"TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "many", "EOS_TOKEN": "</s>", "MAX_TOKEN": "512"},
        **{"SORT_KEY": "name", "NCCL_SOCKET_IFNAME": "eth0", "WANDB_API_KEY": ""},
    }.items():
        assert of_variable(name, value) == [], name


def test_files() -> None:
    for path in (
        *("id_rsa", "keys/id_ed25519", ".netrc", ".env", ".env.production", "home/.aws/credentials", ".ssh/"),
        *(".docker/config.json", "server.key", "tls/server.pem", "kubeconfig", ".kube/config"),
        *(".git-credentials", ".ssh"),
    ):
        (one,) = of_file(path)
        assert one.level is Level.FAULT and path in one.what and "mount" in one.hint
    for path in ("id_rsa.pub", "certs/company-ca.pem", "ca.pem", "bundle.pem", "environment.yml", "keys.py"):
        assert of_file(path) == [], path
