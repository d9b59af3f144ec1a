import pickle

import pytest

from ringleader.errors import (
    Fault,
    LabError,
    LaunchError,
    OutputError,
    ProbeError,
    RankError,
    ReaderGoneError,
    RefusedError,
    RequestError,
    RingleaderError,
    StoppedError,
)


def test_every_fault_is_in_the_message_with_place_and_hint() -> None:
    error = RequestError(
        [Fault(where="-n", what="0 ranks", hint="ask for 1"), Fault(where="", what="no host")]
    )
    assert str(error) == "-n: 0 ranks\n    → ask for 1\nno host"


@pytest.mark.parametrize(
    ("kind", "code"),
    [(RequestError, 2), (RefusedError, 3), (ProbeError, 3), (LaunchError, 3), (LabError, 3)],
)
def test_exit_codes_follow_from_the_kind(kind: type[RingleaderError], code: int) -> None:
    error = kind("it is so", hint="do this")
    assert error.exit_code == code
    assert error.faults == (Fault(where="", what="it is so", hint="do this"),)


@pytest.mark.parametrize(
    "error",
    [
        RequestError([Fault(where="a", what="b", hint="c"), Fault(where="d", what="e")]),
        ProbeError("gone"),
        RankError(Fault(where="rank 1", what="failed"), exit_code=137),
        StoppedError(15),
        OutputError("no space left"),
        ReaderGoneError("gone"),
    ],
)
def test_errors_survive_pickling(error: RingleaderError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert again.faults == error.faults
    assert again.exit_code == error.exit_code
    assert str(again) == str(error)
