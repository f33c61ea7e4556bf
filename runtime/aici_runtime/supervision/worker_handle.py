"""A worker as the stepper's process knows it: the worker slot and the process."""

import socket
import time
from array import array
from dataclasses import dataclass, field

from aici_runtime import process
from aici_runtime.memory.worker_slots import WorkerSlot
from aici_runtime.supervision import worker_priority


@dataclass(slots=True, eq=False)
class WorkerHandle:
    """`released`: the slot becomes free as soon as the process is gone. `pool`: the pool in which the guest lives.
    `control`: a socket to the worker, for the memory of forks; None before the worker announces itself.

    The handle of a pool has `is_pool` and `members`. The slot of a pool becomes free when the pool ends. `lowered`:
    the process has a lower priority than usual. `pid`: 0 if not known yet. `cores`: those that the process was told to
    keep to; None before. `shared_s`: processor time of a pool that its guests have shared out, or a guest's share.
    """

    slot: WorkerSlot
    pidfd: int
    control: socket.socket | None = None
    dead: bool = False
    released: bool = False
    is_pool: bool = False
    pool: "WorkerHandle | None" = None
    members: set["WorkerHandle"] = field(default_factory=set)
    lowered: bool = False
    pid: int = 0
    cores: frozenset[int] | None = None
    shared_s: float = 0.0

    @property
    def process_fd(self) -> int:
        """The pidfd of the process that runs the guest; -1 when the process is gone."""
        return self.pidfd if self.pool is None else self.pool.pidfd

    def cpu_s(self) -> float | None:
        """Return the processor time of the process since its start, for a guest in a pool its share; None without a
        process. Costs a microsecond.

        The guests of a pool share its time equally: all belong to one user.
        """
        if self.pool is not None:
            self.pool.share_out()
            return self.shared_s
        if self.dead or not (pid := self._known_pid()):
            return None
        try:
            return time.clock_gettime(worker_priority.cpu_clock(pid))
        except OSError:
            return None

    def share_out(self) -> None:
        """Share out the processor time of a pool since the last call among its guests."""
        members, used_s = list(self.members), self.cpu_s()  # the supervisor's thread may add members
        if members and used_s is not None:
            for member in members:
                member.shared_s += (used_s - self.shared_s) / len(members)
            self.shared_s = used_s

    def kill(self) -> None:
        """End the process, which is not in a pool."""
        if pid := self._known_pid():
            worker_priority.lower_for_end(pid)
        process.kill(self.pidfd)

    def lower(self) -> None:
        """Let the process compute with what others leave. The guests of a pool are of one user and one module."""
        holder = self.pool or self
        if not holder.lowered and (pid := holder._known_pid()):
            worker_priority.lower(pid)
            holder.lowered = True

    @property
    def is_lowered(self) -> bool:
        """Whether the process of the guest computes with what others leave."""
        return (self.pool or self).lowered

    def restore(self) -> None:
        """Give back the usual priority, where that is possible."""
        holder = self.pool or self
        if holder.lowered and (pid := holder._known_pid()):
            holder.lowered = not worker_priority.restore(pid)

    def keep_to(self, cores: frozenset[int]) -> None:
        """Let the guest run on these cores alone."""
        holder = self.pool or self
        if holder.cores != cores and (pid := holder._known_pid()):
            holder.cores = cores
            worker_priority.keep_to(pid, cores)

    def is_stopped(self) -> bool:
        """Return whether somebody has stopped the process of the guest (SIGSTOP), or traces the process."""
        holder = self.pool or self
        return bool(pid := holder._known_pid()) and worker_priority.is_stopped(pid)

    def _known_pid(self) -> int:
        """Return the pid; 0 without a process, or when the process was gone at the first call."""
        if not self.pid and self.pidfd >= 0:
            self.pid = max(0, worker_priority.pid_of(self.pidfd))
        return self.pid

    def send_memory(self, descriptor: int) -> bool:
        """Send a descriptor of the memory of a fork's slot. Return False if the worker cannot take it."""
        if self.control is None:
            return False
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))
        try:
            self.control.sendmsg([b"m"], [rights], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:  # dead, or hostile: it reads nothing
            return False
        return True

    def send_request(self, request: bytes, *, detached: bool = False) -> None:
        """Send a request. For a guest in a pool, the caller has to ring the pool's bell afterwards."""
        if self.pool is None:
            self.slot.send_request(request, detached=detached)
        else:
            self.slot.put_request(request, detached=detached)
        if self.dead:
            # The supervisor may have marked the slot as dead before the request cleared that word.
            self.slot.mark_dead()

    def wait_response(self, deadline: float) -> bytes | None:
        """Wait for the reply, as `WorkerSlot.wait_response` does."""
        if self.pool is None:
            return self.slot.wait_response(deadline)
        return self.slot.wait_response_in_pool(self.pool.slot, deadline)
