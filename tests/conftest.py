"""What every test may rely on, however pytest was started."""

import signal

# Behind `nohup` or a shell's `&` SIGINT is ignored, and every child would ignore it too: Ctrl-C could not be tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
