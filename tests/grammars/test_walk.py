"""Along every good sample, each token is allowed by the mask before the token, and EOS is allowed at the end."""

from collections.abc import Sequence

import pytest

from aici_controllers.catalog import grammar_names, grammar_path
from tests.grammars.samples import samples
from tests.support.fake_host import FakeHost, GuestModule

_EOS = 0


def _vocabulary(texts: Sequence[str]) -> list[bytes]:
    """Return all single bytes, and pieces of samples: up to five bytes that begin anywhere."""
    pieces = {text[at : at + size] for text in map(str.encode, texts) for at in range(len(text)) for size in (2, 3, 5)}
    return [b"", *(bytes([byte]) for byte in range(256)), *sorted(pieces)]


@pytest.mark.parametrize("name", grammar_names())
def test_masks_allow_good_samples(grammar_module: GuestModule, name: str) -> None:
    texts = [text for text in samples(name).accept if len(text) < 400]
    vocabulary = _vocabulary(texts)
    longest = sorted(range(1, len(vocabulary)), key=lambda token: -len(vocabulary[token]))
    grammar = grammar_path(name).read_bytes()
    host = FakeHost(grammar_module, vocabulary, eos=_EOS, arg=grammar)
    host.init_prompt([1])
    for text in texts:
        rest, num_tokens = text.encode(), 0
        while True:
            host.pre_process()
            if host.mid_process() == "Stop":
                break
            allowed = host.allowed()
            if not rest:
                assert _EOS in allowed, text
                break
            token = next(token for token in longest if rest.startswith(vocabulary[token]))
            assert token in allowed, (text, rest, vocabulary[token])
            host.post_process([token])
            rest, num_tokens = rest[len(vocabulary[token]) :], num_tokens + 1
        assert not rest
        host.post_process([], num_tokens)  # back to the start


@pytest.mark.parametrize("name", grammar_names())
def test_masks_refuse_bad_samples(grammar_module: GuestModule, name: str) -> None:
    texts = [text for text in samples(name).refuse if len(text) < 400]
    vocabulary = _vocabulary(texts)
    longest = sorted(range(1, len(vocabulary)), key=lambda token: -len(vocabulary[token]))
    host = FakeHost(grammar_module, vocabulary, eos=_EOS, arg=grammar_path(name).read_bytes())
    host.init_prompt([1])
    for text in texts:
        rest, num_tokens = text.encode(), 0
        while True:
            host.pre_process()
            if host.mid_process() == "Stop":
                assert rest, text
                break
            token = next(token for token in longest if rest.startswith(vocabulary[token])) if rest else _EOS
            if token not in host.allowed():
                break
            assert token != _EOS, text
            host.post_process([token])
            rest, num_tokens = rest[len(vocabulary[token]) :], num_tokens + 1
        host.post_process([], num_tokens)
