"""The options of ``ringleader doctor``, as they were written."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringleader.cli.json_output import JSON_OPTIONS, JsonOptions
from ringleader.cli.options.option_checks import FiniteRange
from ringleader.cli.typed_command import Option


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The options, as they were written."""

    image: bool = False
    sbom: str | None = None
    timeout: float = 300
    json: JsonOptions = field(default_factory=JsonOptions)


DOCTOR_OPTIONS: tuple[Option, ...] = (
    Option(
        ["--image"],
        is_flag=True,
        help="Check the image that this container was made of, or this machine.",
    ),
    Option(
        ["--sbom"],
        metavar="FILE",
        help="Write the list of installed packages, CycloneDX JSON; - prints it. Alone it starts nothing.",
    ),
    Option(
        ["--timeout"],
        type=FiniteRange(min=0, min_open=True),
        default=300,
        show_default=True,
        metavar="SECONDS",
        help="What all checks may take together.",
    ),
    *JSON_OPTIONS,
)
