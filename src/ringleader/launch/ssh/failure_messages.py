"""Why a host could not be asked, read from what ssh said, and what to do about it. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from ringleader.errors import Fault

_ABOUT = (
    r"connect to host (?P<host>\S+) port (?P<port>\d+)",
    r"resolve hostname (?P<host>\S+?):",
    r"ost key (?:is known )?for \[(?P<host>[^\]]+)\]:(?P<port>\d+) ",
    r"ost key (?:is known )?for (?P<host>\S+) ",
    r"(?P<user>[^\s@]+)@(?P<host>\S+): Permission denied",
)
"""Words in which ssh says whom it complains about."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One host that did not answer."""

    name: str
    """The host as the user wrote it."""
    exit_code: int
    """ssh's: 255 for ssh's own failures, else the remote command's."""
    stderr: str
    stdout: str = ""
    timed_out: bool = False
    deadline: float = 0.0
    """Seconds it was given."""
    python: str = ""
    """Interpreter that was to answer."""
    pythons_there: str = ""
    """What the host has, asked over the open connection: lines of ``path version``."""
    settings: Mapping[str, tuple[str, ...]]
    """What ssh would use (``ssh -G``)."""
    keys_present: tuple[str, ...] = ()
    """Those of its identity files that exist on this machine."""

    def setting(self, option: str, default: str = "") -> str:
        """First value of an ssh option."""
        return self.settings.get(option, (default,))[0]

    @property
    def jump(self) -> str:
        """The jump host on the way, empty where there is none."""
        return self.setting("proxyjump")

    @property
    def target(self) -> str:
        """Host or address that failed: the jump host where ssh complains about that one."""
        return self._about("host") or self.setting("hostname", self.name)

    @property
    def port(self) -> str:
        """Its port."""
        known = self.setting("port", "22") if self.target == self.setting("hostname", self.name) else "22"
        return self._about("port") or known

    @property
    def user(self) -> str:
        """Who wanted to log in there."""
        return self._about("user") or self.setting("user", "?")

    def _about(self, part: str) -> str:
        # Without a jump host it is always the host itself, which the settings know better: ssh's message
        # may name an alias of the key.
        for pattern in _ABOUT if self.jump else ():
            found = re.search(pattern, self.stderr)
            if found:
                return found.groupdict().get(part) or ""
        return ""

    @property
    def door(self) -> str:
        """The host in the notation of known_hosts."""
        return self.target if self.port == "22" else f"[{self.target}]:{self.port}"


def explain(failure: Failure) -> Fault:
    """Return what is wrong with a host and what its user can do."""
    what, hint = _say(failure)
    return Fault(where=f"host {failure.name}", what=what, hint=hint)


def _say(failure: Failure) -> tuple[str, str]:
    if failure.timed_out:
        return (
            f"no answer within {failure.deadline:g} s, though nothing refused us",
            f"try: ssh {_by_hand(failure)} true; a login script that waits for input or a file system that "
            "hangs does this",
        )
    if failure.exit_code < 0:
        number = signal.Signals(-failure.exit_code).name
        return f"the ssh to it was ended on this machine ({number})", "start the job again"
    if failure.exit_code == 255:
        for pattern, say in _SSH:
            if re.search(pattern, failure.stderr):
                return say(failure)
        return f"ssh failed: {_last_line(failure)}", f"try: ssh {_by_hand(failure)} true"
    return _no_python(failure)


def _changed(failure: Failure) -> tuple[str, str]:
    offending = re.search(r"Offending (?:\w+ )?key in (.+):\d+", failure.stderr)
    file = f"-f {offending[1]} " if offending else ""
    return (
        f"its host key is not the one we know for {failure.door}",
        "either somebody stands in between, or the host was set up anew: ask whoever runs it, then "
        f"ssh-keygen {file}-R '{failure.door}' and take the new key",
    )


def _unknown_key(failure: Failure) -> tuple[str, str]:
    return (
        f"its host key is unknown ({failure.door})",
        f"see its fingerprint with: ssh-keyscan -p {failure.port} {failure.target} 2>/dev/null | "
        "ssh-keygen -lf -; then log in once by hand, or add --accept-new-host-keys to take unknown keys the "
        "first time",
    )


def _refused_login(failure: Failure) -> tuple[str, str]:
    user, door = failure.user, failure.door if failure.jump else "it"
    methods = re.search(r"Permission denied \(([^)]*)\)", failure.stderr)
    takes = f" (it takes: {methods[1]})" if methods else ""
    tried = ", ".join(failure.keys_present)
    if not tried:
        return (
            f"{door} refused to let {user} in{takes}; we have no key file to show",
            "make a key with ssh-keygen, bring it there with ssh-copy-id, or name one with --ssh-identity",
        )
    return (
        f"{door} refused to let {user} in{takes}; keys tried: {tried}",
        f"ssh-copy-id -i {failure.keys_present[0]} -p {failure.port} {user}@{failure.target}, or name "
        "another key with --ssh-identity, another user with USER@HOST or in the ssh configuration; a key "
        "with a passphrase has to be in ssh-agent (ssh-add)",
    )


def _jump(failure: Failure) -> tuple[str, str]:
    return (
        f"there was no way through the jump host {failure.jump}: {_last_line(failure)}",
        f"check that ssh {failure.jump} works, that it reaches {failure.target} port {failure.port} and that "
        "it allows forwarding (AllowTcpForwarding)",
    )


def _no_sshd(failure: Failure) -> tuple[str, str]:
    if failure.jump:
        return _jump(failure)
    return (
        f"what listens on {failure.target} port {failure.port} does not answer as sshd does: "
        f"{_last_line(failure)}",
        "check the port (--ssh-port), whether sshd there is overloaded (MaxStartups) and lets us in",
    )


_SSH = (
    (
        r"Could not resolve hostname",
        lambda f: (
            f"its name {f.target} does not resolve on this machine",
            "check the spelling, add it to /etc/hosts or DNS, or give it a HostName in the ssh configuration",
        ),
    ),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED|[Hh]ost key for .* has changed", _changed),
    (
        r"REVOKED HOST KEY",
        lambda f: (f"its host key is marked as revoked for {f.door}", "ask whoever runs it"),
    ),
    (r"Host key verification failed|host key is known for", _unknown_key),
    (r"stdio forwarding failed|channel \d+: open failed", _jump),
    (
        r"(?i)UNPROTECTED PRIVATE KEY FILE|bad permissions",
        lambda f: (
            "ssh ignored our private key because others can read it",
            f"chmod 600 {f.keys_present[0] if f.keys_present else 'KEY'}",
        ),
    ),
    (r"Permission denied|Too many authentication failures|No more authentication methods", _refused_login),
    (
        r"Connection refused",
        lambda f: (
            f"nothing listens on {f.target} port {f.port} (connection refused)",
            "start sshd there, or give its port with --ssh-port",
        ),
    ),
    (
        r"during banner exchange|kex_exchange_identification|ssh_exchange_identification|Bad packet length",
        _no_sshd,
    ),
    (
        r"timed out|No route to host|Network is unreachable|Host is down",
        lambda f: (
            f"{f.target} port {f.port} cannot be reached: {_last_line(f)}",
            f"check that it is up and that no firewall drops port {f.port}",
        ),
    ),
    (
        r"Unable to negotiate|no matching .* found",
        lambda f: (
            f"our ssh and its sshd have no algorithm in common: {_last_line(f)}",
            "update the older of the two, or allow the algorithm in the ssh configuration",
        ),
    ),
    (
        r"Bad configuration option|Bad owner or permissions|terminating, \d+ bad|ontrolPath.*too long",
        lambda f: (f"ssh cannot use its configuration: {_last_line(f)}", "repair the file it names"),
    ),
)


def _no_python(failure: Failure) -> tuple[str, str]:
    there = "; ".join(line.strip() for line in failure.pythons_there.splitlines() if line.strip())
    found = f"found there: {there}" if there else "no other Python was found there"
    if failure.exit_code == 127:
        kind = "does not exist"
    elif failure.exit_code == 126:
        kind = "may not be started"
    else:
        kind = f"could not answer (exit code {failure.exit_code}: {_last_line(failure)})"
    return (
        f"{failure.python} {kind}; {found}",
        "install Ringleader at the same path on every host, or name their interpreter with --python",
    )


def _last_line(failure: Failure) -> str:
    """The line of an error output that says most: the last one, or the last of a login shell's greeting."""
    lines = [line.strip() for line in failure.stderr.splitlines() if line.strip()]
    lines = lines or [line.strip() for line in failure.stdout.splitlines() if line.strip()]
    # "ssh: connect to host H port P: why" repeats what we say ourselves.
    return (
        re.sub(r"^ssh: connect to host \S+ port \d+: ", "", lines[-1])[:300] if lines else "it said nothing"
    )


def _by_hand(failure: Failure) -> str:
    port = "" if failure.port == "22" else f"-p {failure.port} "
    return f"{port}{failure.name}"
