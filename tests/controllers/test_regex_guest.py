"""The behaviour of the regex guest besides its masks."""

import pytest

from aici_base.ids import TokenId
from aici_runtime.tokenizer.trie import serialize
from tests.support.fake_host import FakeHost, GuestModule, GuestStoppedError

_VOCABULARY = [b"a", b"ab", b"b", b""]
_GOLDEN = bytes.fromhex(
    "d36f8b551c0000002000000010000000200000000400000003000000ffffffff000400006100000001020000620100000201000062020000"
    "010100000100000002010000010300000004000061616262"
)


def test_the_golden_trie(regex_module: GuestModule) -> None:
    assert serialize(_VOCABULARY, TokenId(3)) == _GOLDEN
    host = FakeHost(regex_module, _VOCABULARY, eos=3, arg=b"ab?", trie=_GOLDEN)
    host.mid_process()
    assert host.allowed() == {0, 1}
    host.post_process([0])
    host.mid_process()
    assert host.allowed() == {2, 3}
    assert host.post_process([2]) == {"stop": True}


@pytest.mark.parametrize("damage", [(0, 1), (4, 27), (8, 31), (12, 12), (20, 5), (28 + 15, 1), (28 + 13, 9)])
def test_a_damaged_trie_is_refused(regex_module: GuestModule, damage: tuple[int, int]) -> None:
    blob = bytearray(_GOLDEN)
    blob[damage[0]] = damage[1]
    with pytest.raises(GuestStoppedError, match="token trie"):
        FakeHost(regex_module, _VOCABULARY, eos=3, arg=b"a", trie=bytes(blob))


@pytest.mark.parametrize("initialize", [True, False])
def test_constructors_run_once_whether_or_not_the_host_starts_them(regex_module: GuestModule, initialize: bool) -> None:
    host = FakeHost(regex_module, _VOCABULARY, eos=3, arg=b"ab", initialize=initialize)
    assert host.log == b'regex constraint: "ab"\n'
    host.init_prompt()
    host.mid_process()
    assert host.allowed() == {0, 1}


def test_only_the_empty_text_matches(regex_module: GuestModule) -> None:
    assert FakeHost(regex_module, _VOCABULARY, eos=3, arg=b"").mid_process() == "Stop"


def test_tokens_with_equal_bytes_are_allowed_together(regex_module: GuestModule) -> None:
    host = FakeHost(regex_module, [b"a", b"b", b"a", b"a", b""], eos=4, arg=b"a+")
    host.mid_process()
    assert host.allowed() == {0, 2, 3}


def test_a_token_that_breaks_the_regex_ends_the_guest(regex_module: GuestModule) -> None:
    host = FakeHost(regex_module, _VOCABULARY, eos=3, arg=b"ab")
    with pytest.raises(GuestStoppedError, match=r'token 2 \("b"\) is not allowed here'):
        host.post_process([0, 2, 2])


def test_special_tokens_are_no_text(regex_module: GuestModule) -> None:
    host = FakeHost(regex_module, [b"a", b"", b""], eos=2, arg=b"a*")
    host.mid_process()
    assert host.allowed() == {0, 2}
    with pytest.raises(GuestStoppedError, match="token 1 has no text"):
        host.post_process([1])


def test_backtracking_beyond_the_start_ends_the_guest(regex_module: GuestModule) -> None:
    host = FakeHost(regex_module, _VOCABULARY, eos=3, arg=b"a*")
    assert host.post_process([0, 0]) == {"stop": False}
    assert host.post_process([0], backtrack=2) == {"stop": False}
    with pytest.raises(GuestStoppedError, match="cannot take back"):
        host.post_process([], backtrack=2)


def test_a_vocabulary_without_the_needed_byte(regex_module: GuestModule) -> None:
    host = FakeHost(regex_module, _VOCABULARY, eos=3, arg=b"az")
    host.post_process([0])
    with pytest.raises(GuestStoppedError, match="no token of this vocabulary can continue"):
        host.mid_process()


def test_an_automaton_that_outgrows_its_bounds_says_so(regex_module: GuestModule) -> None:
    host = FakeHost(regex_module, [b"a", b"b", b""], eos=2, arg=b"[ab]*a[ab]{16}c[ab]*")
    # No walk over the trie happens in between, which would be the moment to forget states.
    texts = [number >> shift & 1 for number in range(1 << 13) for shift in range(18)]
    with pytest.raises(GuestStoppedError, match="too complex"):
        host.post_process(texts)


def test_long_counts_stay_cheap(regex_module: GuestModule) -> None:
    host = FakeHost(regex_module, [b"a", b"a" * 200, "é".encode(), b"\xc3", b""], eos=4, arg=b".{0,100000}x?")
    for _ in range(20):
        host.mid_process()
        assert host.allowed() == {0, 1, 2, 3, 4}
        host.post_process([1])


def test_optional_parts_written_one_by_one(regex_module: GuestModule) -> None:
    vocabulary = [b"a", "é".encode(), "€é".encode(), b"\n", b""]
    host = FakeHost(regex_module, vocabulary, eos=4, arg=b".?" * 300 + b"a" * 20 + b"a?" * 20)
    for step in range(340):  # of .{0,300}a{20,40}
        host.mid_process()
        may_come = {0: step < 340, 1: step < 300, 2: step < 299, 3: False, 4: step >= 20}
        assert host.allowed() == {token for token, may in may_come.items() if may}
        assert host.post_process([0])["stop"] == (step == 339)


def test_masks_stay_right_when_states_are_forgotten(regex_module: GuestModule) -> None:
    """With this many states the automaton is rebuilt several times; the counter must survive exactly."""
    vocabulary = [b"a", "é".encode(), b"\xc3", b"\xa9", "a€a".encode(), "😀".encode(), "é€😀".encode() * 8, b""]
    host = FakeHost(regex_module, vocabulary, eos=7, arg=b"(?:.{7}x?){1200}")
    for step in range(8396):
        host.mid_process()
        if step % 100 == 0:
            assert 0 in host.allowed(), step
            assert 7 not in host.allowed(), step
        host.post_process([step % 2])
        if step % 1000 == 999:
            host.post_process([2])
            host.mid_process()
            assert host.allowed() == {3}
            host.post_process([], backtrack=1)
            host.post_process([step % 2], backtrack=1)
    host.mid_process()
    assert host.allowed() == {0, 1, 2, 4, 5}
    host.post_process([4])
    host.mid_process()
    assert host.allowed() == {0, 1, 2, 5}
    host.post_process([0])
    host.mid_process()
    assert host.allowed() == {7}


def test_ambiguous_counts_do_not_explode(regex_module: GuestModule) -> None:
    host = FakeHost(regex_module, [b"a", b"b", b"ab", b""], eos=3, arg=b"(a|ab|b|a?b?){0,5000}")
    for _ in range(50):
        host.mid_process()
        assert host.allowed() == {0, 1, 2, 3}
        host.post_process([0, 2, 1])


def test_the_guest_is_small_and_imports_little(regex_module: GuestModule) -> None:
    imports = {(entry.module, entry.name) for entry in regex_module.module.imports}
    assert {name for module, name in imports if module != "env"} == {"fd_write"}
    assert all(name is not None and name.startswith("aici_host_") for module, name in imports if module == "env")


def test_a_pattern_that_is_too_large_is_refused_before_the_first_mask_and_its_log_is_short(
    regex_module: GuestModule,
) -> None:
    for times in (50_000, 500_000):
        with pytest.raises(GuestStoppedError, match="too large") as stopped:
            FakeHost(regex_module, _VOCABULARY, eos=3, arg=b"ab" * times)
        assert len(str(stopped.value)) < 1000
    fits = FakeHost(regex_module, _VOCABULARY, eos=3, arg=b"ab" * 15_000)
    fits.init_prompt()
    fits.mid_process()
    assert fits.allowed() == {0, 1}
    assert len(fits.log) < 2000
