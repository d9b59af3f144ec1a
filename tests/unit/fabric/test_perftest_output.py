"""perftest's and ucx_perftest's output, in the formats of several versions: the unit is the header's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringleader.fabric.active.perftest_output import (
    perftest_bandwidth,
    perftest_latency,
    ucx_bandwidth,
    ucx_latency,
)

BOX = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : ON
 TX depth        : 128
 CQ Moderation   : 100
 Mtu             : 4096[B]
 Link type       : IB
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0x0d QPN 0x0127 PSN 0x6b1f3e RKey 0x17ff2c VAddr 0x007f3f1c5d8000
 remote address: LID 0x0e QPN 0x0127 PSN 0x2b1a1f RKey 0x17ff2c VAddr 0x007f7f3a1d0000
---------------------------------------------------------------------------------------
"""
END = "---------------------------------------------------------------------------------------\n"
GIGABITS = (
    BOX
    + " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    + " 65536      5000             394.12             393.97             0.751438\n"
    + " 8388608    1000             395.30             395.21             0.005889\n"
    + END
)
MEBIBYTES = (
    BOX
    + " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n"
    + " 65536      5000             11750.43            11749.92\t\t   0.187999\n"
    + END
)
VERSION_4 = MEBIBYTES.replace("MiB/sec", "MB/sec")
FOR_A_TIME = (
    BOX
    + " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    + "Conflicting CPU frequency values detected: 2400.000000 != 3500.000000. CPU Frequency is not max.\n"
    + " 65536      1126312          0.00               98.42              0.187720\n"
    + END
)
CPU_UTIL = (
    BOX
    + " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\t    CPU_Util[%]\n"
    + " 65536      5000             98.50              98.48              0.187837\t 1.95\n"
    + END
)
LATENCY = (
    BOX.replace("RDMA_Write BW", "Send Latency")
    + " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
    "99% percentile[usec]   99.9% percentile[usec] \n"
    + " 2       1000          1.02           4.11         1.06     \t       1.07        \t0.04   \t\t1.18"
    "    \t\t4.11   \n" + END
)
LATENCY_FOR_A_TIME = (
    BOX.replace("RDMA_Write BW", "RDMA_Write Latency")
    + " #bytes        #iterations       t_avg[usec]    tps average\n"
    + " 2             893312          1.11           450112.35\n"
    + END
)
UCX_HEAD = """\
[1700000000.123456] [h1:4711 :0]        perftest.c:800  UCX  WARN  CPU affinity is not set (bound to 2 cpus).
+--------------+--------------+------------------------------+---------------------+-----------------------+
|              |              |       %s (usec)         |   bandwidth (MB/s)  |  message rate (msg/s) |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
|    Stage     | # iterations | 50.0%%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
"""
UCX_BANDWIDTH = (
    UCX_HEAD % "overhead"
    + "[thread 0]      128      0.477  2380.113  2380.113      420.15     420.15         420         420\n"
    + "Final:          200      0.516  2378.005  2378.005      420.52     420.52         421         421\n"
)
UCX_LATENCY = UCX_HEAD % "latency" + (
    "Final:           1000     13.351    13.612    13.612        0.56       0.56       73465       73465\n"
)


@pytest.mark.parametrize(
    ("text", "rate", "peak"),
    [
        (GIGABITS, 393.97e9, 394.12e9),
        (MEBIBYTES, 11749.92 * 2**20 * 8, 11750.43 * 2**20 * 8),
        (VERSION_4, 11749.92 * 2**20 * 8, 11750.43 * 2**20 * 8),
        (FOR_A_TIME, 98.42e9, None),
        (CPU_UTIL, 98.48e9, 98.50e9),
    ],
)
def test_bandwidth_is_read_in_the_headers_unit(text, rate, peak):
    row = perftest_bandwidth(text)[0]
    assert (row.message_bytes, row.average, row.peak) == (
        65536,
        pytest.approx(rate),
        peak and pytest.approx(peak),
    )
    assert row.messages == pytest.approx(rate / 8 / 65536, rel=0.01)


def test_all_sizes_are_read():
    assert [row.message_bytes for row in perftest_bandwidth(GIGABITS)] == [65536, 8388608]


def test_latency_is_read_by_the_names_of_its_columns():
    (row,) = perftest_latency(LATENCY)
    assert (row.message_bytes, row.iterations) == (2, 1000)
    assert (row.lowest, row.highest) == (pytest.approx(1.02e-6), pytest.approx(4.11e-6))
    assert (row.typical, row.average) == (pytest.approx(1.06e-6), pytest.approx(1.07e-6))
    assert row.percentile_99 == pytest.approx(1.18e-6)
    (row,) = perftest_latency(LATENCY_FOR_A_TIME)
    assert (row.average, row.typical, row.iterations) == (pytest.approx(1.11e-6), None, 893312)


def test_ucx_perftest_has_its_final_line():
    row = ucx_bandwidth(UCX_BANDWIDTH, 2**20)
    assert (row.iterations, row.average, row.messages) == (200, 420.52 * 8 * 2**20, 421)
    assert row.average == pytest.approx(row.messages * 8 * 2**20, rel=0.01)
    found = ucx_latency(UCX_LATENCY)
    assert (found.typical, found.average) == (pytest.approx(13.351e-6), pytest.approx(13.612e-6))


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (perftest_bandwidth, ""),
        (perftest_bandwidth, GIGABITS.replace("Gb/sec", "Tb/sec")),
        (perftest_bandwidth, GIGABITS.replace("Mpps", "kpps")),
        (perftest_bandwidth, LATENCY),
        (perftest_bandwidth, BOX + "Couldn't connect to h2:18515\n"),
        (perftest_latency, GIGABITS),
        (perftest_latency, LATENCY.replace("usec", "cycles")),
        (ucx_latency, UCX_BANDWIDTH),
        (ucx_latency, UCX_HEAD % "latency"),
        (ucx_latency, UCX_LATENCY.replace("73465", "")),
    ],
)
def test_what_is_no_result_is_refused(read, text):
    with pytest.raises(ValueError, match=r"."):
        read(text)


@settings(max_examples=50)
@given(st.data())
def test_a_text_that_was_cut_or_garbled_is_read_or_refused(data):
    text = data.draw(st.sampled_from([GIGABITS, VERSION_4, LATENCY, UCX_BANDWIDTH]))
    at, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    text = text[:at] + data.draw(st.text(max_size=5)) + text[end:]
    for read in (perftest_bandwidth, perftest_latency, ucx_latency, lambda text: ucx_bandwidth(text, 1)):
        try:
            read(text)
        except ValueError:
            continue
