"""The engine's record of the conversation with a sequence's guest."""

from dataclasses import dataclass


@dataclass(slots=True)
class GuestConversation:
    """Changed by `aici_engine.control.session` alone. A sequence without a controller keeps the defaults.

    `bound`: the runtime knows the guest by the id of the sequence. `suspended`: the guest asked for steps without its
    sequence. `late`: the guest is suspended because its computation has not ended. `num_branches`: the number of
    sequences after the next sampled token, the sequence itself included; more than 1 is a fork. `num_calm`: rounds in a
    row in which the guest only went on; after `calm_rounds` rounds no round waits for the guest. `last_was_eos`: the
    last token was an EOS, chosen by the model among other tokens.
    """

    bound: bool = False
    suspended: bool = False
    late: bool = False
    num_branches: int = 1
    num_calm: int = 0
    calm_rounds: int = 1
    last_was_eos: bool = False
