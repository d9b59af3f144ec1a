"""What a rank trains on: files read, files that are broken, batches by the number of the step."""

import gzip
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

from ringleader.bench.training.batches import open_batches, read_digits  # noqa: E402
from ringleader.bench.training.data_folder import DataError  # noqa: E402
from ringleader.bench.training.models import build, loss_of  # noqa: E402
from ringleader.bench.training.training_plan import TrainingPlan  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
DIGITS = TrainingPlan(model="mnist", batch=2, image_size=28, num_classes=10)


def idx(array: np.ndarray) -> bytes:
    lengths = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return bytes((0, 0, 8, array.ndim)) + lengths + array.tobytes()


def write_digits(place: Path, count: int = 6) -> Path:
    images = np.arange(count, dtype=np.uint8)[:, None, None] * np.ones((1, 28, 28), np.uint8)
    (place / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (place / "train-labels-idx1-ubyte").write_bytes(idx(np.arange(count, dtype=np.uint8)))
    np.savez(place / "mnist.npz", x_train=images, y_train=np.arange(count))
    return place


@pytest.mark.parametrize("name", ["", "mnist.npz"])
def test_ranks_take_turns_at_mnists_samples(tmp_path, name):
    place = str(write_digits(tmp_path) / name)
    plan = TrainingPlan(model="mnist", batch=2, image_size=28, num_classes=10, data=place)
    own = [[open_batches(plan, rank, 2, CPU).of(step)[1].tolist() for step in (0, 1)] for rank in (0, 1)]
    assert own == [[[0, 1], [4, 5]], [[2, 3], [0, 1]]]
    images, _ = open_batches(plan, 1, 2, CPU).of(0)
    assert images.shape == (2, 1, 28, 28) and images[1, 0, 0, 0].item() == pytest.approx(3 / 255)


def test_broken_files_are_named(tmp_path):
    def zeros(*shape):
        return idx(np.zeros(shape, np.uint8))

    paths = [tmp_path / "i", tmp_path / "l"]
    for images, labels, said in (
        (b"", zeros(1), "is not an idx file"),
        (zeros(2, 28, 28)[:-1], zeros(2), "1567 bytes for"),
        (zeros(2, 20, 20), zeros(2), "MNIST's are bytes"),
        (zeros(2, 28, 28), zeros(3), "is not one label for each of 2"),
        (zeros(0, 28, 28), zeros(0), "is not one label for each of 0"),
    ):
        for path, data in zip(paths, (images, labels), strict=True):
            path.write_bytes(data)
        with pytest.raises(DataError, match=said):
            read_digits(paths)
    file = tmp_path / "x.npz"
    for data in (b"", b"PK\3\4 not a zip"):
        file.write_bytes(data)
        with pytest.raises(DataError, match=r"x\.npz: cannot be read"):
            read_digits([file])
    np.savez(file, a=np.zeros(1))
    with pytest.raises(DataError, match="no x_train and y_train"):
        read_digits([file])


def test_pictures_are_read_ahead_and_a_broken_one_is_named(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, color in (("ant", 0), ("bee", 255)):
        (tmp_path / name).mkdir()
        image.new("RGB", (50, 40), (color,) * 3).save(tmp_path / name / "1.png")
    plan = TrainingPlan(model="resnet18", batch=2, image_size=32, num_classes=2, data=str(tmp_path))
    batches = open_batches(plan, 0, 1, CPU)
    for step in (0, 1, 0):
        pictures, labels = batches.of(step)
        assert pictures.shape == (2, 3, 32, 32) and labels.tolist() == [0, 1]
        assert pictures[0].max() < 0 < pictures[1].min()
    with pytest.raises(DataError, match="2 classes"):
        open_batches(TrainingPlan(**{**vars(plan), "num_classes": 1}), 0, 1, CPU)
    (tmp_path / "bee" / "1.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"1\.png: cannot be read as a picture"):
        open_batches(plan, 0, 1, CPU).of(0)


@pytest.mark.parametrize(
    ("plan", "parameters"),
    [
        (DIGITS, 225_034),
        (TrainingPlan(model="mlp", batch=2, num_classes=10), 6_307_850),
        (TrainingPlan(model="gpt", batch=2, seq_len=8), 3_685_888),
        pytest.param(
            TrainingPlan(model="resnet50", batch=2, image_size=64, num_classes=1000),
            25_557_032,
            marks=pytest.mark.long,
        ),
    ],
)
def test_models_take_their_synthetic_batches(plan, parameters):
    model, again = build(plan), build(plan)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    first, second = (open_batches(plan, rank, 2, CPU).of(0) for rank in (0, 1))
    assert not torch.equal(first[0], second[0]), "each rank has its own samples"
    loss = loss_of(model(first[0]), first[1])
    loss.backward()
    assert loss.isfinite() and all(p.grad is not None for p in model.parameters())
