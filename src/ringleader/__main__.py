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

    run()


if __name__ == "__main__":
    main()
