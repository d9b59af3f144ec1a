"""Recipes: what TOML becomes, what is refused and where the message says it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.unit.image_world import HEAD, PROFILES

from ringleader.errors import RequestError
from ringleader.images import bundled_recipes, recipe_parser
from ringleader.images.recipe import Recipe


def recipe(text: str, *settings: str, mirrors: tuple[str, ...] = ()) -> Recipe:
    return recipe_parser.recipe(text, "my.toml", settings, mirrors)


def faults(text: str, *settings: str, mirrors: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
    with pytest.raises(RequestError) as caught:
        recipe(text, *settings, mirrors=mirrors)
    return [(fault.where, fault.what, fault.hint) for fault in caught.value.faults]


@pytest.mark.parametrize("name", PROFILES)
def test_a_recipe_as_toml_is_the_same_recipe(name: str) -> None:
    found = recipe_parser.recipe(bundled_recipes.text(name), name)
    assert found.name == name
    assert recipe_parser.recipe("\n".join(recipe_parser.as_toml(found)), name) == found


BAD = {
    "too deep": (f"a = {'[' * 5000}", ("my.toml", "is not TOML: ", "")),
    "no TOML": ("name = \n", ("my.toml:1", "is not TOML: Invalid value", "")),
    "unknown key": ('bse = "debian:12"\n' + HEAD,
     ("my.toml:1 bse", "unknown block or key", "did you mean base? ")),
    "a block of former years": (HEAD + '[tensorflow-source]\nversion = "1.12.0"',
     ("my.toml:3 tensorflow-source", "images of 2017 to 2019 are kept as Dockerfiles", "ringleader image")),
    "unknown argument": (HEAD + '[torch]\nversion = "2"\n\nverson = "1"',
     ("my.toml:6 torch.verson", "unknown key", "did you mean version? ")),
    "missing": (HEAD + "[torch]", ("my.toml:3 torch", "version is missing", 'write version = "2.8.0"')),
    "number for text": (HEAD + "[torch]\nversion = 2.8",
     ("my.toml:4 torch.version", '2.8 is not text in quotes: "…"', 'write "2.8"')),
    "text for true": (HEAD + '[ucx]\ncuda = "yes"', ("my.toml:4 ucx.cuda", "'yes' is not true or false", "")),
    "out of range": (HEAD + "[sshd]\nport = 65536",
     ("my.toml:4 sshd.port", "65536 is not from 1 to 65535", "")),
    "a list with a number": (HEAD + "[packages]\napt = [1]",
     ("my.toml:4 packages.apt", '1 is not text in quotes: "…"', 'write "1"')),
    "none of the choices": (HEAD + '[mpi]\nkind = "mvapich"',
     ("my.toml:4 mpi.kind", "'mvapich' is not one of openmpi, mpich", "")),
    "not a table": (HEAD + "torch = 1",
     ("my.toml:3 torch", "1 is not a table", "write [torch] and its keys below")),
    "a label's name without quotes": (HEAD + '[labels]\na.b = "x"',
     ("my.toml:4 labels.a", "{'b': 'x'} is not text in quotes", "a name with dots needs quotes")),
    "a newline in a variable": (HEAD + '[files.env]\nA = "x\\ny"',
     ("my.toml:4 files.env.A", r"'x\ny' is not one line of text", "such as ")),
    "a path outside": (HEAD + '[files.copy]\n"../x" = "/x"',
     ("my.toml:4 files.copy.../x", "'../x' is not a path below the recipe", "such as ")),
    "no such set": (HEAD + '[mirrors]\nset = "mars"',
     ("my.toml:4 mirrors.set", "'mars' is not a set of mirrors", "Known: cn")),
    "pip's option": (HEAD + '[packages]\npip = ["--index-url=http://x"]',
     ("my.toml:4 packages.pip", "'--index-url=http://x' is not a requirement of pip", "such as ")),
    "no base": ('name = "x"', ("my.toml", "base is missing", 'write base = "ubuntu:24.04"')),
    "a name that is none": ('name = "A b"\nbase = "debian:12"',
     ("my.toml:1 name", "'A b' is not an image's name", "such as ")),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_each_fault_says_where_what_and_what_to_do(case: str) -> None:
    text, (where, what, hint) = BAD[case]
    found = faults(text)
    assert len(found) == 1
    assert found[0][0] == where
    assert found[0][1].startswith(what)
    assert found[0][2].startswith(hint)


@given(some.text(some.sampled_from("[]{}\"'=.,#ab1 \n\\"), max_size=40))
def test_any_text_is_a_recipe_or_refused(text: str) -> None:
    for whole in (text, HEAD + text):
        try:
            recipe(whole)
        except RequestError as error:
            assert all(fault.where.startswith("my.toml") for fault in error.faults)


def test_every_fault_at_once() -> None:
    text = 'name = "X"\nbase = "alpine:3"\nbse = ""\n[torch]\n[sshd]\nport = 0\n[toch]\n'
    wheres = {where for where, _, _ in faults(text, "mpi.kind=x", mirrors=("apt=x",))}
    places = ("1 name", "2 base", "3 bse", "4 torch", "6 sshd.port", "7 toch")
    assert wheres == {*(f"my.toml:{place}" for place in places), "--set mpi.kind", "--mirror apt"}


def test_bases_on_which_no_image_stands() -> None:
    for base, what in (
        ("alpine:3.20", "alpine:3.20 has no apt"),
        ("registry.access.redhat.com/ubi9/ubi:9.4", "registry.access.redhat.com/ubi9/ubi:9.4 has no apt"),
        ("nvidia/cuda:12.8.1-devel-rockylinux9", "nvidia/cuda:12.8.1-devel-rockylinux9 has no apt"),
        ("debian", "debian does not tell what it is"),
        ("registry.example.org/team/base:7", "registry.example.org/team/base:7 does not tell what it is"),
    ):
        ((where, said, hint),) = faults(f'name = "x"\nbase = "{base}"\n')
        assert (where, said) == ("my.toml:2 base", what)
        assert "debian:12" in hint


def test_a_base_that_tells_what_it_is_resembles_nothing_else() -> None:
    ((where, what, _),) = faults('name = "x"\nbase = "debian:12"\nbase-like = "ubuntu:22.04"\n')
    assert (where, what) == ("my.toml:3 base-like", "debian:12 is debian:12, not ubuntu:22.04")
    assert recipe('name = "x"\nbase = "debian:12-slim"\nbase-like = "debian:12"\n').base_like == "debian:12"


def test_a_base_of_ones_own_says_what_it_resembles() -> None:
    assert recipe('name = "x"\nbase = "example.org/b:7"\nbase-like = "debian:12"\n').base_like == "debian:12"
    ((where, what, _),) = faults('name = "x"\nbase = "example.org/b:7"\nbase-like = "alpine:3"\n')
    assert (where, what) == ("my.toml:3 base-like", "'alpine:3' is not a known base with apt")
    ((where, what, _),) = faults('name = "x"\nbase = "alpine:3.20"\nbase-like = "debian:12"\n')
    assert (where, what) == ("my.toml:2 base", "alpine:3.20 has no apt")


def test_urls() -> None:
    for url in ("https://", "https://:80", "https://-", "https://...", "http://a:123456", "ftp://a"):
        found = faults(HEAD + f'[mirrors]\npip = "{url}"\nset = "mars"\n')
        assert [one[0] for one in found] == ["my.toml:4 mirrors.pip", "my.toml:5 mirrors.set"]
    for url in ("http://a", "https://a.b-c.example:8080/x/y+z%20~/", "https://[::1]:80/simple"):
        assert recipe(HEAD + f'[mirrors]\npip = "{url}"\n').mirrors.pip == url


def test_changes() -> None:
    found = recipe(
        HEAD + '[torch]\nversion = "2.8.0"\n',
        "torch.version=2.9.1",
        "base=ubuntu:24.04",
        "mpi.kind=mpich",
        "rdma.user-space=rdma-core",
        "rdma.tools=true",
        "sshd.port=33",
        "packages.apt=gcc, make",
        "files.env.A=b=c",
        "labels.org.example.team=vision",
        "gpus=h100,a100",
        mirrors=("cn", "pip=https://pypi.example.org/simple"),
    )
    assert found.blocks["torch"].version == "2.9.1"
    assert found.base == "ubuntu:24.04"
    assert found.blocks["mpi"].kind == "mpich"
    assert found.blocks["rdma"].tools is True
    assert found.blocks["sshd"].port == 33
    assert found.blocks["packages"].apt == ("gcc", "make")
    assert found.blocks["files"].env == (("A", "b=c"),)
    assert found.labels == (("org.example.team", "vision"),)
    assert found.gpus == ("h100", "a100")
    assert (found.mirrors.set, found.mirrors.pip) == ("cn", "https://pypi.example.org/simple")


def test_changes_that_are_none() -> None:
    for setting, where, what in (
        ("torch", "--set", "'torch' is not KEY=VALUE"),
        ("torch.compute=3", "--set torch.compute", "unknown key"),
        (f"sshd.port={'9' * 5000}", "--set sshd.port", f"'{'9' * 70}"),
        ("ucx.cuda=1", "--set ucx.cuda", "'1' is not true or false"),
        ("torch.version.x=2", "--set torch.version.x", "version has no keys of its own"),
        ("torch..version=2", "--set", "'torch..version=2' is not KEY=VALUE"),
        ("files.env.A=\udcff", "--set files.env.A", r"'\udcff' is not one line of text"),
        ("historical=true", "--set historical", "images of 2017 to 2019 are kept as Dockerfiles"),
    ):
        found = faults(HEAD + '[torch]\nversion = "2.8.0"\n', setting)
        assert any(one[0] == where and one[1].startswith(what) for one in found), found
