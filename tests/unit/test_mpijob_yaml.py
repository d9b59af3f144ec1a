"""YAML as kubectl reads it, with lines; what is not YAML, or an attack, is a fault."""

import pytest

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.yaml_text import documents, text_of


def value(text):
    (document,) = documents(text, "a.yaml")
    return document.value


def faults(text):
    with pytest.raises(RequestError) as caught:
        documents(text, "a.yaml")
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("yes", True), ("On", True), ("y", True), ("TRUE", True), ("off", False), ("No", False), ("n", False),
        ("yEs", "yEs"), ("010", 8), ("0o17", 15), ("0x1F", 31), ("0b101", 5), ("-0b11", -3), ("1_000", 1000),
        ("+12", 12), ("0", 0), ("09", 9.0), ("1:30", "1:30"), ("2020-01-01", "2020-01-01"), ("1e3", 1000.0),
        (".5", 0.5), ("-1.5", -1.5), (".inf", ".inf"), ("1.2.3", "1.2.3"), ("~", None), ("", None),
        ("null", None), ("'yes'", "yes"), ('"010"', "010"), ("!!str 5", "5"), ("4Gi", "4Gi"), ("=", "="),
    ],
)  # fmt: skip
def test_words_are_read_as_kubectl_reads_them(word, expected):
    found = value(f"a: {word}")["a"]
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    ["yes", "n", "010", "1e3", "1:30", "2020-01-01", "~", "", "<<", "=", "0o7", "1_0", " x", "x: y", "#"],
)
def test_text_that_looks_like_something_else_is_quoted(text):
    assert f"a: {text}\n" != text_of([{"a": text}])
    assert value(text_of([{"a": text}])) == {"a": text}


def test_text_of_several_lines_is_a_block():
    assert text_of([{"run": "a\nb\n"}]) == "run: |\n  a\n  b\n"


def test_what_occurs_twice_is_spelt_out():
    shared = {"a": 1}
    assert text_of([{"x": shared, "z": shared}]) == "x:\n  a: 1\nz:\n  a: 1\n"


def test_several_documents_with_their_lines():
    first, second = documents("---\n# nothing\n---\na:\n  - b: 1\n---\n{c: 2}\n", "a.yaml")
    assert (first.value, second.value) == ({"a": [{"b": 1}]}, {"c": 2})
    assert first.places.lines[("a", 0, "b")] == 5
    assert second.places.lines[("c",)] == 7


def test_merge_keys_and_anchors():
    text = "base: &base {a: 1, b: 2}\none:\n  <<: *base\n  b: 3\ntwo:\n  <<: [{a: 9}, *base]\n"
    assert value(text) == {"base": {"a": 1, "b": 2}, "one": {"a": 1, "b": 3}, "two": {"a": 9, "b": 2}}


def test_json_is_yaml():
    assert value('{"a": [true, null, 1.5, "x"]}') == {"a": [True, None, 1.5, "x"]}


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("a: [1, 2\nb: 3", "a.yaml:2", "is not YAML"),
        ("\ta: 1", "a.yaml:1", "is not YAML"),
        ("a: 1\n b: 2", "a.yaml:2", "is not YAML"),
        ("a: 1\nb: 2\na: 3", "a.yaml:3", "the key a is given twice"),
        ("a: *nothing", "a.yaml:1", "is not YAML: found undefined alias"),
        ("a: &a [*a]", "a.yaml:1", "an alias that holds itself"),
        ("a: !!python/object/apply:os.system [x]", "a.yaml:1", ""),
        ("a: !!bool maybe", "a.yaml:1", "'maybe' cannot be read as"),
        ("a: !!int x", "a.yaml:1", "'x' cannot be read as"),
        ("a: !custom x", "a.yaml:1", "'x' cannot be read as !custom"),
        ("? [a]\n: b", "a.yaml:1", "a key must be text"),
        ("<<: 5", "a.yaml:1", "<< needs a map"),
        ("\x00", "a.yaml", "is not YAML"),
        ("[" * 200_000, "a.yaml:1", "nest"),  # by us, or by libyaml: PyYAML from 6.0.4 on has a limit, too
    ],
)
def test_what_is_not_yaml(text, where, words):
    if "python/object" in text:
        assert value(text) == {"a": ["x"]}  # a list stays a list: tags make nothing
        return
    (fault,) = faults(text)
    assert fault.startswith(where) and words in fault


def test_aliases_that_multiply_are_stopped():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert faults("\n".join(lines)) == ["a.yaml:1: more than 200000 values"]
