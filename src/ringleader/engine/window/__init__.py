"""Shared memory between the ranks of a host, the window, as a transport; `ringleader.engine.transports` has
the port and what goes by MPI alone.

window_transport    the transport: which array goes which way
staged_reductions   any other array, through buffers in the window: one-shot and two-shot
between_hosts       what several hosts add: one slice per local rank over the network
"""
