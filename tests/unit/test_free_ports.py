import socket
from contextlib import closing

from ringleader.agents import rank_process


def test_a_port_for_jax_is_in_its_range_and_held() -> None:
    with closing(rank_process.jax_port()) as one, closing(rank_process.jax_port()) as other:
        numbers = {sock.getsockname()[1] for sock in (one, other)}
        assert len(numbers) == 2 and all(number in rank_process.JAX_PORTS for number in numbers)


def test_a_port_at_which_somebody_listens_is_passed_over() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as JAX's server does
        server.bind(("", 0))
        server.listen()
        taken = server.getsockname()[1]
        with closing(rank_process.jax_port(range(taken, taken + 1))) as sock:
            assert sock.getsockname()[1] != taken
