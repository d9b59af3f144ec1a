"""The checks can fail: with any feature of the fake taken out, one of those that claim to prove it does."""

from __future__ import annotations

import pytest
from tests.kube.conformance.http import Server
from tests.kube.conformance.suite import CHECKS, put
from tests.kube.fake import FakeCluster, Features, StandInOptions
from tests.kube.fake.access import ADMIN_TOKEN
from tests.kube.fake.features import ALL

from ringleader.kubernetes.mpijob.crd import crd

SHORT = 1.0
"""Seconds until a check gives up waiting for what cannot come."""


@pytest.mark.long
@pytest.mark.parametrize("feature", ALL)
def test_a_missing_feature_is_noticed(feature: str) -> None:
    claiming = [check for check in CHECKS if feature in check.proves]
    assert claiming, f"no check claims to prove {feature}"
    with FakeCluster(
        features=Features().without(feature), stand_in=StandInOptions(kubelet="driven", jobs=False)
    ) as fake:
        fake.create(crd())
        server = Server(url=fake.url, token=ADMIN_TOKEN)
        for check in claiming:
            try:
                put(check, server, fake=fake, patience=SHORT)
            except AssertionError:
                return
    pytest.fail(f"without {feature}, every check that claims to prove it still passes")


def test_checks_claim_features_that_exist() -> None:
    claimed = {feature for check in CHECKS for feature in check.proves}
    assert claimed == set(ALL)
