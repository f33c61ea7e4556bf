# The module that scripts import. aici.pyi says what everything here means.
import _aici
from _aici import (
    Constraint,
    TokenSet,
    append_var,
    detokenize,
    eos_token,
    get_prompt_len,
    get_tokens,
    get_var,
    self_seq_id,
    set_var,
    start,
    tokenize,
)

log_level = 1

_REGEX, _GRAMMAR, _JSON_SCHEMA, _SUBSTRING, _CHOICES, _OPTIONS = range(1, 7)
_SAMPLE, _SPLICE, _HOLD, _SKIP, _STOP = range(5)


def _step(begin, *arguments):
    begin(*arguments)
    return (yield)


def test(coroutine):
    async def run():
        await coroutine
        print("TEST OK")

    start(run())


async def GetPrompt():
    return get_tokens()[: get_prompt_len()]


async def FixedTokens(text, following=None):
    await _step(_aici.fixed, tokenize(text), None if following is None else following.ptr)


async def gen_tokens(
    regex=None,
    yacc=None,
    substring=None,
    substring_end=None,
    options=None,
    store_var=None,
    stop_at=None,
    max_tokens=20,
    choices=None,
    json_schema=None,
    max_bytes=None,
    max_words=None,
):
    constraints = {
        "regex": (RegexConstraint, regex),
        "yacc": (CfgConstraint, yacc),
        "substring": (lambda text: SubStrConstraint(text, substring_end or '"'), substring),
        "options": (ChooseConstraint, options),
        "choices": (ChoicesConstraint, choices),
        "json_schema": (JsonSchemaConstraint, json_schema),
    }
    given = [name for name, (_, value) in constraints.items() if value is not None]
    if len(given) > 1:
        raise ValueError("only one can constrain what is generated: " + ", ".join(sorted(given)))
    if substring is None and substring_end is not None:
        raise ValueError("substring_end means nothing without substring")
    constraint = None
    if given:
        make, value = constraints[given[0]]
        constraint = make(value)
    return await _step(_aici.gen, constraint, max_tokens, stop_at or "", store_var or "", max_bytes, max_words)


async def gen_text(**options):
    return _aici.text_of(detokenize(await gen_tokens(**options)))


async def fork(branches):
    if isinstance(branches, int):
        return await _step(_aici.fork, branches)
    first_steps = [MidProcessResult.of(branch) for branch in branches]
    branch = await _step(_aici.fork, len(first_steps))
    await _Once(first_steps[branch])
    return branch


async def wait_vars(*names):
    return await _step(_aici.wait_vars, names)


async def Noop():
    await _step(_aici.pause)


def fork_supported():
    return True


def backtrack_supported():
    return True


def get_config(name):
    return int(name in ("fork", "backtrack", "ff_tokens"))


class Label:
    def __init__(self):
        self.ptr = _aici.num_tokens()

    def tokens_since(self):
        return get_tokens()[self.ptr :]

    def text_since(self):
        return _aici.text_of(detokenize(self.tokens_since()))


def token_repr(token):
    if token == eos_token():
        return "EOS"
    if not 0 <= token < len(TokenSet()):
        return f"OOB[{token}]"
    text = detokenize([token])
    if not text:
        return f"EMPTY[{token}]"
    if "\ufffd" in _aici.text_of(text):
        return f"HEX[{text.hex()}]"
    import json

    return json.dumps(_aici.text_of(text))


def tokens_repr(tokens):
    parts = [token_repr(token) for token in tokens]
    return '"' + "‧".join(part[1:-1] if part[0] == '"' else f"≺{part}≻" for part in parts) + '"'


def all_tokens():
    tokens = TokenSet()
    tokens.set_all(True)
    return tokens


def RegexConstraint(pattern):
    return Constraint(_REGEX, [pattern])


def CfgConstraint(grammar):
    return Constraint(_GRAMMAR, [grammar])


def SubStrConstraint(template, stop_at='"'):
    return Constraint(_SUBSTRING, [template, stop_at])


def ChooseConstraint(options):
    return Constraint(_OPTIONS, options)


def ChoicesConstraint(choices):
    return Constraint(_CHOICES, choices)


def JsonSchemaConstraint(schema):
    if not isinstance(schema, str):
        import json

        schema = json.dumps(schema)
    return Constraint(_JSON_SCHEMA, [schema])


class DynamicLexer:
    def __init__(self, extra=""):
        self._extra = "".join("\\" + char for char in extra)
        self._words = []

    def add(self, word):
        self._words.append(word)
        return self

    def constraint(self):
        import re

        words = "|".join(re.escape(word) for word in self._words)
        no_start, no_part = f"[^A-Za-z_{self._extra}]", f"[^A-Za-z0-9_{self._extra}]"
        return RegexConstraint(f"{no_start}*({words})({no_part}{no_start}*({words}))*")


class Splice:
    def __init__(self, when_sampled=(), backtrack=0, ff_tokens=()):
        if when_sampled:
            raise NotImplementedError("when_sampled: a splice cannot depend on the token that is sampled")
        self.backtrack = backtrack
        self.ff_tokens = ff_tokens


class Branch:
    def __init__(self, splices=(), sample_mask=None):
        if len(splices) + (sample_mask is not None) != 1:
            raise NotImplementedError("a branch has either one splice or a mask")
        self.splices = splices
        self.sample_mask = sample_mask


class MidProcessResult:
    def __init__(self, kind, mask=None, backtrack=0, tokens=()):
        self._parts = (kind, mask, backtrack, tokens)

    @staticmethod
    def of(branch):
        if isinstance(branch, MidProcessResult):
            return branch
        if not isinstance(branch, Branch):
            raise TypeError("a Branch or a MidProcessResult is needed, not " + type(branch).__name__)
        if branch.sample_mask is not None:
            return MidProcessResult.bias(branch.sample_mask)
        return MidProcessResult.splice(branch.splices[0].backtrack, branch.splices[0].ff_tokens)

    @staticmethod
    def bias(mask):
        if not isinstance(mask, TokenSet):
            raise TypeError("bias() takes a TokenSet, not " + type(mask).__name__)
        return MidProcessResult(_SAMPLE, mask)

    @staticmethod
    def splice(backtrack, tokens):
        if backtrack < 0:
            raise ValueError(f"backtrack is {backtrack}")
        return MidProcessResult(_SPLICE, None, backtrack, tokens)

    @staticmethod
    def stop():
        return MidProcessResult(_STOP)

    @staticmethod
    def noop():
        return MidProcessResult(_HOLD)

    @staticmethod
    def skip():
        return MidProcessResult(_SKIP)


class NextToken:
    curr_tokens = None
    fork_group = ()
    _is_held = False

    def mid_process(self):
        raise NotImplementedError("mid_process")

    def post_process(self, backtrack, tokens):
        pass

    def __iter__(self):
        if hasattr(self, "pre_process"):
            raise NotImplementedError("pre_process is not called: do its work at the start of mid_process")
        self.curr_tokens = None
        yield from _step(_aici.own, self._mid, self._post)
        return self.curr_tokens

    def _mid(self, fork_group):
        if self._is_held:
            self._is_held = False
            self._post(0, [])
            return _SKIP, None, 0, ()
        self.fork_group = fork_group
        result = MidProcessResult.of(self.mid_process())
        if result._parts[0] == _HOLD:
            self._is_held = True
        return result._parts

    def _post(self, backtrack, tokens):
        self.curr_tokens = tokens
        self.post_process(backtrack, tokens)
        return True


class _Once(NextToken):
    def __init__(self, result):
        self._result = result

    def mid_process(self):
        return self._result


class ConstrainedToken(NextToken):
    def __init__(self, make_constraint):
        self._make = make_constraint
        self._constraint = None

    def mid_process(self):
        if self._constraint is None:
            self._constraint = self._make()
        mask = TokenSet()
        self._constraint.allow_tokens(mask)
        if not mask:
            print("Constraint doesn't allow any tokens; adding EOS")
            mask[eos_token()] = True
        return MidProcessResult.bias(mask)

    def post_process(self, backtrack, tokens):
        for token in tokens:
            self._constraint.append_token(token)


class StopToken(NextToken):
    def mid_process(self):
        return MidProcessResult.stop()


def check_var(name, expected):
    value = get_var(name)
    if value is None:
        raise AssertionError(f"the variable {name} is not set")
    if value != (expected.encode() if isinstance(expected, str) else expected):
        raise AssertionError(f"the variable {name} is {_aici.text_of(value)!r}, not {expected!r}")


def check_vars(expected):
    for name in expected:
        check_var(name, expected[name])
