"""`aici ctrl test`: passing cases, failing cases with their messages, and invalid files."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aici_base.errors import NotFoundError, UsageError
from aici_controllers import catalog
from aici_controllers.byte_tokenizer import write_byte_tokenizer
from aici_controllers.case_file import read_cases
from aici_controllers.case_runner import CaseRunner, Outcome, Tokens
from aici_runtime.client import Runtime, RuntimeConfig
from tests.support.guests import build_test_guest, shipped_guest

Run = Callable[[str, str], Outcome]

_TOKENS = ["ab", "é", "yes"]
_WAITS_AFTER_FORK = (
    '{"steps": [{"Fixed": {"text": {"String": {"str": "a"}}}}, {"Fork": {"branches": '
    '[[{"Wait": {"vars": ["x"]}}], [{"Wait": {"vars": ["x"]}}]]}}]}'
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run one case, the text after `[[case]]`, on a test guest or a shipped guest."""
    shipped_guest("regex")
    tokenizer = write_byte_tokenizer(tmp_path_factory.mktemp("bytes"), _TOKENS)
    numbers = itertools.count()
    folder = tmp_path_factory.mktemp("cases")
    with Runtime(RuntimeConfig(tokenizer=tokenizer, max_init_time_ms=1000)) as runtime:
        tokens = Tokens(tokenizer)
        runtime.wait_ready()

        def run_case(guest: str, text: str) -> Outcome:
            path = catalog.guest_path(guest) if guest in catalog.guest_names() else build_test_guest(guest)
            file = folder / f"{next(numbers)}.toml"
            file.write_text(f"[[case]]\n{text}\n")
            [case] = read_cases(file).cases
            return CaseRunner(runtime, tokens, runtime.mk_module(path.read_bytes()).module_id).run(case)

        yield run_case


@pytest.mark.parametrize(
    ("guest", "argument", "steps"),
    [
        ("regex", "ab*", "{ exactly = ['ab'], end = false, sample = 'abb' }, { exactly = ['b'], end = true }"),
        ("regex", "a|é", "{ allowed = ['a', 'é'], refused = ['ab', 'b', '€'] }, { sample = 'é', stop = true }"),
        ("regex", "a?", "{ end = true, sample_end = true, stop = true }"),
        ("regex", "ab", "{ sample_tokens = [98, 99], stop = true }"),
        ("regex", "a", "{ allowed = ['a'], log = ['regex constraint: '] }, { sample = 'a', stop = true }"),
        ("forced", "héyes", "{ forced = 'héyes', stop = true }"),
        ("splice", "ab", "{ forced = 'ab' }, { sample = 'x' }, { backtrack = 1, forced = 'ab' }, { stop = true }"),
        ("suspend", "", f"{'{ suspended = true }, ' * 3}{{ allowed = ['a'], end = true }}"),
        (
            "fork",
            "",
            """{ forks = 2, log = ["fork"] }, { fork = 1, sample = "a", log = [" of 2"] }, { sample = "b" },
            { fork = 1, sample_end = true, stop = true }, { sample = "b" }""",
        ),
        (
            "declctrl",
            _WAITS_AFTER_FORK,
            "{ forced = 'a', forks = 2 }, { fork = 1, holds = true }, { fork = 1, suspended = true }, { holds = true }",
        ),
        (
            "declctrl",
            _WAITS_AFTER_FORK.replace('"a"', '""'),
            "{ forks = 2, error = 'only when the sequence has a token: its prompt is empty' }",
        ),
        ("vars", "", "{ log = ['missing', 'x=one'], variables = { x = 'one, two' }, stop = true }"),
        ("trap", "", "{ error = 'unreachable', log = ['about to trap'] }"),
        ("wild", "1", "{ error = 'pointer out of range' }"),
        ("anything", "", ""),
    ],
)
def test_cases_that_hold(run: Run, guest: str, argument: str, steps: str) -> None:
    outcome = run(guest, f"argument = '{argument}'\nsteps = [{steps}]")
    assert outcome.ok, outcome.message


def test_other_cases_that_hold(run: Run) -> None:
    assert run("choices", "argument = ['a', 'é']\nsteps = [{ exactly = ['a', 'é'] }]").message == ""
    assert run("regex", "argument = '('\nerror = 'regex error at position'").message == ""
    assert run("loop_init", "error = 'timeout'").message == ""


@pytest.mark.parametrize(
    ("guest", "argument", "steps", "step", "says"),
    [
        ("regex", "ab", "{ sample = 'a' }, { sample = 'a' }", 2, '"a" cannot be sampled; allowed: "b"'),
        ("regex", "ab", "{ allowed = ['x'] }", 1, '"x" is not allowed; allowed: "a", "ab"'),
        ("regex", "ab", "{ refused = ['ab'] }", 1, '"ab" is allowed'),
        ("regex", "a*", "{ exactly = ['a', 'yes'] }", 1, 'not allowed: "y", "yes"'),
        ("regex", "[ab]", "{ exactly = ['a'] }", 1, 'allowed, too: "b"'),
        ("regex", ".", "{ exactly = [] }", 1, " more"),
        ("regex", "a*", "{ end = false }", 1, "the text may end here"),
        ("regex", "a", "{ end = true }", 1, "the text may not end here"),
        ("regex", "a", "{ sample = 'a' }", 1, "the controller stopped"),
        ("regex", "a*", "{ sample = 'a', stop = true }", 1, "continues where the step expects a stop"),
        ("regex", "ab", "{ sample_tokens = [98, 99, 98], stop = true }", 1, 'stopped after "b"'),
        ("regex", "a", "{ sample = 'a', stop = true }, { sample = 'a' }", 2, "ended before this step"),
        ("regex", "[ab]", "{ forced = 'a' }", 1, 'forced nothing, expected "a"'),
        ("regex", "a", "{ backtrack = 1 }", 1, "takes nothing back"),
        ("regex", "a", "{ suspended = true }", 1, "does not wait"),
        ("regex", "a", "{ forks = 2 }", 1, "does not fork"),
        ("regex", "a", "{ fork = 1 }", 1, "fork 1 does not exist"),
        ("regex", "[ab]", "{ error = 'no' }", 1, "the guest did not fail"),
        ("regex", "a", "{ sample_tokens = [259, 260] }", 1, '"yes" cannot be sampled'),
        ("regex", "a", "{ sample_tokens = [260] }", 1, "token 260, of 260, cannot be sampled"),
        ("regex", "[ab]", "{ log = ['no'] }", 1, 'the log lacks "no"; it has "regex constraint'),
        ("regex", "[ab]", "{ variables = { x = '1' } }", 1, "the variable x is not set"),
        ("regex", "(", "{ end = true }", 0, "did not start: "),
        ("forced", "a", "{ stop = true }", 1, 'forced "a", expected ""'),
        ("forced", "a", "{ forced = 'a' }, { forced = 'x' }", 1, "the controller stopped"),
        ("splice", "ab", "{ forced = 'ab', sample = 'a' }", 1, "nothing is sampled where"),
        ("splice", "ab", "{ forced = 'ab', end = true }", 1, "where the controller splices, but the step has end"),
        ("suspend", "", "{ suspended = true, allowed = ['a'], exactly = [] }", 1, "has allowed and exactly"),
        ("suspend", "", "{ suspended = true, forced = 'a' }", 1, "forced nothing"),
        ("suspend", "", "{ suspended = true, backtrack = 1 }", 1, "takes nothing back"),
        ("fork", "", "{ forks = 2, sample = 'a' }", 1, "forks, which is a step of its own, but the step has sample"),
        ("fork", "", "{ forks = 2, backtrack = 1 }", 1, "takes nothing back"),
        (
            "stop_first",
            "",
            "{ allowed = ['a'], stop = true }",
            1,
            "stopped before the next token, but the step has allowed",
        ),
        ("stop_first", "", "{ forks = 2, stop = true }", 1, "does not fork"),
        ("stop_first", "", "{ backtrack = 1, stop = true }", 1, "takes nothing back"),
        (
            "trap",
            "",
            "{ end = true, error = 'about to trap' }",
            1,
            "failed before the next token, but the step has end",
        ),
        ("splice", "ab", "{ forced = 'ab', holds = true }", 1, "does not let the step pass"),
        ("regex", "a", "{ holds = true }", 1, "does not let the step pass"),
        ("declctrl", _WAITS_AFTER_FORK, "{ forced = 'a', forks = 2 }, { fork = 1 }", 2, "lets the step pass"),
        ("declctrl", _WAITS_AFTER_FORK, "{ forced = 'a', forks = 2 }, { suspended = true }", 2, "does not wait"),
        ("splice", "b", "{ forced = 'b' }, { sample = 'xy' }", 2, "splices inside the sampled text"),
        ("suspend", "", "{ end = true }", 1, "the controller waits"),
        ("fork", "", "{ end = true }", 1, "the controller forks into 2"),
        ("vars", "", "{ variables = { x = 'two' }, stop = true }", 1, 'the variable x is "one, two"'),
        ("trap", "", "{ end = true }", 1, "the guest failed: Error (mid): about to trap"),
        ("trap", "", "{ error = 'something' }", 1, "the guest failed: Error (mid): about to trap"),
        ("loop_mid", "", "{ end = true }", 1, "the guest failed: Worker: timeout"),
    ],
)
def test_cases_that_do_not_hold(run: Run, guest: str, argument: str, steps: str, step: int, says: str) -> None:
    outcome = run(guest, f"argument = '{argument}'\nsteps = [{steps}]")
    assert outcome.step == step
    assert says in outcome.message


def test_other_cases_that_do_not_hold(run: Run) -> None:
    assert "did not start: " in run("regex", "argument = '('\nerror = 'other'").message
    assert run("regex", "argument = 'a'\nerror = 'other'").message == "the guest started; expected: other"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no [[case]]"),
        ("[[case]\n", "is not TOML"),
        ("[[cases]]\n", "cases is not known"),
        ("tokens = [1]\n[[case]]\n", "tokens must hold strings only"),
        ("tokens = ['']\n[[case]]\n", "an empty text cannot be a token"),
        ("case = [1]", "case 1 is not a table"),
        ("[[case]]\nname = 1", "case 1: name is not a string"),
        ("[[case]]\nsteps = [{}, { alowed = [] }]", "case 1, step 2: alowed is not known"),
        ("[[case]]\nsteps = [{ allowed = 'a' }]", "step 1: allowed is not an array"),
        ("[[case]]\nsteps = [{ allowed = [1] }]", "allowed must hold strings only"),
        ("[[case]]\nsteps = [{ end = 1 }]", "end is not true or false"),
        ("[[case]]\nsteps = [{ fork = true }]", "fork is not a whole number"),
        ("[[case]]\nsteps = [{ fork = -1 }]", "fork is less than 0"),
        ("[[case]]\nsteps = [{ forks = 0 }]", "forks is less than 1"),
        ("[[case]]\nsteps = [{ backtrack = -1 }]", "backtrack is less than 0"),
        ("[[case]]\nsteps = [{ sample_tokens = [-1] }]", "sample_tokens must hold token ids only"),
        ("[[case]]\nsteps = [{ sample_tokens = [] }]", "sample_tokens is empty"),
        ("[[case]]\nsteps = [{ sample = '' }]", "sample is empty"),
        ("[[case]]\nsteps = [{ error = '' }]", "error is empty"),
        ("[[case]]\nsteps = [{ log = [''] }]", "log: an empty text says nothing"),
        ("[[case]]\nsteps = [{ refused = ['a', ''] }]", "refused: an empty text says nothing"),
        ("[[case]]\nerror = ''", "error is empty"),
        ("[[case]]\nargument = 2026-11-21", "argument cannot be written as JSON"),
        ("[[case]]\nargument = { a = nan }", "argument cannot be written as JSON"),
        ("[[case]]\nsteps = [{ sample_tokens = ['a'] }]", "sample_tokens must hold token ids only"),
        ("[[case]]\nsteps = [{ sample = 'a', sample_end = true }]", "exclude each other"),
        ("[[case]]\nsteps = [{ variables = { x = 1 } }]", "variables must hold strings only"),
        ("[[case]]\nargument = ''\nargument_file = 'x'", "exclude each other"),
        ("[[case]]\nargument_file = 'none'", "cannot be read"),
        ("[[case]]\nerror = 'x'\nsteps = [{ end = true }]", "there are no steps"),
    ],
)
def test_files_that_mean_nothing(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "cases.toml").write_text(text)
    with pytest.raises(UsageError) as refused:
        read_cases(tmp_path / "cases.toml")
    assert says in refused.value.message


def test_arguments(tmp_path: Path) -> None:
    (tmp_path / "rules.txt").write_bytes("[a-z]é\r\n".encode())
    (tmp_path / "cases.toml").write_text(
        "[[case]]\nargument_file = 'rules.txt'\n[[case]]\nargument = { a = [1, 'é'] }\n[[case]]\n"
    )
    assert [case.argument for case in read_cases(tmp_path / "cases.toml").cases] == [
        "[a-z]é\r\n",
        '{"a": [1, "é"]}',
        "",
    ]
    with pytest.raises(NotFoundError):
        read_cases(tmp_path / "none.toml")


def test_a_misspelt_key_gets_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "cases.toml").write_text("[[case]]\nsteps = [{ alowed = [] }]")
    with pytest.raises(UsageError) as refused:
        read_cases(tmp_path / "cases.toml")
    assert refused.value.hint == "did you mean allowed?"
