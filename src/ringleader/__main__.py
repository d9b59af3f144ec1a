"""``python -m ringleader`` and the command ``ringleader``.

What is imported here stands between a user's first Ctrl-C and a quiet end, so it is next to nothing.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the standard library's own begins with 5 ms of enumerations


def main() -> None:
    """Run the command line. Until it can serve signals, SIGINT ends us as it ends any program."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ringleader.cli.main import main as run

    try:
        run()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            _leave_quickly(ended.code)
        raise


def _leave_quickly(code: int) -> None:
    """End this process without freeing every object first: that takes longer than a short job's end.

    Nothing happens where somebody relies on an orderly end: exit handlers, threads to be joined, a profiler.
    """
    import atexit
    import os
    import sys
    import threading

    if sys.gettrace() is not None or sys.getprofile() is not None or atexit._ncallbacks():
        return
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        return  # the interpreter reports it
    os._exit(code)


if __name__ == "__main__":
    main()
