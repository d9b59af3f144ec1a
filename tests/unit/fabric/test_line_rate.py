"""What the ports of a host carry together, out of what a job showed."""

from tests.unit.fabric.machines import gpu_machine

from ringleader.fabric.port_selection import line_rate, select_ports


def test_the_slowest_host_counts_and_all_must_be_known() -> None:
    eight, four = gpu_machine(), gpu_machine(nics=4)
    one = select_ports(four).ports[0].rate / 8
    assert one > 0
    assert line_rate(["a", "b"], {"a": eight, "b": four}) == 4 * one
    assert line_rate(["a", "b"], {"a": eight}) is None
    assert line_rate(["a", "b"], {}, link=8e9) == 1e9
    assert line_rate(["a"], {"a": eight}, link=8e9) is None
