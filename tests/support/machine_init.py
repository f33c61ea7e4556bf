"""Process 1 of a machine of tests/support/netns.py: starts processes, reaps them, ends with its starter.

Only the standard library: started as `python -I -S machine_init.py FD HOSTNAME`. FD is a sequenced Unix socket. A
request is JSON (`argv`, `env`, `cwd`) with four descriptors: stdin, stdout, stderr and a pipe for the exit status. The
answer is the process's id in the machine, with a pidfd. End of file on the socket ends the machine with all processes.
"""

import contextlib
import json
import os
import signal
import socket
import sys
from multiprocessing.connection import wait
from typing import NoReturn


def main(fd: int, hostname: str) -> NoReturn:
    starter = socket.socket(fileno=fd)
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    socket.sethostname(hostname)
    socket.send_fds(starter, [b"up"], [os.pidfd_open(os.getpid())])
    statuses: dict[int, int] = {}
    while True:
        ready = wait([starter, woken])
        if starter in ready:
            request, fds, _, _ = socket.recv_fds(starter, 1 << 20, 4)
            if not request:
                os._exit(0)
            pid = _start(json.loads(request), fds[:3])
            statuses[pid] = fds[3]
            pidfd = os.pidfd_open(pid)
            socket.send_fds(starter, [str(pid).encode()], [pidfd])
            for opened in (pidfd, *fds[:3]):
                os.close(opened)
        if woken in ready:
            os.read(woken, 4096)
        _reap(statuses)


def _start(request: dict[str, object], streams: list[int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 1024)
        os.chdir(str(request["cwd"]))
        argv: list[str] = request["argv"]  # type: ignore[assignment]
        env: dict[str, str] = request["env"]  # type: ignore[assignment]
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, f"{error}\n".encode())
    finally:
        os._exit(127)


def _reap(statuses: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if (pipe := statuses.pop(pid, None)) is not None:
                with contextlib.suppress(BrokenPipeError):
                    os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(pipe)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
