"""Lines that NCCL writes about its transports, as patterns: those of NCCL 2.3 to 2.30.

Each repetition in them is bounded, so that junk in a log costs little.
"""

from __future__ import annotations

import re

PREFIX = re.compile(r"(?:[\w.-]{1,64}:\d{1,10}:\d{1,10} \[-?\w{1,8}\] )(?=(?:\S{1,80}:\d{1,6} )?NCCL )")
"""``host:pid:thread [device] ``, behind which a file's name may stand (warnings)."""
GLUED = re.compile(r"(/GDRDMA|/Shared)(?=\w)")
"""The end of a path with another rank's prefix right behind it."""
MESSAGE = re.compile(r"NCCL (INFO|WARN|TRACE|VERSION|version|ERROR) ?(.*)", re.DOTALL)
CHANNEL = re.compile(
    r"(?:Ring|Channel|Tree|CollNet|P2P) ?(?P<number>\d{1,4})?(?:/\d{1,4})? : "
    r"(?P<source>\d{1,9})(?:\[[0-9a-f]{1,16}\])? -> (?P<target>\d{1,9})(?:\[[0-9a-f]{1,16}\])?"
    r"(?: \[(?P<direction>send|receive)\])? via (?P<path>.{1,200})"
)
"""2.3 to 2.6 ``Ring 00 : 1 -> 0 [send] via``, from 2.7 ``Channel 00 : 1[1a000] -> 0[1b000]``, from 2.12
``Channel 00/0 :``, from 2.18 small numbers in the brackets; 2.3 has no ``[receive]``."""
NETWORK_PATH = re.compile(
    r"(?P<collective>COLL)?NET/(?P<network>[\w .+-]{1,64})/(?P<device>\d{1,4})(?:\((?P<proxy>\d{1,9})\))?"
    r"(?P<gpudirect>/GDRDMA)?(?:\((?:PCI|Default)\))?(?P<shared>/Shared)?"
)
"""``(3)``: through the NIC of rank 3 (PXN, from 2.12); ``(PCI)``: from 2.26."""
DEVICES = re.compile(r"NET/IB ?: Using (.{1,4000}?)(?:\[RO\])?\s*(?:; OOB (\S{1,128})|$)")
"""From 2.4; ``[RO]`` from 2.12; plugins leave the end out."""
ONE_DEVICE = re.compile(r"NET/IB ?: \[\d{1,3}\] ([^\s:]{1,64})(?::uverbs\d{1,4})?:(\d{1,3})/(\w{1,16})")
"""Until 2.3 ``[0] mlx5_0:1/RoCE``; from 2.24 with details ``[0] mlx5_0:uverbs0:1/RoCE provider=Mlx5``."""
DEVICE = re.compile(r"(?<![\w.-])([A-Za-z_][\w.-]{0,63}):(\d{1,3})(?::-?\d{0,6}){0,3}/(IB|RoCE|\w{1,16})")
"""``mlx5_0:1/IB``, from 2.30.7 with rail and plane: ``mlx5_0:1:0:0/IB``; fused ports of 2.20 to 2.23 stand in
braces."""
SOCKETS = re.compile(r"NET/(?:Fast)?Socket ?: Using (.{1,1000})")
INTERFACE = re.compile(r"(?:\[\d{1,3}\])?([\w.@-]{1,64}):[\w.:%\[\]]{1,80}<\d{1,5}>")
USING_NETWORK = re.compile(r"Using network (\S[\w .+-]{0,63})")
"""From 2.6: the verdict of the library itself."""
ASSIGNED_PLUGIN = re.compile(r"Assigned NET plugin (\S[\w .+-]{0,63}?) to comm")
"""From 2.27."""
EXTERNAL_PLUGIN = re.compile(
    r"Successfully loaded external (?:network|net) plugin (\S{1,255})|"
    r"NET/Plugin ?: Loaded net plugin (\S{1,255})"
)
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (\w{1,64})")
VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)")
ALL_RINGS = re.compile(r"Connected all rings, use ring PXN (\d) GDR (\d)")
"""From 2.24: whether GPUDirect RDMA is on for all ranks."""
GPUDIRECT_DEVICE = re.compile(
    r"GPU Direct RDMA (Enabled|Disabled) for HCA \d{1,4} '(\S{1,64}?)'(?: \((.{1,200}?)\))?"
)
"""From 2.13 both words; 2.5 to 2.12 only ``Disabled``."""
GPUDIRECT_GPU = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for GPU ?/?(\S{1,64}).{0,80}?\(distance")
"""2.4 to 2.30.2, under the subsystem NET or GRAPH."""
ERRORS = re.compile(
    r"Got completion from peer|Call to ibv_|async fatal event|GID table changed|incompatible devices|"
    r"Failed to open libibverbs|NCCL_NET_GDR_LEVEL=0 to disable ACS|"
    r"No device found|no socket interface found|"
    r"Connection (?:refused|closed|reset)|connect(?:ion)? timed? ?out|Failed to initialize NET plugin|"
    r"unhandled (?:system|cuda) error",
    re.IGNORECASE,
)
INTRA = (
    (re.compile(r"P2P/|direct pointer|NVLS", re.IGNORECASE), "P2P"),
    (re.compile(r"SHM|direct shared memory", re.IGNORECASE), "SHM"),
)
"""``P2P/direct pointer``, ``P2P/IPC/read``, ``P2P/CUMEM`` (from 2.18), ``P2P/indirect``; ``direct shared
memory`` until 2.12, ``SHM/direct/direct`` or ``SHM/direct/CE`` from 2.13."""
OTHER = re.compile(
    r"NCCL_(?:IB_DISABLE|NET|NET_GDR_LEVEL|P2P_DISABLE|SHM_DISABLE|SOCKET_IFNAME|IB_HCA) set by environment|"
    r"Init COMPLETE|Connected all (?:rings|trees)|NET/Plugin|plugin"
)
RELEVANT = (
    CHANNEL,
    ERRORS,
    VERSION,
    DEVICES,
    ONE_DEVICE,
    SOCKETS,
    USING_NETWORK,
    PROVIDER,
    GPUDIRECT_DEVICE,
    GPUDIRECT_GPU,
    OTHER,
)
"""A message that none of these fits is not kept."""
