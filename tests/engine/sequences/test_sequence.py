"""A sequence and its parts: append, remove, fork."""

from typing import Any

from aici_base.ids import SeqId, TokenId
from aici_engine.config import SamplingParams
from aici_engine.events import FinishReason, Origin, Token, TokenScore
from aici_engine.request import ControllerCall
from aici_engine.sequences.progress import Phase
from aici_engine.sequences.sequence import Sequence


def sequence(prompt: str = "abc", **options: Any) -> Sequence:
    usual: Any = {
        "sampling": SamplingParams(seed=7),
        "controller": None,
        "limit": 10,
        "sink": lambda event: None,
        "submitted_at": 0.0,
    }
    return Sequence(SeqId(1), prompt=[TokenId(ord(char)) for char in prompt], **(usual | options))


def append(seq: Sequence, text: str, origin: Origin = Origin.SAMPLED) -> str:
    return "".join(seq.append(Token(TokenId(ord(char)), char.encode(), origin)) for char in text)


def test_append_counts_in_the_sequence_and_in_its_group() -> None:
    seq = sequence()
    assert append(seq, "de") + append(seq, "f", Origin.FORCED) == "def"
    assert (seq.transcript.num_sampled, seq.transcript.num_forced, seq.room) == (2, 1, 4)
    assert seq.group.fuel == 5
    assert seq.num_pending == 6


def test_a_complete_stop_string_ends_the_sequence_and_the_first_reason_stands() -> None:
    seq = sequence(sampling=SamplingParams(stop=("ef",)))
    append(seq, "de")
    assert seq.ending is None
    append(seq, "f")
    seq.end(FinishReason.ABORT)
    assert seq.ending == (FinishReason.STOP_STRING, None)
    assert seq.transcript.stop == "ef"


def test_remove_takes_output_then_prompt_and_what_was_computed_of_them() -> None:
    seq = sequence(sampling=SamplingParams(max_tokens=4), limit=7)
    append(seq, "de")
    seq.progress.num_computed = 4
    seq.remove(3)
    assert (seq.tokens, seq.transcript.output, seq.transcript.prompt_len) == ([97, 98], [], 2)
    assert (seq.progress.num_computed, seq.num_pending) == (2, 0)
    # `max_tokens` bounds the output, and the output begins earlier now.
    assert seq.transcript.limit == 6
    assert seq.group.fuel == 4


def test_what_the_model_sees_in_place_of_a_token_is_no_part_of_the_output() -> None:
    seq = sequence()
    seq.append(Token(TokenId(256), b"", Origin.SAMPLED), kept_as=TokenId(32))
    assert seq.tokens[-1] == 32
    assert seq.transcript.output[-1].token_id == 256
    eos_tokens = frozenset({TokenId(256), TokenId(257)})
    assert seq.transcript.num_kept(2, [TokenId(ord("c")), TokenId(257), TokenId(1)], eos_tokens) == 2


def test_a_fork_goes_on_by_itself() -> None:
    seq = sequence(controller=ControllerCall("guest"))
    append(seq, "de")
    seq.guest.bound = True
    seq.progress.num_computed, seq.progress.num_reused = 5, 2
    fork, begin = seq.clone(SeqId(2))
    append(seq, "f")
    fork.remove(1)
    assert (begin, fork.fork, fork.group is seq.group, seq.group.members) == ("de", 1, True, [seq, fork])
    assert (seq.transcript.text.text, fork.transcript.text.text) == ("def", "d")
    assert (fork.transcript.num_prompt_tokens, fork.transcript.num_sampled, fork.progress.num_reused) == (0, 0, 0)
    assert fork.guest.bound
    assert fork.guest is not seq.guest
    assert fork.progress.phase is Phase.NEW
    timings = fork.clock.timings()
    assert timings.started_s is not None
    assert timings.first_token_s is None
    # Fork k draws as a request with the seed `seed + k`.
    assert fork.sampler.random.random() == sequence(sampling=SamplingParams(seed=8)).sampler.random.random()


def test_scores_of_a_prompt_are_taken_once_and_bound_what_can_be_reused() -> None:
    seq = sequence(score_from=1)
    assert (seq.num_reusable, seq.sampler.take_scores(3)) == (0, None)
    assert seq.sampler.prompt_scores is not None
    seq.sampler.prompt_scores.scores += [TokenScore(TokenId(98), -1.0), TokenScore(TokenId(99), -2.0)]
    assert [score.logprob for score in seq.sampler.take_scores(3) or ()] == [-1.0, -2.0]
    assert (seq.num_reusable, seq.sampler.take_scores(3)) == (2, None)


def test_the_first_token_of_a_prompt_has_no_log_probability() -> None:
    assert sequence("a", score_from=0).sampler.take_scores(1) == (TokenScore(TokenId(97)),)
