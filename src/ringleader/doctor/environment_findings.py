"""Facts become findings: who runs, what is left in the image, and whether two ranks start. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ringleader.doctor.image_facts import Facts
from ringleader.finding import Finding, fault, passed, skipped, warning

USUAL_INDEXES = re.compile(r"https://(pypi\.org/simple|download\.pytorch\.org/|pypi\.nvidia\.com)")
USUAL_HOSTS = re.compile(
    r"(.*\.)?(debian\.org|ubuntu\.com|nvidia\.com|mellanox\.com|launchpadcontent\.net|amazonaws\.com)$"
)
"""From which images are fetched without any mirror."""
NO_ACCOUNT = "run as the image's own account, or give the number one in /etc/passwd"
AT_LEAST_LOCKED = 1 << 30
"""Bytes that RDMA needs to lock for a job worth the name: 1 GiB."""


def place(facts: Facts) -> Iterator[Finding]:
    """Yield the findings about the place, then those about sshd and the ranks."""
    yield from _account(facts)
    yield _memlock(facts)
    yield _keys(facts)
    yield _pip(facts)
    yield _apt(facts)
    yield from _sshd(facts)
    yield _ranks(facts)
    yield from _training(facts)


def _historical(facts: Facts) -> bool:
    return bool(facts.manifest and facts.manifest.get("historical"))


def _account(facts: Facts) -> Iterator[Finding]:
    who = facts.account
    if not who.name:
        hint = "run as the image's own account: ssh and sshd refuse a number without one"
        yield warning("user", f"the number {who.uid} has no account", hint=hint)
    elif who.uid == 0 and facts.manifest is not None and not _historical(facts):
        if (facts.block("account") or {}).get("name", "") == "root":
            yield passed("user", "root, as the recipe wants it")
        else:
            yield warning("user", "root", hint="without --user the image's own account runs")
    else:
        yield passed("user", f"{who.name} ({who.uid})")
    if who.home_error:
        hint = "mount a writable one, or set HOME: caches and keys go there"
        yield warning("home", f"{who.home or 'HOME'} cannot be written: {who.home_error}", hint=hint)
    else:
        yield passed("home", f"{who.home} can be written")


def _memlock(facts: Facts) -> Finding:
    soft = facts.account.memlock_soft
    limit = "unlimited" if soft < 0 else f"{soft / 2**20:.0f} MiB"
    in_rank = facts.two_ranks.ranks.get("memlock")
    where = (
        f"; in a rank over ssh {'unlimited' if in_rank == -1 else f'{in_rank / 2**20:.0f} MiB'}"
        if (isinstance(in_rank, int) and in_rank != soft and facts.two_ranks.over == "ssh")
        else ""
    )
    what = f"{limit} may be locked{where}"
    least = min((one for one in (soft, in_rank) if isinstance(one, int) and one >= 0), default=-1)
    if facts.block("rdma") is not None and 0 <= least < AT_LEAST_LOCKED:
        hint = "for RDMA start the container with memlock unlimited (--ulimit memlock=-1) or IPC_LOCK as root"
        return warning("memlock", what, hint=hint)
    return passed("memlock", what)


def _keys(facts: Facts) -> Finding:
    inside = [key.path for key in facts.keys if not key.mounted]
    if not inside:
        mounted = "; those that are mounted are none of the image's" if facts.keys else ""
        return passed("keys", f"no private key is part of it{mounted}")
    what = f"private keys: {', '.join(inside)}"
    if facts.manifest is None:
        return warning(
            "keys", what, hint="fine on a machine; in an image everybody who has it would have them"
        )
    if _historical(facts) and (facts.block("sshd") or {}).get("keys") == "in-image":
        return warning(
            "keys", f"{what}, as images had it then", hint="give this image to nobody you do not trust"
        )
    return fault("keys", what, hint="remove them in the step that makes them; mount keys at the start")


def _pip(facts: Facts) -> Finding:
    other = [one for one in facts.pip_sources if not USUAL_INDEXES.search(one)]
    if not other:
        return passed("pip", "asks the usual index")
    hint = "a mirror is left in the image; set mirrors.keep = true where it is wanted"
    return _elsewhere(facts, fault("pip", f"asks other places: {'; '.join(other)}", hint=hint))


def _apt(facts: Facts) -> Finding:
    if not facts.apt_hosts:
        return skipped("apt", "no sources are configured")
    other = [host for host in facts.apt_hosts if not USUAL_HOSTS.match(host)]
    if not other:
        return passed("apt", f"asks the usual places: {', '.join(facts.apt_hosts)}")
    # The base may have brought them: an image cannot tell, so this is no fault.
    hint = "left by a mirror, or by the base image"
    return _elsewhere(facts, warning("apt", f"asks other places: {', '.join(other)}", hint=hint))


def _elsewhere(facts: Facts, found: Finding) -> Finding:
    """Return what was found as it counts: nothing on a machine, right where the recipe keeps its mirrors."""
    if facts.manifest is None:
        return skipped(found.where, found.what)
    if facts.manifest.get("mirrors_kept"):
        return passed(found.where, f"{found.what}, as the recipe wants it")
    return found


def _sshd(facts: Facts) -> Iterator[Finding]:
    found, claimed = facts.two_ranks, facts.block("sshd") is not None
    worse = fault if claimed else warning
    if not found.sshd:
        yield (
            fault("sshd", "the image claims it, and it is not installed", hint="build the image again")
            if (claimed)
            else skipped("sshd", "it is not installed; ranks start on one host only")
        )
        return
    what = f"{found.version or 'OpenSSH'} ({found.sshd})"
    configured = f" with {found.config}" if found.config else ""
    if found.start_error:
        yield worse(
            "sshd",
            f"{what} does not start{configured}: {found.start_error}",
            hint=_start_hint(found.start_error),
        )
        return
    yield passed("sshd", f"{what} starts{configured}")
    if found.login_error:
        account = (facts.block("account") or {}).get("name", "")
        if account not in ("", facts.account.name):
            what = f"{facts.account.name} is not let in, only {account} is: {found.login_error}"
            yield warning("login", what, hint=f"run the check as {account}")
        else:
            yield worse(
                "login", f"nobody can log in: {found.login_error}", hint=_login_hint(found.login_error)
            )
    else:
        yield passed("login", "with a throw-away key, as this account")


def _start_hint(error: str) -> str:
    if "privilege separation" in error:
        return "mkdir -p /run/sshd when the container starts; openssh-server makes the account sshd"
    if "No user exists" in error:
        return NO_ACCOUNT
    return ""


def _login_hint(error: str) -> str:
    if "locked" in error:
        return "usermod -p '*' ACCOUNT: no password fits, and the account is not locked"
    if "No user exists" in error:
        return NO_ACCOUNT
    return ""


def _ranks(facts: Facts) -> Finding:
    found = facts.two_ranks
    if not facts.mpi.family:
        return skipped("ranks", "there is no MPI to start them")
    where = "from a session of that sshd" if found.over == "ssh" else "locally, without sshd"
    if found.ranks_error:
        return fault(
            "ranks",
            f"2 ranks did not run {where}: {found.ranks_error}",
            hint="ringleader run -n 2 shows more",
        )
    if found.ranks.get("size") != 2:
        return fault("ranks", f"{found.ranks.get('size')} ranks ran instead of 2 {where}")
    through = found.ranks.get("through", "")
    return passed("ranks", f"2 ranks, started {where}, agree on a sum through {through}")


def _training(facts: Facts) -> Iterator[Finding]:
    for framework, error in facts.two_ranks.training.items():
        where = f"training {framework}"
        if not error:
            yield passed(where, "2 ranks train one step and have equal weights")
            continue
        step = f"ringleader run -n 2 python -m ringleader.doctor.training_step {framework}"
        yield fault(where, f"2 ranks did not train one step: {error}", hint=f"{step} shows more")
