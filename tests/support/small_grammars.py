"""Random small grammars over the terminals a, b and c."""

import random

from tests.support.lr_oracle import Precedences, Rule, SmallGrammar

TERMINALS = "abc"


def small_grammar(rng: random.Random) -> SmallGrammar:
    """Return a grammar in which every rule can end (the reader refuses others); some rules are unreachable, many are
    not LR(1)."""
    heads = "ABCD"[: rng.randint(1, 4)]
    rules: dict[Rule, None] = {}
    for head in heads:
        for _ in range(rng.randint(1, 3)):
            size = rng.choice([0, 1, 1, 2, 2, 3, 3, 4])
            rules[Rule(head, tuple(rng.choice([*heads, *TERMINALS * 2]) for _ in range(size)))] = None
    lines: list[tuple[str, str]] = []
    if rng.random() < 0.5:
        order = "".join(rng.sample(TERMINALS, 3))
        cut = rng.randint(1, 3)
        lines = [(rng.choice(["left", "right", "nonassoc"]), part) for part in (order[:cut], order[cut:]) if part]
    grammar = SmallGrammar(tuple(rules), Precedences(tuple(lines)))
    ending = grammar.productive()
    kept = [rule for rule in rules if rule.head in ending and set(rule.body) <= ending | set(TERMINALS)]
    return SmallGrammar(tuple(kept) or (Rule("A", ("a",)),), grammar.precedences)
