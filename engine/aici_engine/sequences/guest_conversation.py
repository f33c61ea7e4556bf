"""What the engine knows of a sequence's guest."""

from dataclasses import dataclass


@dataclass(slots=True)
class GuestConversation:
    """Changed by `aici_engine.control.session` alone. A sequence without a controller keeps the defaults.

    `bound`: the runtime knows the guest by the id of the sequence. `suspended`: the guest waits, for a variable or for
    itself. `late`: the guest is suspended because it is still computing. `num_branches`: the number of sequences that
    the guest wants to be when it is next sampled, itself included. `num_calm`: rounds in a row in which the guest only
    went on; from `calm_rounds` such rounds on, no round waits for the guest. `last_was_eos`: the last token was an EOS
    that the model chose.
    """

    bound: bool = False
    suspended: bool = False
    late: bool = False
    num_branches: int = 1
    num_calm: int = 0
    calm_rounds: int = 1
    last_was_eos: bool = False
