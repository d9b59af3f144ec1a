"""Kubernetes quantities: what they come to, and which no cluster counts."""

from fractions import Fraction

import pytest
from tests.mpijobs import mpijob

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.mpijob.quantities import LARGEST, fault, value


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("+2.", 2),
        (".5", Fraction(1, 2)),
        ("500m", Fraction(1, 2)),
        ("2Gi", 2 * 2**30),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("5E-1", Fraction(1, 2)),
        (3, 3),
        (0.5, Fraction(1, 2)),
        (str(LARGEST), LARGEST),
    ],
)
def test_what_a_quantity_comes_to(text: str, number: Fraction) -> None:
    assert value(text) == number
    assert fault(text) == ""


@pytest.mark.parametrize("text", ["1e400", "1e999999999999", "1" * 4000, str(LARGEST + 1), "8Ei", "-1e400"])
def test_no_cluster_counts_that_far(text: str) -> None:
    assert "is not a finite amount" in fault(text)


@pytest.mark.parametrize("text", ["", "e5", "1_0", "1 Gi", "8GB", "inf", "nan", "1" * 5000, "\u0661", "1\n"])
def test_what_is_no_quantity(text: str) -> None:
    assert "is not a quantity" in fault(text)


@pytest.mark.parametrize(
    ("resources", "volumes"),
    [
        ({"limits": {"cpu": "1e400"}}, []),
        ({"requests": {"nvidia.com/gpu": 10**30}}, []),
        ({"requests": {"memory": float("inf")}}, []),
        ({}, [{"name": "shm", "emptyDir": {"sizeLimit": "1e400"}}]),
    ],
)
def test_a_manifests_templates_are_checked(resources: dict[str, object], volumes: list[object]) -> None:
    with pytest.raises(RequestError) as caught:
        read(mpijob(workers=0, launcher={"resources": resources}, launcher_pod={"volumes": volumes}))
    (found,) = caught.value.faults
    assert "is not a finite amount" in found.what or "is not a quantity" in found.what
