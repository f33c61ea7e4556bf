"""A guest as the loop in C sees the guest, and the way back to Python (`guests/native`)."""

import ctypes
from typing import Final

from aici_runtime.guests.driver import GuestDriver, MadeCall
from aici_runtime.guests.guest import Guest
from aici_runtime.guests.guest_state import GuestState
from aici_runtime.guests.linker import returns_offset
from aici_runtime.guests.native.host import NativeHost
from aici_runtime.guests.native.structures import CGuest
from aici_runtime.memory.worker_slots import WorkerSlot

_CALLBACKS: Final = ("post", "pre", "mid")


class NativeGuest:
    """Owns the struct of a guest. Between `begin` and `end`, the loop may answer requests for the guest.

    The loop knows guests of ABI v1; it leaves every request for another guest to Python.
    """

    def __init__(self, host: NativeHost, guest: Guest, driver: GuestDriver, state: GuestState) -> None:
        self.host = host
        self._driver = driver
        self._state = state
        self._guest = guest  # the struct points into the guest
        self._number = host.add(state)
        self._is_known = guest.abi == "v1" and not returns_offset(guest.module)
        self.struct = CGuest(
            context=guest.context_address(),
            memory=guest.memory.address(),
            memory_data=guest.memory.data_address(),
            interrupted=guest.interrupted_address(),
            handle=driver.handle,
            number=self._number,
            **{name: guest.function_address(f"aici_{name}_process") for name in _CALLBACKS if self._is_known},
        )
        self.busy = memoryview(ctypes.c_uint32.from_buffer(self.struct, CGuest.is_busy.offset)).cast("B").cast("I")

    def use_slot(self, slot: WorkerSlot) -> None:
        self.struct.slot = slot.address

    def begin(self) -> None:
        """Let the loop serve the guest. After a failure, and while a log waits for an answer, Python answers."""
        self.struct.is_usual = self._is_known and not self._driver.has_failed and self._state.is_silent()
        self.struct.seq_id = self._state.seq_id

    def end(self) -> None:
        """Take over the request at which the loop has stopped, with the calls that the loop has made."""
        self._state.seq_id = self.struct.seq_id
        made, self.struct.num_calls = self.struct.calls[: self.struct.num_calls], 0
        for number, call in enumerate(made, 1):
            # The loop stops at the first call that has a log.
            log, written = self._state.take_out() if number == len(made) else (b"", [])
            self._driver.made.append(
                MadeCall(
                    error=call.error,
                    trap=call.trap,
                    result=self.host.result(call.result, call.result_len) if call.result else None,
                    mask=self.host.mask() if call.has_mask else None,
                    log=log,
                    written=written,
                    elapsed_ns=call.elapsed_ns,
                )
            )

    def close(self) -> None:
        self.host.remove(self._number)
