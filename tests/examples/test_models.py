"""The nets are the published ones: numbers of parameters, shapes, and gradients for every parameter."""

import pytest
import torch

from models import MODELS
from models.inception import InceptionV3

pytestmark = pytest.mark.torch

PUBLISHED = {
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg16": 138_357_544,
    "inception3": 27_161_264,
}


def parameters(model: torch.nn.Module) -> int:
    """Number of trainable numbers."""
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_parameters_and_scores_are_the_published_ones(name: str) -> None:
    architecture = MODELS[name]
    with torch.device("meta"):  # shapes without memory
        model = architecture.build(1000)
        assert parameters(model) == PUBLISHED[name]
        images = torch.empty(2, 3, architecture.image_size, architecture.image_size)
        assert model.eval()(images).shape == (2, 1000)
        if name == "inception3":
            assert parameters(InceptionV3(1000, auxiliary_head=False)) == 23_834_568


@pytest.mark.parametrize(("stage", "shape"), [("stem", (2, 192, 35, 35)), ("to_17", (2, 768, 17, 17))])
def test_inception_stages_have_the_papers_sizes(stage: str, shape: tuple[int, ...]) -> None:
    with torch.device("meta"):
        model = InceptionV3().eval()
        x = model.stem(torch.empty(2, 3, 299, 299))
        assert (x if stage == "stem" else model.to_17(x)).shape == shape


def test_resnet_is_version_1_5() -> None:
    """The 3x3 convolution of a bottleneck shrinks the picture, not the 1x1 before it."""
    with torch.device("meta"):
        block = MODELS["resnet50"].build(1000).blocks[3]
    assert [module.stride for module in block.residual if isinstance(module, torch.nn.Conv2d)] == [
        (1, 1), (2, 2), (1, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["resnet18", "resnet50", pytest.param("inception3", marks=pytest.mark.long)])
def test_every_parameter_learns_at_the_smallest_size(name: str) -> None:
    architecture = MODELS[name]
    torch.manual_seed(0)
    model = architecture.build(5)
    scores = model(torch.randn(2, 3, architecture.smallest, architecture.smallest))
    for each in scores if isinstance(scores, tuple) else (scores,):
        assert each.shape == (2, 5)
        each.square().sum().backward(retain_graph=True)
    missing = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not missing
