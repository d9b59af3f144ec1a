"""The page on predictions: its sentences are what its tables and the command say. Samples: test_docs."""

import json
import math
import re
import shlex

import pytest
from tests.docs.pages import blocks, ringleader, text_of

NAME = "docs/concepts/prediction.md"
PAGE = text_of(NAME)


def test_from_ipoib_to_rdma_each_change_alone(capsys: pytest.CaptureFixture[str]) -> None:
    words = next(shlex.split(body[2:])[1:] for _, body in blocks(NAME) if "--algorithm servers" in body)
    rows = re.findall(r"^\| `(edr-\w+)` \| ([\d.]+)% \| ([\d.]+)% \|$", PAGE, re.MULTILINE)
    assert [name for name, *_ in rows] == ["edr-ipoib", "edr-infiniband"]
    for network, *shown in rows:
        for algorithm, efficiency in zip(("servers", "hierarchical"), shown, strict=True):
            other = (*words, "--network", network, "--algorithm", algorithm, "--json")
            size = json.loads(ringleader(list(other), capsys)[1])["sizes"][0]
            assert f"{100 * size['efficiency']:.1f}" == efficiency


def test_sentences_on_steps_in_a_lab_follow_from_the_tables() -> None:
    row = re.compile(r"^(\w+) +(\dx\d) +([\d.]+) ms .* ([\d.]+) ms +([-+][\d.]+)%$", re.MULTILINE)
    tables = [found for _, body in blocks(NAME) if (found := row.findall(body))]
    stated = re.findall(r"root mean square(?: of the errors)? is \*\*([\d.]+)%\*\*", PAGE)
    assert len(tables) == len(stated) == 4
    for table, mean in zip(tables, stated, strict=True):
        errors = [float(predicted) / float(measured) - 1 for _, _, measured, predicted, _ in table]
        told = [float(error) / 100 for *_, error in table]
        assert errors == pytest.approx(told, abs=0.0021)  # of times that were rounded
        assert 100 * math.sqrt(sum(e * e for e in errors) / len(errors)) == pytest.approx(
            float(mean), abs=0.11
        )
    longer = {
        rate: 100 * (float(measured) / float(predicted) - 1)
        for rate, size, measured, predicted, _ in tables[0]
        if size == "4x2"
    }
    slow = f"{longer['200mbit']:.0f} to {longer['1gbit']:.0f}% longer than predicted"
    assert (
        f"on the slow links steps take {slow}, at 8 Gbit/s they are {-longer['8gbit']:.0f}% shorter" in PAGE
    )
