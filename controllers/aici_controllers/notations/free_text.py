"""Free text that stops at the first of some texts, as rules: the automaton of Aho and Corasick, a rule for each state.

As complements of regexes the same texts take several times as long at the first masks.
"""

from collections.abc import Mapping, Sequence

from aici_controllers.notations.facts import NEVER
from aici_controllers.notations.regex_reader import class_char
from aici_controllers.notations.tree import ANY_CHAR, EMPTY, Chars, Node, Ref, Rule, alternatives, sequence


def free_text(name: str, follows: Mapping[str, Node], excludes: Sequence[str] = ()) -> list[Rule]:
    """Return rules, the first of which is called `name`: text without any of `excludes`, which may end anywhere, and
    behind the first of the texts `follows` goes on with the node there. Where two texts end together, both nodes may
    come; an excluded text comes never."""
    words = [*follows, *excludes]
    beginnings = {word[:size] for word in words for size in range(len(word))}
    chars = sorted(set("".join(words)))
    start, rules = Ref(name), []
    states = {"": start}  # by the longest beginning of a word that was just read
    for state in (todo := [""]):
        ways: dict[Node, str] = {}
        for char in chars:
            text = state + char
            way: Node
            if any(text.endswith(word) for word in excludes):
                way = NEVER
            elif ends := [follow for word, follow in follows.items() if text.endswith(word)]:
                way = alternatives(*ends)
            else:
                after = next(text[at:] for at in range(len(text) + 1) if text[at:] in beginnings)
                if after not in states:
                    states[after] = Ref(f"{name}_{len(states)}")
                    todo.append(after)
                way = states[after]
            ways[way] = ways.get(way, "") + char
        ways.pop(start, None)
        known = "".join(map(class_char, "".join(ways.values())))
        others = Chars(f"[^{known}]") if known else ANY_CHAR
        bodies = [
            sequence(Chars(f"[{''.join(map(class_char, each))}]"), way) for way, each in ways.items() if way != NEVER
        ]
        rules.append(Rule(states[state].name, alternatives(EMPTY, sequence(others, start), *bodies)))
    return rules
