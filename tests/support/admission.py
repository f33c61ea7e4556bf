"""Admission in tests."""

from aici_engine.server.service.admission import Admission, Principal


async def pass_through(admission: Admission, principal: Principal, num_sequences: int = 1) -> None:
    """Admit sequences that end at once. Raises as `Admission.admit`."""
    async with admission.admit(principal, num_sequences):
        pass
