"""Structural tags against XGrammar: `python -m tests.grammars.structural_tags --documents 200 --seed 1`.

Random documents, and texts drawn from pieces of each document, so that many are right and most are wrong a little. Both
must agree whether a text is complete, and how many of its bytes begin a text. Triggers, ends and
excluded texts that hold each other are left out: XGrammar overlooks the inner one. XGrammar is no dependency of the
tests: `pip install --no-deps apache-tvm-ffi xgrammar==0.2.8`.
"""

import argparse
import json
import random
import sys
from collections import Counter
from typing import Any

from aici_controllers.structural_tag_check import accepts_texts, check_structural_tag

_WORDS = ("a", "b", "<", "<t", "<t>", "<tt>", "</t>", "</", ">", "x", "ab", "ba", "aab", "<a", "[", "]", ",", "1", "12")
_LEAVES: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    ({"type": "json_schema", "json_schema": {"type": "integer"}}, ("1", "-20", "0")),
    ({"type": "json_schema", "json_schema": {"enum": ["a", True]}}, ('"a"', "true")),
    ({"type": "regex", "pattern": "[ab]{1,2}"}, ("a", "ab", "b")),
    ({"type": "regex", "pattern": "x|</?"}, ("x", "<", "</")),
    ({"type": "grammar", "grammar": 'root ::= "[" root? "]"'}, ("[]", "[[]]")),
    ({"type": "const_string", "value": "ab"}, ("ab",)),
    ({"type": "const_string", "value": "<t>"}, ("<t>",)),
)


class Documents:
    """Draws random documents. `pieces` are texts that the last document speaks of."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.pieces: list[str] = []
        self._ends: list[list[str]] = [[]]  # of the tags around

    def document(self) -> dict[str, Any]:
        self.pieces = list(_WORDS)
        if self._draw.random() < 0.1:
            return self._legacy()
        return {"type": "structural_tag", "format": self._format(3)}

    def _legacy(self) -> dict[str, Any]:
        tags = [
            {"begin": tag["begin"], "schema": {"enum": ["a", 1]}, "end": str(tag["end"][0])} for tag in self._tags(0)
        ]
        triggers = _apart(self._triggers(tags))
        tags = [tag for tag in tags if tag["begin"].startswith(tuple(triggers))]
        self.pieces += ['"a"', "1"]
        return {"type": "structural_tag", "structures": tags, "triggers": triggers}

    def _format(self, depth: int) -> dict[str, Any]:
        draw = self._draw
        if depth == 0 or draw.random() < 0.2:
            return self._leaf()
        kind = draw.choice(
            ("triggered_tags",) * 5
            + ("tag", "tag", "dispatch", "tags_with_separator", "sequence", "or", "optional", "star", "plus", "repeat")
        )
        match kind:
            case "triggered_tags":
                tags, triggers = self._tags_and_triggers(depth - 1)
                flags = {name: True for name in ("at_least_one", "stop_after_first") if draw.random() < 0.2}
                return {"type": kind, "tags": tags, "triggers": triggers, **self._excludes(triggers), **flags}
            case "tag":
                return self._tags(depth - 1)[0]
            case "dispatch":
                words = _apart(draw.sample(_WORDS, draw.randint(1, 3)))
                rules = [[word, self._format(depth - 1)] for word in words]
                return {"type": kind, "rules": rules, "loop": draw.random() < 0.7, **self._excludes(words)}
            case "tags_with_separator":
                flags = {name: True for name in ("at_least_one", "stop_after_first") if draw.random() < 0.3}
                return {"type": kind, "tags": self._tags(depth - 1), "separator": draw.choice((",", "", "a")), **flags}
            case "sequence" | "or":
                return {"type": kind, "elements": [self._format(depth - 1) for _ in range(draw.randint(1, 3))]}
            case "repeat":
                low = draw.randint(0, 2)
                return {"type": kind, "min": low, "max": draw.choice((-1, low, low + 1)), "content": self._format(0)}
            case _:
                return {"type": kind, "content": self._format(depth - 1)}

    def _leaf(self) -> dict[str, Any]:
        if self._draw.random() < 0.3:
            most = {"max_chars": self._draw.randint(0, 6)} if self._draw.random() < 0.2 else {}
            return {"type": "any_text", **self._excludes([]), **most}
        document, texts = self._draw.choice(_LEAVES)
        self.pieces += texts
        return document

    def _excludes(self, triggers: list[str]) -> dict[str, Any]:
        words = self._draw.sample(_WORDS, self._draw.randint(1, 2))
        if self._draw.random() < 0.7 or len(_apart([*triggers, *words])) < len(triggers) + len(words):
            return {}
        return {"excludes": words}

    def _tags(self, depth: int) -> list[dict[str, Any]]:
        draw, tags = self._draw, []
        for _ in range(draw.randint(1, 3)):
            begin = "".join(draw.sample(("<", "t", "a", "<t", ">"), draw.randint(1, 3)))
            ends = draw.sample(("</t>", "]", "</", "ba", ">"), draw.randint(1, 2))
            end = ends if draw.random() < 0.2 else ends[0]
            self._ends.append(ends)
            tags.append({"type": "tag", "begin": begin, "content": self._format(depth), "end": end})
            self._ends.pop()
            self.pieces += [begin, begin, *ends]
        return tags

    def _tags_and_triggers(self, depth: int) -> tuple[list[dict[str, Any]], list[str]]:
        while True:
            tags = self._tags(depth)
            triggers = self._triggers(tags)
            is_beside = not any(trigger in end or end in trigger for trigger in triggers for end in self._ends[-1])
            if is_beside and len(_apart(triggers)) == len(triggers):
                return tags, triggers

    def _triggers(self, tags: list[dict[str, Any]]) -> list[str]:
        """Beginnings of the tags, none of which begins with another."""
        found: list[str] = []
        for tag in tags:
            begin = tag["begin"]
            if not any(begin.startswith(trigger) for trigger in found):
                trigger = begin[: self._draw.randint(1, len(begin))]
                found = [other for other in found if not other.startswith(trigger)] + [trigger]
        return found


def _apart(words: list[str]) -> list[str]:
    """Return the words but for those that hold another."""
    return [word for word in words if not any(other in word for other in words if other != word)]


class XGrammarTags:
    """XGrammar over single bytes."""

    def __init__(self, document: str) -> None:
        import xgrammar

        vocabulary = [bytes([byte]) for byte in range(256)] + [b"</s>"]
        info = xgrammar.TokenizerInfo(vocabulary, xgrammar.VocabType.RAW, stop_token_ids=[256])
        compiled = xgrammar.GrammarCompiler(info, cache_enabled=False).compile_structural_tag(document)
        self._new: Any = lambda: xgrammar.GrammarMatcher(compiled)

    def verdict(self, text: str) -> tuple[bool, int]:
        matcher = self._new()
        for at, byte in enumerate(text.encode()):
            if not matcher.accept_token(byte):
                return False, at
        return bool(matcher.accept_token(256)), len(text.encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    count: Counter[str] = Counter()
    for number in range(arguments.documents):
        draw = random.Random(f"{arguments.seed} {number}")
        documents = Documents(draw)
        document = json.dumps(documents.document())
        ours, theirs = check_structural_tag(document), None
        try:
            theirs = XGrammarTags(document)
        except RuntimeError as error:
            count["declined by xgrammar"] += 1
            if not ours.problems and arguments.documents <= 20:
                print(f"xgrammar declines: {error}\n  {document}")
        if ours.problems:
            count["declined"] += 1
            if theirs:
                print(f"declined: {ours.problems[0].show()}\n  {document}")
        if ours.problems or ours.warnings or not theirs:
            continue
        texts = ["".join(draw.choices(documents.pieces, k=draw.randint(0, 9))) for _ in range(arguments.texts)]
        for text, verdict in zip(texts, accepts_texts(ours, texts), strict=True):
            other = theirs.verdict(text)
            count["complete" if other[0] else "wrong" if other[1] < len(text) else "unfinished"] += 1
            if verdict != other:
                count["different"] += 1
                print(f"{text!r}: {verdict}, xgrammar {other}\n  {document}")
    print(dict(count))
    return 1 if count["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
