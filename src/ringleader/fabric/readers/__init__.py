"""The facts of a host, read below a root that can be replaced; one module for each area.

Only the standard library, ``ringleader.agents`` and ``fabric.facts``: no program is started, no package
imported.
"""

from __future__ import annotations

from ringleader.fabric.readers.host import read_host

__all__ = ["read_host"]
