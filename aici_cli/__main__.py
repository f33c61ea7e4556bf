"""The entry point: `aici`, and `python -m aici_cli`."""

import signal


def main() -> None:
    # As long as nothing is open, Ctrl-C ends us as it ends any process: by the signal, without a word.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from aici_cli.main import main as run

    run()


if __name__ == "__main__":
    main()
