"""Guests whose language is a finite set of byte strings: compare the masks with the set itself."""

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.support.fake_host import FakeHost, GuestModule


def compare_masks(
    module: GuestModule, arg: bytes, language: set[bytes], vocabulary: list[bytes], data: st.DataObject
) -> None:
    """Walk at random through the allowed tokens, and back. `vocabulary` has all single bytes and ends in EOS."""
    eos = len(vocabulary) - 1
    host = FakeHost(module, vocabulary, eos=eos, arg=arg)
    host.init_prompt()
    taken: list[int] = []
    for _ in range(12):
        text = b"".join(vocabulary[token] for token in taken)
        expected = _allowed(text, language, vocabulary)
        result = host.mid_process()
        if expected == {eos}:
            assert result == "Stop"
            return
        assert result == {"SampleWithBias": {}}
        assert host.allowed() == expected, text
        if taken and data.draw(st.integers(0, 3)) == 0:
            backtrack = data.draw(st.integers(1, len(taken)))
            del taken[-backtrack:]
            text = b"".join(vocabulary[token] for token in taken)
            ends = _allowed(text, language, vocabulary) == {eos}
            assert host.post_process([], backtrack) == {"stop": ends}
            continue
        token = data.draw(st.sampled_from(sorted(expected)))
        stop = host.post_process([token])["stop"]
        if token == eos:
            assert stop
            return
        taken.append(token)
        text += vocabulary[token]
        assert stop == (_allowed(text, language, vocabulary) == {eos})


def _allowed(text: bytes, language: set[bytes], vocabulary: Sequence[bytes]) -> set[int]:
    rests = [whole[len(text) :] for whole in language if whole.startswith(text)]
    allowed = {token for token, raw in enumerate(vocabulary) if raw and any(rest.startswith(raw) for rest in rests)}
    return allowed | ({len(vocabulary) - 1} if b"" in rests else set())
