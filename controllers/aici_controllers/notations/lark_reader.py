"""Read the text of a Lark grammar, in Lark's own dialect or llguidance's, into statements."""

import json
import re
from typing import Any, Final

from aici_controllers.notations.lark_file import Declare, Definition, Ignore, Import, Options, Statement, is_terminal
from aici_controllers.notations.parameters import read_condition, read_value
from aici_controllers.notations.regex_reader import RegexReader, class_char
from aici_controllers.notations.source import Cursor
from aici_controllers.notations.tree import (
    EMPTY,
    Both,
    Chars,
    ExactText,
    Guarded,
    Json,
    Lexeme,
    Node,
    Not,
    Parametric,
    Place,
    Ref,
    Repeat,
    alternatives,
    sequence,
)

_NAME: Final = re.compile(r"_*[A-Za-z]\w*(?:-\w+)*")
_ITEM: Final = re.compile(
    r"[?!]*_*[A-Za-z][\w-]*(?:::_)?[ \t]*(\{[^}\n]*\})?[ \t]*(\.[ \t]*-?\d+)?[ \t]*(\[[^\]\n]*\])?[ \t]*:(?!:)"
    r"|%(?!json\b|regex\b|if\b)[a-z]+"
)
_IF: Final = re.compile(r"%if\b")
_COUNT: Final = re.compile(r"\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
_TILDE_COUNT: Final = re.compile(r"~\s*(\d+)(?:\s*\.\.\s*(\d+))?")
_STRING: Final = re.compile(r'"((?:\\.|[^"\\\n])*)"(i?)')
_REGEX_FLAGS: Final = re.compile(r"[imslux]*")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", '"': '"', "\\": "\\"}
_MAX_DEPTH: Final = 100
_MAX_CHUNKS: Final = 64


class LarkReader:
    """Reads a file once. `json_strings`: escapes in strings are JSON's, as in llguidance."""

    def __init__(self, text: str) -> None:
        self._source = Cursor(text)
        self._json_strings = re.search(r"(?m)^\s*%llguidance\b", text) is not None
        self._depth = 0

    def read(self) -> list[Statement]:
        statements: list[Statement] = []
        self._skip()
        while not self._source.done:
            statements += self._statement()
            self._skip()
        return statements

    # Blanks and comments. Inside an item a new line goes on with the item unless another item begins there.
    def _skip(self) -> None:
        source = self._source
        while not source.done:
            if source.peek().isspace():
                source.take()
            elif source.peek() == "#" or source.starts("//"):
                end = source.text.find("\n", source.offset)
                source.offset = len(source.text) if end < 0 else end
            elif source.peek() == "\\" and source.text[source.offset + 1 :].lstrip(" \r").startswith("\n"):
                source.offset = source.text.index("\n", source.offset)
            else:
                return

    def _skip_inside(self) -> bool:
        """Skip blanks inside of an item. Return False at the start of the next item."""
        before = self._source.offset
        self._skip()
        passed = self._source.text[before : self._source.offset]
        if self._depth == 0 and "\n" in passed and _ITEM.match(self._source.text, self._source.offset):
            self._source.offset = before
            return False
        return not self._source.done

    def _statement(self) -> list[Statement]:
        source, place = self._source, self._source.place()
        if source.peek() != "%":
            return [self._definition("new")]
        directive = re.compile(r"%\w*").match(source.text, source.offset)
        assert directive
        source.offset = directive.end()
        match directive[0]:
            case "%ignore":
                return [Ignore(self._expansions(), place)]
            case "%import":
                return [self._import(place)]
            case "%declare":
                return [Declare(self._names_on_line(), place)]
            case "%extend" | "%override" as word:
                self._skip()
                return [self._definition("extend" if word == "%extend" else "override")]
            case "%llguidance":
                options = self._json("%llguidance")
                if not isinstance(options, dict):
                    raise source.error("%llguidance is followed by a JSON object", None)
                return [Options(options, place)]
        known = "%ignore, %import, %declare, %extend, %override and %llguidance"
        raise source.error(f"{directive[0]} is not a directive of Lark: there are {known}", directive.start())

    def _definition(self, how: Any) -> Definition:
        source = self._source
        modifiers = re.compile(r"[?!]*").match(source.text, source.offset)
        assert modifiers
        source.offset = modifiers.end()
        place = source.place()
        name = self._name("a rule, a terminal or a directive begins here")
        params: tuple[str, ...] = ()
        has_number = source.accept("::_")
        if has_number and is_terminal(name):
            raise source.error("a terminal has no parameter: only rules have")
        self._skip()
        if source.accept("{"):
            listed = [self._param()]
            while source.accept(","):
                listed.append(self._param())
            if not source.accept("}"):
                raise source.error("expected } after the parameters of the template")
            params = tuple(listed)
            self._skip()
        priority = None
        if source.accept("."):
            digits = re.compile(r"\s*(-?\d+)").match(source.text, source.offset)
            if not digits:
                raise source.error("expected a number: the priority")
            source.offset, priority = digits.end(), int(digits[1])
            self._skip()
        attributes = self._attributes() if source.accept("[") else {}
        self._skip()
        if not source.accept(":"):
            hint = " (::= is GBNF's, : is Lark's)" if source.starts("=") else ""
            raise source.error(f"expected : after {name}{hint}")
        if source.starts(":="):
            raise source.error("a rule of Lark has : here; ::= is GBNF's")
        return Definition(name, self._expansions(), place, params, priority, attributes, how, has_number)

    def _param(self) -> str:
        self._skip()
        name = self._name("expected the name of a parameter")
        self._skip()
        return name

    def _attributes(self) -> dict[str, Node | None]:
        attributes: dict[str, Node | None] = {}
        source = self._source
        while True:
            self._skip()
            at = source.offset
            name = self._name("expected an attribute, such as lazy")
            self._skip()
            attributes[name] = None
            if source.accept("="):
                self._skip()
                if number := re.compile(r"[\d.]+").match(source.text, source.offset):
                    source.offset = number.end()
                    attributes[name] = ExactText(number[0], False, source.place(at))
                else:
                    self._depth += 1
                    attributes[name] = self._atom()
                    self._depth -= 1
                self._skip()
            if source.accept("]"):
                return attributes
            if not source.accept(","):
                raise source.error("expected , or ] after an attribute")

    def _import(self, place: Place) -> Import:
        source = self._source
        self._skip()
        path = re.compile(r"\.*[\w-]+(?:\.[\w-]+)*").match(source.text, source.offset)
        if not path:
            raise source.error("expected a path such as common.WORD")
        source.offset = path.end()
        rest = re.compile(r"[ \t]*").match(source.text, source.offset)
        assert rest
        source.offset = rest.end()
        if source.accept("("):
            names = []
            while not source.accept(")"):
                self._skip()
                names.append(self._name("expected the name of a rule or terminal"))
                self._skip()
                if not source.accept(",") and source.peek() != ")":
                    raise source.error("expected , or ) in the list of names")
                self._skip()
            return Import(path[0], tuple((name, name) for name in names), place)
        module, dot, name = path[0].rpartition(".")
        if not dot or not module.strip("."):
            module, name = path[0], path[0].lstrip(".")
        alias = name
        if source.accept("->"):
            self._skip()
            alias = self._name("expected a name after ->")
        return Import(module, ((name, alias),), place)

    def _names_on_line(self) -> tuple[str, ...]:
        names = re.compile(r"(?:[ \t]+[\w-]+)*").match(self._source.text, self._source.offset)
        assert names
        self._source.offset = names.end()
        return tuple(names[0].split())

    def _name(self, expected: str) -> str:
        found = _NAME.match(self._source.text, self._source.offset)
        if not found:
            shown = self._source.text[self._source.offset : self._source.offset + 12].split("\n")[0]
            raise self._source.error(
                f"{expected}; found {shown!r}" if shown else f"{expected}; found the end of the line"
            )
        self._source.offset = found.end()
        return found[0]

    def _expansions(self) -> Node:
        options = [self._alias()]
        while self._skip_inside() and self._source.accept("|"):
            options.append(self._alias())
        return alternatives(*options)

    def _alias(self) -> Node:
        node = self._conjunction()
        if self._skip_inside() and self._source.accept("->"):
            self._skip()
            self._name("expected a name after ->")
        if self._skip_inside() and self._source.accept("%if"):
            node = Guarded(node, read_condition(self._source))
        return node

    def _conjunction(self) -> Node:
        items = [self._concatenation()]
        while self._skip_inside() and self._source.accept("&"):
            items.append(self._concatenation())
        return items[0] if len(items) == 1 else Both(tuple(items))

    def _concatenation(self) -> Node:
        items: list[Node] = []
        while self._skip_inside() and self._source.peek() not in "|&)]}," and not self._at_end_of_alternative():
            items.append(self._repeated())
        return sequence(*items)

    def _at_end_of_alternative(self) -> bool:
        return self._source.starts("->") or bool(_IF.match(self._source.text, self._source.offset))

    def _repeated(self) -> Node:
        source = self._source
        if source.peek() == "~":
            source.take()
            self._skip()
            item: Node = Not(self._atom())
        else:
            item = self._atom()
        while True:
            at = source.offset
            if not self._skip_inside():
                return item
            if source.peek() in "*+?":
                low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[source.take()]
            elif count := _TILDE_COUNT.match(source.text, source.offset):
                source.offset, low = count.end(), int(count[1])
                high = int(count[2]) if count[2] else low
            elif (count := _COUNT.match(source.text, source.offset)) and (count[1] or count[2]):
                source.offset, low = count.end(), int(count[1] or 0)
                high = int(count[3]) if count[3] else None if count[2] else low
            else:
                return item
            if high is not None and high < low:
                raise source.error("the least repeat count is above the greatest", at)
            item = Repeat(item, low, high)

    def _atom(self) -> Node:
        source, place, at = self._source, self._source.place(), self._source.offset
        match source.peek():
            case "(" | "[":
                return self._bracketed(at)
            case '"':
                return self._string()
            case "/":
                return Lexeme(self._regex(), place)
            case "%":
                return self._inline(at)
            case "<":
                raise source.error("special tokens are not text, and a grammar is about text: leave <...> out")
            case "@":
                raise source.error("other grammars (@name) are not supported: put their rules here")
            case "'":
                raise source.error('a text stands in double quotes: "..."')
        name = self._name("expected a name, a text or a regex")
        if source.peek() == "{" and not (
            (count := _COUNT.match(source.text, source.offset)) and (count[1] or count[2])
        ):
            return Ref(name, self._arguments(), place)
        if source.accept("::"):
            return Parametric(name, read_value(source), place)
        return Ref(name, (), place)

    def _arguments(self) -> tuple[Node, ...]:
        self._source.take()
        self._enter()
        args = [self._expansions()]
        while self._source.accept(","):
            args.append(self._expansions())
        self._leave("}")
        return tuple(args)

    def _bracketed(self, at: int) -> Node:
        opening = self._source.take()
        self._enter()
        body = self._expansions()
        self._leave(")" if opening == "(" else "]", at)
        return body if opening == "(" else Repeat(body, 0, 1)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._source.error(f"brackets are nested deeper than {_MAX_DEPTH}")

    def _leave(self, closing: str, at: int | None = None) -> None:
        self._skip()
        if not self._source.accept(closing):
            raise self._source.error(f"expected {closing}: this bracket is not closed", at)
        self._depth -= 1

    def _string(self) -> Node:
        source, place = self._source, self._source.place()
        found = _STRING.match(source.text, source.offset)
        if not found:
            raise source.error('this text has no end: " is missing on this line')
        value = self._unescaped(found[1], source.offset)
        source.offset = found.end()
        last = re.compile(r'\s*\.\.\s*"').match(source.text, source.offset)
        if not last:
            return ExactText(value, bool(found[2]), place)
        source.offset = last.end() - 1
        until = _STRING.match(source.text, source.offset)
        if not until:
            raise source.error('this text has no end: " is missing on this line')
        end = self._unescaped(until[1], source.offset)
        if len(value) != 1 or len(end) != 1 or value > end:
            raise source.error('a range goes from one character up to another, such as "a".."z"')
        source.offset = until.end()
        return Lexeme(Chars(f"[{class_char(value)}-{class_char(end)}]", bool(found[2] or until[2]), place), place)

    def _unescaped(self, raw: str, at: int) -> str:
        if self._json_strings:
            try:
                return str(json.loads(f'"{raw}"'))
            except ValueError as error:
                raise self._source.error("this text is not a JSON string, as llguidance's dialect wants", at) from error

        def char(found: re.Match[str]) -> str:
            if found[1]:
                return chr(int(found[1][1:], 16))
            return _ESCAPES.get(found[2], found[0])

        try:
            return re.sub(r"\\(?:(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})|(.))", char, raw)
        except (ValueError, OverflowError) as error:
            raise self._source.error("an escape of this text is no character", at) from error

    def _regex(self) -> Node:
        source, at = self._source, self._source.offset
        end = at + 1
        while end < len(source.text) and source.text[end] != "/":
            end += 2 if source.text[end] == "\\" else 1
        if end >= len(source.text):
            raise source.error("this regex has no end: / is missing", at)
        flags = _REGEX_FLAGS.match(source.text, end + 1)
        assert flags
        source.offset = at + 1
        node = RegexReader(source, end, flags[0]).read()
        source.offset = flags.end()
        return node

    def _inline(self, at: int) -> Node:
        source, place = self._source, self._source.place()
        if source.accept("%json"):
            return Json(json.dumps(self._json("%json"), ensure_ascii=False), place)
        if source.accept("%regex"):
            return Lexeme(self._structured(self._json("%regex"), at), place)
        raise source.error("expected %json {...} or %regex {...}")

    def _json(self, what: str) -> Any:
        self._skip()
        at = self._source.offset
        try:
            value, self._source.offset = json.JSONDecoder().raw_decode(self._source.text, at)
        except json.JSONDecodeError as error:
            raise self._source.error(
                f"{what} is followed by JSON: {error.msg}", min(error.pos, len(self._source.text))
            ) from error
        except RecursionError as error:
            raise self._source.error(f"the JSON after {what} is nested too deep", at) from error
        return value

    def _structured(self, value: Any, at: int) -> Node:
        match value:
            case {"substring_chunks": [*chunks]} if len(value) == 1 and all(isinstance(chunk, str) for chunk in chunks):
                pass
            case {"substring_words": str(text)} if len(value) == 1:
                chunks = re.findall(r"\w+|\W", text)
            case {"substring_chars": str(text)} if len(value) == 1:
                chunks = list(text)
            case _:
                raise self._source.error("%regex knows substring_chunks, substring_words and substring_chars", at)
        if len(chunks) > _MAX_CHUNKS:
            raise self._source.error(f"a substring of more than {_MAX_CHUNKS} parts: use the constraint substring", at)
        tails: list[Node] = []
        for chunk in reversed(chunks):
            tails.append(sequence(ExactText(chunk), Repeat(tails[-1], 0, 1)) if tails else ExactText(chunk))
        return alternatives(EMPTY, *reversed(tails))
