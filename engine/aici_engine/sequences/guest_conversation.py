"""The engine's record of the conversation with a sequence's guest."""

from dataclasses import dataclass


@dataclass(slots=True)
class GuestConversation:
    """Changed by `aici_engine.control` alone. A sequence without a controller keeps the defaults.

    `starting`: the runtime has begun to start the guest, and the guest is not there yet; the prompt may be computed
    meanwhile. `bound`: the runtime knows the guest by the id of the sequence. `suspended`: the guest asked for steps
    without its sequence, or still starts although the prompt is computed. `late`: the guest is suspended because its
    computation has not ended. `num_branches`: the number of sequences after the next sampled token, the sequence itself
    included; more than 1 is a fork. `num_calm`: rounds in a row in which the guest only went on; after `calm_rounds`
    rounds no round waits for the guest. `num_quiet`: all rounds in which the guest only went on; `num_wishes`: the
    rounds in which the guest wanted more. `last_was_eos`: the last token was an EOS, chosen by the model among other
    tokens.
    """

    starting: bool = False
    bound: bool = False
    suspended: bool = False
    late: bool = False
    num_branches: int = 1
    num_calm: int = 0
    calm_rounds: int = 1
    num_quiet: int = 0
    num_wishes: int = 0
    last_was_eos: bool = False

    def went_on(self) -> None:
        """Note a round in which the guest only went on."""
        self.num_calm += 1
        self.num_quiet += 1

    def wished(self) -> None:
        """Note a round in which the guest wanted more than to go on."""
        self.num_calm = 0
        self.num_wishes += 1
