"""A driver's own statistics of a network interface, as ``ethtool -S`` prints them; any user may ask.

A virtual function of mlx5 has no port counters of its own in /sys: only these tell what its verbs carried
(``tx_vport_rdma_unicast_bytes``).
"""

from __future__ import annotations

import fcntl
from array import array
from struct import pack, unpack_from

from ringleader.agents.fast_stdlib import socket

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from collections.abc import Callable

SIOCETHTOOL = 0x8946
GET_SET_INFO, GET_STRINGS, GET_STATISTICS = 0x37, 0x1B, 0x1D
"""ETHTOOL_GSSET_INFO, ETHTOOL_GSTRINGS, ETHTOOL_GSTATS (linux/ethtool.h)."""
STATISTICS = 1
"""ETH_SS_STATS."""
NAME_BYTES = 32
MOST = 65536
SPARE = 4096
"""Statistics for which there is room beyond those counted: older kernels write all that there are by then."""


def read(interface: str, ask: Callable[[str, array[int]], bool] | None = None) -> dict[str, int]:
    """Return the statistics by name; none where the driver has none.

    ``ask`` sends a request for an interface, which is answered in place; False where it is refused.
    """
    ask = ask or _ask
    request = array("B", pack("=IIQII", GET_SET_INFO, 0, 1 << STATISTICS, 0, 0))
    if not ask(interface, request):
        return {}
    existing, count = unpack_from("=QI", request, 8)
    if not existing or not 0 < count <= MOST:
        return {}
    names = array("B", pack("=III", GET_STRINGS, STATISTICS, count) + bytes((count + SPARE) * NAME_BYTES))
    values = array("B", pack("=II", GET_STATISTICS, count) + bytes((count + SPARE) * 8))
    if not (ask(interface, names) and ask(interface, values)):
        return {}
    (told,) = unpack_from("=I", names, 8)
    (known,) = unpack_from("=I", values, 4)
    if told != count or known != count:  # a queue was added or taken away between the answers
        return {}
    text = names[12 : 12 + count * NAME_BYTES].tobytes()
    return {
        name: unpack_from("=Q", values, 8 + 8 * index)[0]
        for index in range(count)
        if (name := _name(text[index * NAME_BYTES : (index + 1) * NAME_BYTES]))
    }


def _name(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("ascii", "replace").strip()


def _ask(interface: str, request: array[int]) -> bool:
    name = interface.encode()
    if len(name) >= 16:
        return False
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        # struct ifreq is 40 bytes on every 64-bit Linux: the name, and where the request lies.
        fcntl.ioctl(sock, SIOCETHTOOL, pack("16sQ16x", name, request.buffer_info()[0]))
    except OSError:
        return False
    finally:
        sock.close()
    return True
