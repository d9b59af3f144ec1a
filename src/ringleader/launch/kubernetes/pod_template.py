"""Text that Kubernetes must not expand. Pure.

In a container's ``command``, ``args`` and values of ``env`` the kubelet replaces ``$(NAME)`` and turns ``$$``
into ``$`` (https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/).
What a user typed shall arrive byte for byte.
"""

from __future__ import annotations

import re

_EXPANDED = re.compile(r"\${2,}|\$(?=\()")


def literal(text: str) -> str:
    """Return what must be written so that ``text`` arrives."""
    return _EXPANDED.sub(lambda match: match.group() * 2, text)
