"""How each MPI is driven: ONE table of what differs, and small functions that read it. Pure.

Every ``mpirun`` starts the same thing, the rank agent. What goes through it is only how many agents on which
hosts; the user's command never does.

Sources: Open MPI 4 reads ``OMPI_MCA_*`` for launching, Open MPI 5 reads ``PRTE_MCA_*`` and ignores the
former; MPICH's Hydra wants ``HYDRA_LAUNCHER_EXTRA_ARGS`` (the spelling without ``ER`` is ignored), Intel's
Hydra has ``I_MPI_HYDRA_*``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import PurePosixPath

from ringleader.plan import batch_system
from ringleader.plan.job import Family, Job, Mpi
from ringleader.plan.rank_placement import Plan
from ringleader.render.hostfile import hostfile_text, in_turns
from ringleader.value_class import dataclass

SECRETS = ("RINGLEADER_CONTROL", "RINGLEADER_TOKEN", "RINGLEADER_JOB_DIR")
"""Variables that the agents need; they travel in environments, never in an argument that ``ps`` shows."""

OUTER_MPI = ("OMPI_", "PRTE_", "PMIX_", "PMI_", "MPI_LOCAL", "HYDRA_", "HYDI_", "MPIEXEC_")
"""Beginnings of variables that an outer mpirun or a user's habit left: they would steer ours."""

KEPT = ("OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_coll", "OMPI_MCA_osc", "OMPI_MCA_mpi_")
"""Exceptions: settings of the user's for the ranks' MPI."""

LOOPBACK = "lo"

TCP_BY_MESSAGES = {"OMPI_MCA_btl_tcp_flags": "313"}
"""Open MPI over TCP: send, never put (send, inplace, need-ack, need-csum, hetero-rdma).

By default the answers that let a peer begin to send queue behind a whole long message of this rank's, on
the same connection. So two ranks that exchange long messages take turns, at half of the line's rate. Messages
that go in fragments leave the answers a gap (measured: 1 Gbit/s, 8 MiB each way, 132 ms against 67)."""


WHOLE_NAMES = "keep_fqdn_hostnames"
"""Open MPI's parameter that keeps host names whole. By default it cuts them at the first dot: version 4 calls
ssh with the short name, which may not resolve (Pods), and for version 5 ``a.x`` and ``a.y`` are one host."""


@dataclass(frozen=True, kw_only=True)
class MpiOptions:
    """What differs between MPIs. ``{…}`` stands for a value of ``MpirunCommand``'s context; see ``_fill``."""

    arguments: tuple[str, ...]
    """Arguments before the agent's command."""
    in_turns: tuple[str, ...] = ()
    """Further arguments where the plan numbers ranks node by node."""
    ssh_arguments: tuple[str, ...] = ()
    """Further arguments where hosts are reached over ssh."""
    interface: tuple[str, ...] = ()
    """Further arguments where the user named a network interface."""
    export: Callable[[tuple[str, ...]], tuple[str, ...]]
    """Arguments that carry variables of these names to every agent, values unseen."""
    environment: Mapping[str, str]
    """Variables for mpirun."""
    ssh: Mapping[str, str]
    """Further variables where hosts are reached over ssh."""
    interface_environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables where the user named a network interface."""
    rank_environment: Mapping[str, str]
    """Variables for the ranks; the user's own setting of one wins."""
    names_for: Mapping[str, str] = field(default_factory=dict)
    """Library name that mpi4py asks for → the library's own other name, where they differ."""


def _each(option: str) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    return lambda names: tuple(word for name in names for word in (option, name))


def _list(option: str) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    return lambda names: (option, ",".join(names))


_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def _open_mpi(
    segments: str, environment: Mapping[str, str], ssh: Mapping[str, str], interface: str
) -> MpiOptions:
    """Return what Open MPI 4 and 5 have in common, with their own names of variables.

    ``segments``: of the transport over shared memory. ``interface``: names the daemons' interface.
    """
    backed = (f"btl_{segments}", "osc_sm", "osc_rdma")
    return MpiOptions(
        arguments=("--hostfile", "{hostfile}", "-n", "{np}", "--map-by", "slot", "--bind-to", "none"),
        in_turns=("--rank-by", "node"),
        export=_each("-x"),
        environment={**_ROOT, **environment},
        ssh=ssh,
        interface_environment={interface: "{interface}"},
        rank_environment={
            **{f"OMPI_MCA_{part}_backing_directory": "{backing}" for part in backed},
            "OMPI_MCA_osc": "^ucx",
            **TCP_BY_MESSAGES,
        },
    )


TABLE: dict[Family, MpiOptions] = {
    Family.OPENMPI5: _open_mpi(
        "sm",
        {
            "PRTE_MCA_plm": "ssh",
            f"PRTE_MCA_prte_{WHOLE_NAMES}": "1",
            "PRTE_MCA_prte_tmpdir_base": "{session}",
            "PRTE_MCA_prte_silence_shared_fs": "1",
        },
        # Otherwise hosts would open connections to each other, with neither key nor configuration.
        {"PRTE_MCA_plm_ssh_agent": "{ssh}", "PRTE_MCA_plm_ssh_no_tree_spawn": "1"},
        "PRTE_MCA_prte_if_include",
    ),
    Family.OPENMPI4: _open_mpi(
        "vader",
        {
            "OMPI_MCA_plm": "rsh",
            f"OMPI_MCA_orte_{WHOLE_NAMES}": "1",
            "OMPI_MCA_orte_tmpdir_base": "{session}",
        },
        {"OMPI_MCA_plm_rsh_agent": "{ssh}", "OMPI_MCA_plm_rsh_no_tree_spawn": "1"},
        "OMPI_MCA_oob_tcp_if_include",
    ),
    Family.MPICH: MpiOptions(
        arguments=("-launcher", "ssh", "-rmk", "user", "-f", "{hostfile}", "-n", "{np}", "-bind-to", "none"),
        interface=("-iface", "{first_interface}"),
        export=_list("-genvlist"),
        environment={},
        ssh_arguments=("-localhost", "{here}"),
        ssh={"HYDRA_LAUNCHER_EXEC": "{ssh_program}", "HYDRA_LAUNCHER_EXTRA_ARGS": "{ssh_arguments}"},
        rank_environment={},
        names_for={"libmpi.so.12": "libmpich.so.12"},
    ),
    Family.INTEL: MpiOptions(
        arguments=("-bootstrap", "ssh", "-machinefile", "{hostfile}", "-n", "{np}"),
        interface=("-iface", "{first_interface}"),
        export=_list("-genvlist"),
        environment={
            "I_MPI_ROOT": "{prefix}",
            "I_MPI_HYDRA_RMK": "user",
            "I_MPI_PIN": "0",
            "I_MPI_HYDRA_BRANCH_COUNT": "-1",
        },
        ssh_arguments=("-localhost", "{here}"),
        ssh={
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": "{ssh_program}",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "{ssh_arguments}",
        },
        rank_environment={"I_MPI_ROOT": "{prefix}", "FI_PROVIDER_PATH": "{libdir}", "I_MPI_PIN": "0"},
    ),
}
"""One row for each family."""


@dataclass(frozen=True, kw_only=True)
class MpirunCommand:
    """Everything about starting an MPI: print it, or do it."""

    argv: tuple[str, ...]
    """mpirun and its arguments, the agent's command last."""
    environment: Mapping[str, str]
    """Variables set for mpirun, besides the secret ones; sorted."""
    hostfile: str
    """Text of the file that ``argv`` names."""
    rank_environment: Mapping[str, str]
    """Variables for the ranks, weaker than the user's."""
    links: Mapping[str, str]
    """Library name → file it is to lead to, in a directory on the ranks' library path."""


def mpirun_command(
    *,
    plan: Plan,
    mpi: Mpi,
    job: Job,
    agent: tuple[str, ...],
    hostfile: str,
    session: str,
    backing: str,
    ssh: tuple[str, ...] = (),
    here: str = "",
    exported: tuple[str, ...] = SECRETS,
) -> MpirunCommand:
    """Return how this MPI is to start the plan.

    ``agent``: command of the rank agent. ``hostfile``: path where the hostfile will lie. ``session``:
    directory for the MPI's session directories on every host. ``backing``: directory for shared memory.
    ``ssh``: the ssh command, no word of it with a space; empty where no host is remote. ``here``: our
    address as the remote hosts reach it. ``exported``: names of variables that every agent gets.
    """
    options = TABLE[mpi.family]
    named = [name.strip() for name in (job.network_interface or "").split(",") if name.strip()]
    # An MPI refuses to start over a loopback interface, of which ranks on one machine have no need.
    interfaces = [name for name in named if ssh or name != LOOPBACK]
    context = {
        "hostfile": hostfile,
        "np": str(plan.size),
        "session": session,
        "backing": backing,
        "prefix": mpi.prefix,
        "libdir": str(PurePosixPath(mpi.library).parent) if mpi.library else "",
        "ssh": " ".join(ssh),
        "ssh_program": ssh[0] if ssh else "",
        "ssh_arguments": " ".join(ssh[1:]),
        "here": here,
        "interface": ",".join(interfaces),
        "first_interface": interfaces[0] if interfaces else "",
    }
    argv = (mpi.mpirun, *options.arguments)
    argv += options.in_turns if in_turns(plan) else ()
    argv += options.ssh_arguments if ssh else ()
    argv += options.interface if interfaces else ()
    argv += options.export(exported)
    argv += job.extra_mpirun_args
    environment = dict(options.environment)
    if ssh:
        environment |= options.ssh
    if interfaces:
        environment |= options.interface_environment
    rank_environment = dict(options.rank_environment)
    if mpi.relative.startswith("MVAPICH"):
        # It binds ranks to cores by itself and then refuses several threads; here the agent binds them.
        rank_environment |= dict.fromkeys(("MV2_ENABLE_AFFINITY", "MVP_ENABLE_AFFINITY"), "0")
    # Intel MPI outside the system's directories needs this to find its own libraries.
    own = {"LD_LIBRARY_PATH": context["libdir"]} if mpi.family is Family.INTEL and mpi.library else {}
    return MpirunCommand(
        argv=tuple(_fill(word, context) for word in argv) + agent,
        environment=_filled(environment, context) | own,
        hostfile=hostfile_text(plan, mpi.family),
        rank_environment=_filled(rank_environment, context),
        links=library_links(mpi),
    )


def _fill(word: str, context: Mapping[str, str]) -> str:
    """Replace a word that is wholly ``{name}``; no formatting, so braces in a user's words stay."""
    return context[word[1:-1]] if word[:1] == "{" and word[1:-1] in context else word


def _filled(values: Mapping[str, str], context: Mapping[str, str]) -> dict[str, str]:
    filled = {name: _fill(value, context) for name, value in sorted(values.items())}
    return {name: value for name, value in filled.items() if value}


def library_links(mpi: Mpi) -> dict[str, str]:
    """Return the links mpi4py needs: it asks for one name, and a distribution may use another."""
    options = TABLE[mpi.family]
    own = PurePosixPath(mpi.library).name
    return {asked: mpi.library for asked, other in options.names_for.items() if own == other}


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment without what would make an MPI follow somebody else's directions."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(KEPT) or not name.startswith(batch_system.VARIABLES + OUTER_MPI)
    }


def same_library(loaded: str, planned: str) -> bool:
    """Say whether a library that a rank loaded is the planned one, under whichever of its version names.

    Both are real paths. One directory may hold several MPIs (Debian), so the name up to the first number of
    the version must agree as well.
    """
    one, other = PurePosixPath(loaded), PurePosixPath(planned)
    return one.parent == other.parent and _short(one.name) == _short(other.name)


def _short(name: str) -> tuple[str, str]:
    stem, _, version = name.partition(".so")
    return stem, version.lstrip(".").partition(".")[0]
