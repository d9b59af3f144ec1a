"""Which GPU TensorFlow takes where a script chooses none: it takes the memory of every GPU that it sees."""

from collections.abc import Sequence
from typing import Any

import pytest

from ringleader.adapters import basics


@pytest.mark.process  # TensorFlow's import starts some
@pytest.mark.parametrize(
    ("launched", "visible_devices", "chosen_before", "taken"),
    [
        (True, "0,1", None, ["second"]),
        (True, "1", None, None),  # --own-gpu
        (True, "0,1", ["first"], None),  # the script has chosen
        (False, "0,1", None, None),
    ],
)
@pytest.mark.long
def test_init_shows_tensorflow_the_ranks_own_gpu(
    monkeypatch: pytest.MonkeyPatch,
    launched: bool,
    visible_devices: str,
    chosen_before: list[str] | None,
    taken: list[str] | None,
) -> None:
    tf = pytest.importorskip("tensorflow")
    from ringleader.tensorflow.mpi_ops import init

    gpus, shown = ["first", "second"], list[Any]()

    def show(devices: Sequence[str] | str, kind: str) -> None:
        shown.append([devices] if isinstance(devices, str) else list(devices))

    monkeypatch.setattr(basics, "init", lambda comm, process_sets: None)
    monkeypatch.setattr(basics, "local_rank", lambda: 1)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: chosen_before or gpus)
    monkeypatch.setattr(tf.config, "set_visible_devices", show)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible_devices)
    monkeypatch.delenv("RINGLEADER_LAUNCHED", raising=False)
    if launched:
        monkeypatch.setenv("RINGLEADER_LAUNCHED", "1")
    init()
    assert shown == ([] if taken is None else [taken])
