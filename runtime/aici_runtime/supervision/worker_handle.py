"""A worker as the stepper's process sees it: its slot and its process."""

from dataclasses import dataclass, field

from aici_runtime.memory.worker_slots import WorkerSlot


@dataclass(slots=True, eq=False)
class WorkerHandle:
    """`released`: the slot is to be freed as soon as the process is gone.

    `pool`: the process that the guest has moved into. That one, `is_pool`, has `members`, and a slot of its own, which
    is nobody's once it is gone.
    """

    slot: WorkerSlot
    pidfd: int
    dead: bool = False
    released: bool = False
    is_pool: bool = False
    pool: "WorkerHandle | None" = None
    members: set["WorkerHandle"] = field(default_factory=set)

    @property
    def process(self) -> int:
        """A pidfd; -1 when it is gone."""
        return self.pidfd if self.pool is None else self.pool.pidfd

    def send_request(self, request: bytes) -> None:
        """In a pool, the bell is still to be rung."""
        if self.pool is None:
            self.slot.send_request(request)
        else:
            self.slot.put_request(request)
        if self.dead:
            # The supervisor may have said so before the request cleared the word.
            self.slot.mark_dead()

    def wait_response(self, deadline: float) -> bytes | None:
        if self.pool is None:
            return self.slot.wait_response(deadline)
        return self.slot.wait_response_in_pool(self.pool.slot, deadline)
