"""Shared memory between the ranks of a host, the window; `ringleader.engine.transports` has the port and MPI.

window_transport    the transport: which array goes which way ("window", between hosts "hosts")
staged_reductions   arrays that lie anywhere, through buffers in the window: one-shot and two-shot
between_hosts       what several hosts add: one slice per local rank over the network
"""
