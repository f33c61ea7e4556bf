"""Read a structural tag: free text until a trigger, then a tag with constrained content, then free text again.

The document is that of XGrammar, vLLM and SGLang: a tree of formats under `format`, or the older `structures` and
`triggers`. The tree of the grammar is scannerless: every format is a set of texts, and free text is text without its
triggers.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from aici_controllers.notations.free_text import free_text
from aici_controllers.notations.json_part import JsonPart, pointer_of
from aici_controllers.notations.reading import read_tree
from aici_controllers.notations.schema_grammars import with_guest_grammars
from aici_controllers.notations.tree import (
    ANY_CHAR,
    ANY_TEXT,
    EMPTY,
    Both,
    Chars,
    ExactText,
    Json,
    Node,
    Not,
    NotationError,
    Pattern,
    Place,
    Ref,
    Repeat,
    Rule,
    Tree,
    alternatives,
    mapped,
    sequence,
)
from aici_controllers.schema_check import SchemaOptions, schema_with_options

if TYPE_CHECKING:
    from collections.abc import Callable

_START: Final = "root"
_MAX_DEPTH: Final = 50
_OF_TOKENS: Final = ("token", "exclude_token", "any_tokens", "token_triggered_tags", "token_dispatch")


class Spot(NamedTuple):
    """Where a part of the document stands: its JSON pointer, and the place inside of a text, such as a grammar."""

    pointer: str
    inside: Place = Place()


class TagTree(NamedTuple):
    """The grammar of a structural tag. Line n of a `Place` in `tree` is the spot n - 1 of `spots`."""

    tree: Tree
    spots: list[Spot]


def read_structural_tag(document: object, options: SchemaOptions) -> TagTree:
    """Return the grammar of a document. `options`: how its schemas are read. Raise PartError for a wrong one."""
    return _Reader(options).read(JsonPart(document))


class _Reader:
    def __init__(self, options: SchemaOptions) -> None:
        self._options = options
        self._rules: dict[str, Rule] = {}
        self._spots: list[Spot] = []
        self._depth = 0
        self._num_texts = 0
        self._warnings: list[tuple[Place, str]] = []
        self._ends: list[tuple[str, ...]] = [()]
        """The ends of the tags around, the innermost last. Free text in a tag stops at the tag's end."""
        self._readers: dict[str, Callable[[JsonPart], Node]] = {
            "const_string": self._const_string,
            "json_schema": self._json_schema,
            "regex": self._regex,
            "grammar": self._grammar,
            "any_text": self._any_text,
            "sequence": lambda part: sequence(*self._formats(part.get("elements"))),
            "or": lambda part: alternatives(*self._formats(part.get("elements"))),
            "optional": lambda part: Repeat(self._content(part), 0, 1),
            "star": lambda part: Repeat(self._content(part), 0, None),
            "plus": lambda part: Repeat(self._content(part), 1, None),
            "repeat": self._repeat,
            "tag": self._tag,
            "triggered_tags": self._triggered_tags,
            "tags_with_separator": self._tags_with_separator,
            "dispatch": self._dispatch,
        }

    def read(self, document: JsonPart) -> TagTree:
        place = self._place(document)
        if (kind := document.find("type")) and kind.text() != "structural_tag":
            raise kind.error('the document is {"type": "structural_tag", "format": {...}}')
        body = self._legacy(document) if document.find("structures") else self._format(document.get("format"))
        document.check_unused()
        self._rules = {_START: Rule(_START, body, place), **self._rules}
        tree = Tree(syntax="gbnf", start=_START, rules=self._rules, scannerless=True, warnings=tuple(self._warnings))
        return TagTree(tree, self._spots)

    def _legacy(self, document: JsonPart) -> Node:
        """`structures`: objects with `begin`, `schema` and `end`."""
        tags: list[tuple[str, Node]] = []
        for part in document.get("structures").items(empty=False):
            begin, schema, end = part.get("begin").text(), part.get("schema"), part.get("end").text()
            content = self._schema(schema, schema.parsed())
            tags.append((begin, sequence(content, ExactText(end))))
            part.check_unused()
        return self._free_text_with(document, self._by_trigger(document, tags), excludes=())

    # Formats.

    def _format(self, part: JsonPart) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise part.error(f"formats are nested deeper than {_MAX_DEPTH}")
        kind = part.get("type")
        name = kind.text()
        if name in _OF_TOKENS:
            raise kind.error(
                f"{name} speaks of tokens, and a structural tag is about text here: write the text instead"
            )
        if name == "qwen_xml_parameter":
            raise kind.error("parameters in XML are not supported: json_schema has the style json only")
        if name not in self._readers:
            raise kind.unknown("format", name, [*self._readers])
        node = self._readers[name](part)
        part.check_unused()
        self._depth -= 1
        return node

    def _formats(self, part: JsonPart) -> list[Node]:
        return [self._format(each) for each in part.items(empty=False)]

    def _content(self, part: JsonPart) -> Node:
        return self._format(part.get("content"))

    def _const_string(self, part: JsonPart) -> Node:
        value = part.get("value")
        return ExactText(value.text(), place=self._place(value))

    def _json_schema(self, part: JsonPart) -> Node:
        if (style := part.find("style")) and style.text() != "json":
            raise style.error("only the style json is supported")
        for name in ("excludes", "max_whitespace_cnt"):
            if (bound := part.find(name)) and bound.value not in (None, []):
                raise bound.error(f"{name} is not supported for a schema")
        any_order = part.flag("any_order")
        schema = part.get("json_schema")
        return self._schema(schema, schema.value, any_order=any_order)

    def _schema(self, part: JsonPart, schema: object, *, any_order: bool = False) -> Node:
        if not isinstance(schema, dict | bool):
            raise part.error("a schema is an object, true or false")
        options = replace(self._options, property_order="any") if any_order else self._options
        with_grammars = with_guest_grammars(schema, part.path)
        return Json(schema_with_options(with_grammars, options), self._place(part))

    def _regex(self, part: JsonPart) -> Node:
        pattern = part.get("pattern")
        if not pattern.text():
            raise pattern.error("the pattern is empty")
        return Pattern(pattern.text(), self._place(pattern))

    def _grammar(self, part: JsonPart) -> Node:
        """A grammar in GBNF. Its rules get names of their own."""
        source = part.get("grammar")
        try:
            tree = read_tree(source.text(), "gbnf")
        except NotationError as error:
            where = f"line {error.place.line}, column {error.place.column}: " if error.place.line else ""
            hint = "a grammar inside of a structural tag is in GBNF, which has no lexer"
            raise source.error(f"{where}{error.message} ({hint})") from error
        prefix = f"grammar{len(self._rules)}_"

        def own(node: Node) -> Node:
            node = mapped(node, own)
            match node:
                case Ref(name, _, place):
                    return Ref(prefix + name, place=self._place(source, place))
                case ExactText() | Chars():
                    return replace(node, place=self._place(source, node.place))
            return node

        for rule in tree.rules.values():
            name = prefix + rule.name
            self._rules[name] = Rule(name, own(rule.body), self._place(source, rule.place))
        return Ref(prefix + tree.start, place=self._place(source))

    def _any_text(self, part: JsonPart) -> Node:
        _refuse_tokens(part)
        excludes = (*part.texts("excludes"), *self._ends[-1])
        most = part.find("max_chars")
        if most is None or most.value is None:
            return self._text_without(excludes)
        bounded = Repeat(ANY_CHAR, 0, most.count())
        holds_one = sequence(ANY_TEXT, alternatives(*map(ExactText, excludes)), ANY_TEXT)
        return Both((bounded, Not(holds_one))) if excludes else bounded

    def _repeat(self, part: JsonPart) -> Node:
        low, high = part.get("min"), part.get("max")
        most = None if high.value == -1 else high.count()
        if most is not None and most < low.count():
            raise high.error("max is smaller than min")
        return Repeat(self._content(part), low.count(), most)

    # Tags.

    def _tag(self, part: JsonPart) -> Node:
        begin, rest = self._parts_of_tag(part)
        return sequence(ExactText(begin, place=self._place(part)), rest)

    def _parts_of_tag(self, part: JsonPart) -> tuple[str, Node]:
        """Return the beginning, and what follows: the content and the end."""
        begin, end = part.get("begin"), part.get("end")
        for each in (begin, end):
            if isinstance(each.value, dict):
                raise each.error("a token is not supported here: write its text")
        ends = (end.text(),) if isinstance(end.value, str) else end.all_texts(empty=False)
        self._ends.append(tuple(text for text in ends if text))
        content = self._content(part)
        self._ends.pop()
        return begin.text(), sequence(content, alternatives(*(ExactText(text) for text in ends)))

    def _tags(self, part: JsonPart) -> list[tuple[str, Node]]:
        tags = []
        for each in part.get("tags").items(empty=False):
            if (kind := each.find("type")) and kind.text() != "tag":
                raise kind.error("this list is of formats of the type tag")
            tags.append(self._parts_of_tag(each))
            each.check_unused()
        return tags

    def _triggered_tags(self, part: JsonPart) -> Node:
        tags = self._tags(part)
        rules = self._by_trigger(part, tags)
        excludes = (*part.texts("excludes"), *self._ends[-1])
        at_least_one, stop_after_first = part.flag("at_least_one"), part.flag("stop_after_first")
        if not at_least_one:
            return self._free_text_with(part, rules, excludes, loop=not stop_after_first)
        first = alternatives(*(sequence(ExactText(begin), rest) for begin, rest in tags))
        return first if stop_after_first else sequence(first, self._free_text_with(part, rules, excludes))

    def _by_trigger(self, part: JsonPart, tags: list[tuple[str, Node]]) -> list[tuple[str, Node]]:
        """Return each trigger with what follows it: the rests of the tags that begin with it."""
        triggers = part.get("triggers")
        texts = triggers.all_texts(empty=False)
        if "" in texts:
            raise triggers.error("a trigger is not empty")
        found: dict[str, list[Node]] = {text: [] for text in texts}
        for begin, rest in tags:
            fitting = [text for text in found if begin.startswith(text)]
            if len(fitting) != 1:
                count = "no trigger is" if not fitting else f"{len(fitting)} triggers are"
                raise triggers.error(f"{count} the beginning of the tag {begin!r}: one is needed")
            found[fitting[0]].append(sequence(ExactText(begin.removeprefix(fitting[0])), rest))
        if unused := next((text for text, rests in found.items() if not rests), None):
            raise triggers.error(f"no tag begins with the trigger {unused!r}")
        return [(text, alternatives(*rests)) for text, rests in found.items()]

    def _dispatch(self, part: JsonPart) -> Node:
        rules = []
        for rule in part.get("rules").items(empty=False):
            pattern, content = rule.pair()
            if not pattern.text():
                raise pattern.error("a pattern is not empty")
            rules.append((pattern.text(), self._format(content)))
        return self._free_text_with(part, rules, part.texts("excludes"), loop=part.flag("loop", default=True))

    def _free_text_with(
        self, part: JsonPart, rules: list[tuple[str, Node]], excludes: tuple[str, ...], *, loop: bool = True
    ) -> Node:
        """Free text. Behind the first trigger the text goes on with what stands beside the trigger in `rules`; then
        free text begins anew, if `loop`."""
        triggers = [trigger for trigger, _ in rules]
        name = self._new_name()
        more: Node = Ref(name) if loop else EMPTY
        for trigger in triggers:
            if inner := next((text for text in triggers if text in trigger[:-1]), None):
                self._warn(part, f"the trigger {trigger!r} never comes: the trigger {inner!r} in it comes first")
            elif inner := next((text for text in excludes if text in trigger), None):
                self._warn(part, f"the trigger {trigger!r} never comes: {inner!r} in it is excluded here")
        follows: dict[str, Node] = {}
        for trigger, rest in rules:
            way = sequence(rest, more)
            follows[trigger] = alternatives(follows[trigger], way) if trigger in follows else way
        return self._add(free_text(name, follows, excludes))

    def _text_without(self, excludes: tuple[str, ...]) -> Node:
        return self._add(free_text(self._new_name(), {}, excludes)) if excludes else ANY_TEXT

    def _new_name(self) -> str:
        self._num_texts += 1
        return f"text{self._num_texts}"

    def _add(self, rules: list[Rule]) -> Node:
        self._rules |= {rule.name: rule for rule in rules}
        return Ref(rules[0].name)

    def _tags_with_separator(self, part: JsonPart) -> Node:
        tags = alternatives(*(sequence(ExactText(begin), rest) for begin, rest in self._tags(part)))
        at_least_one, stop_after_first = part.flag("at_least_one"), part.flag("stop_after_first")
        separator = ExactText(part.get("separator").text())
        several = tags if stop_after_first else sequence(tags, Repeat(sequence(separator, tags), 0, None))
        return several if at_least_one else Repeat(several, 0, 1)

    def _warn(self, part: JsonPart, message: str) -> None:
        self._warnings.append((self._place(part), message))

    def _place(self, part: JsonPart, inside: Place = Place()) -> Place:  # noqa: B008
        self._spots.append(Spot(pointer_of(part.path), inside))
        return Place(len(self._spots), 1)


def _refuse_tokens(part: JsonPart) -> None:
    if (most := part.find("max_tokens")) and most.value is not None:
        raise most.error("max_tokens is not supported: a structural tag is about text here; max_chars bounds text")
