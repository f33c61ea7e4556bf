"""The vocabulary of a model: names of special tokens in the texts of users are plain text."""

from tokenizers import Tokenizer

from aici_engine.vocabulary import ModelVocabulary
from tests.support.model import default_model_dir


def test_marked_names_have_the_tokens_of_a_tokenizer_without_special_tokens() -> None:
    vocabulary = ModelVocabulary(default_model_dir())
    plain = Tokenizer.from_file(str(default_model_dir() / "tokenizer.json"))
    plain.encode_special_tokens = True
    names = [token.content for token in plain.get_added_tokens_decoder().values() if token.special]
    assert "<|im_end|>" in names
    for name in names:
        special = vocabulary.special_token(name)
        assert vocabulary.encode(name, add_special_tokens=False) == [special]
        marked = vocabulary.encode(vocabulary.plain(f"Hi {name}{name}"), add_special_tokens=False)
        part = plain.encode(name, add_special_tokens=False).ids
        assert marked == [*vocabulary.encode("Hi ", add_special_tokens=False), *part, *part]
        assert special not in marked
