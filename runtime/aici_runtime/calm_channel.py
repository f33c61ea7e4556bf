"""The engine's end of usual turns in C (`guests/native/src/calm_channel.c`): the message is written and the answer read
without objects for their parts. `turn_message.py` is the reference, and serves where there is no library."""

import ctypes
from array import array
from collections.abc import Sequence
from ctypes import c_double, c_int32, c_uint32, c_void_p

from aici_base.ids import SeqId, TokenId
from aici_runtime.channels.mailbox import Mailbox
from aici_runtime.channels.semaphore_mailbox import MailboxAddresses, addresses_of
from aici_runtime.guests.native import library
from aici_runtime.guests.native.structures import MAX_OPS, CCalmChannel, CMailbox
from aici_runtime.wire import Patience

_NOT_THERE, _USUAL = 0, 1
_NO_PATIENCE = -1.0


class CalmChannel:
    """Used by one thread at a time, between the other messages of the main channel."""

    def __init__(self, code: ctypes.CDLL, requests: MailboxAddresses, responses: MailboxAddresses) -> None:
        libc = ctypes.CDLL(None)
        self._struct = CCalmChannel(
            sem_wait=ctypes.cast(libc.sem_wait, c_void_p),
            sem_trywait=ctypes.cast(libc.sem_trywait, c_void_p),
            sem_post=ctypes.cast(libc.sem_post, c_void_p),
            requests=CMailbox(*requests),
            responses=CMailbox(*responses),
        )
        self._at = ctypes.addressof(self._struct)
        self._micros = self._struct.micros
        # Calls that never sleep keep the GIL: to get a released GIL back may take milliseconds.
        held = ctypes.PyDLL(str(library.LIBRARY))
        self._send, self._try_receive = held.aici_send_calm, held.aici_receive_calm
        self._receive = code.aici_receive_calm
        self._send.argtypes = c_void_p, c_void_p, c_uint32, c_double, c_double
        self._try_receive.argtypes = self._receive.argtypes = c_void_p, c_uint32, c_int32

    def send(self, ids: Sequence[SeqId], tokens: Sequence[TokenId], patience: Patience | None) -> bool:
        """Tell each guest of its token, and ask each guest for a mask. Return False, with nothing sent, if the turn is
        not usual, or a number is no u32."""
        if len(ids) != len(tokens) or len(ids) > MAX_OPS or (patience is not None and patience.hurried):
            return False
        try:
            words = array("I", ids)
            words.extend(tokens)
        except OverflowError:
            return False
        most_s, hurried_s = (_NO_PATIENCE, 0.0) if patience is None else (patience.most_s, patience.hurried_s)
        return bool(self._send(self._at, words.buffer_info()[0], len(ids), most_s, hurried_s))

    def receive(self, num: int) -> list[int] | None:
        """Wait for the answer about `num` sequences, and return the microseconds of each guest. Return None, with the
        answer in the mailbox, if it is not usual."""
        if num > MAX_OPS:
            return None
        state = self._try_receive(self._at, num, False)
        while state == _NOT_THERE:
            state = self._receive(self._at, num, True)
        return self._micros[:num] if state == _USUAL else None


def load(requests: Mailbox, responses: Mailbox) -> CalmChannel | None:
    """Return the channel; None without a library, and for mailboxes without semaphores."""
    code, addresses = library.load(), addresses_of(requests, responses)
    if code is None or addresses is None:
        return None
    return CalmChannel(code, *addresses)
