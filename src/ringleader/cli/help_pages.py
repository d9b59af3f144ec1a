"""Help in sections: the options of a cluster apart from the rest."""

from __future__ import annotations

from collections.abc import Iterable

import click

from ringleader.cli.options.kubernetes_options import is_for_clusters


class Sections(click.Command):
    """A command whose help shows the options of a cluster apart."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in two sections."""
        rows = [(one, one.get_help_record(ctx)) for one in self.get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl(_records(row for row in rows if not is_for_clusters(row[0].name or "")))
        with formatter.section("Options on Kubernetes (--on kubernetes, --on pods)"):
            formatter.write_dl(_records(row for row in rows if is_for_clusters(row[0].name or "")))


def _records(
    rows: Iterable[tuple[click.Parameter, tuple[str, str] | None]],
) -> list[tuple[str, str]]:
    return [record for _, record in rows if record is not None]
