"""`python -m minigen.cli` does what `minigen` does: a Ctrl-C while Python starts or ends leaves no traceback."""

import signal
import sys


def main() -> int:
    """Run minigen as a program of its own."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command listens, and once it has ended
    from .app import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
