"""The world that an elastic job would begin with, for a dry run: looked at, nothing is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ringleader.errors import RequestError
from ringleader.job import Job
from ringleader.launch import signals
from ringleader.launch.elastic.host_offers import first_hosts
from ringleader.launch.elastic.host_sources import source_of
from ringleader.launch.elastic.job_context import PreparedWorld, prepared_world
from ringleader.launch.elastic.launch_elastic import elastic_context
from ringleader.launch.elastic.layout import chosen_layout, machines_together, size_of
from ringleader.launch.host_probe.probe import probe
from ringleader.launch.outcome import Listener
from ringleader.rank_placement import slots_of


def first_world(
    job: Job, *, environ: Mapping[str, str], listener: Listener, job_id: str, stop: int | None
) -> PreparedWorld:
    """Return what generation 1 would be started with, were all its hosts ready now.

    Raises what a launch would raise until then, and RequestError where the hosts do not suffice.
    """
    context = elastic_context(job, environ=environ, listener=listener, job_id=job_id)
    options = context.elastic
    try:
        hosts = first_hosts(source_of(context.job, options), stop, warn=listener.warning)
        probed = probe(
            replace(context.job, hosts=hosts),
            environ=environ,
            progress=listener.progress,
            mpi=context.mpi,
            stop=stop,
        )
    except KeyboardInterrupt:
        raise signals.stopped(stop) from None
    try:
        reports = {report.host.name: report for report in probed.facts}
        layout = chosen_layout(
            [(name, slots_of(one, share_gpus=job.share_gpus)) for name, one in reports.items()],
            before=(),
            excluded=(),
            most=options.max_np,
            most_hosts=options.max_hosts,
        )
        layout = machines_together(layout, {name: one.identity for name, one in reports.items()})
        if size_of(layout) < options.min_np or len(layout) < options.min_hosts:
            least = f"{options.min_np} ranks on {options.min_hosts} hosts are needed"
            raise RequestError(
                f"{size_of(layout)} slots on {len(layout)} hosts now; {least}", where="--min-np"
            )
        return prepared_world(context, layout, reports, number=1, ssh=probed.ssh)
    finally:
        if probed.ssh is not None:
            probed.ssh.close()
