"""One module changes the fields of a sequence's part, as `aici_engine.sequences.sequence` says."""

import ast
from collections.abc import Iterator
from pathlib import Path

import aici_engine

OWNERS = {
    "transcript": {"event_output.py"},
    "progress": {"scheduler.py", "vllm/row_queue.py"},
    "guest": {"control/guest_starts.py", "control/session.py", "control/guest_wishes.py"},
    "sampler": {"sample/logprobs.py", "sample/sampler.py", "sample/device_sampler.py"},
    "clock": set[str](),
    "group": set[str](),
}
ROOT = Path(aici_engine.__file__).parent
MUTATING = {"append", "extend", "clear", "pop", "insert", "remove"}


def changes(tree: ast.AST) -> Iterator[str]:
    """Yield the parts `x.<part>.<field>` that are assigned to, or whose field is a list that is changed."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [each for target in node.targets for each in getattr(target, "elts", [target])]
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING:
            targets = [node.func.value]
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Attribute):
                yield target.value.attr


def test_only_its_owner_changes_a_part() -> None:
    found = set()
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("sequences/", "server/")):
            continue
        for part in changes(ast.parse(path.read_text())):
            if part in OWNERS:
                assert name in OWNERS[part], f"{name} changes a field of {part}"
                found.add(part)
    # The check sees assignments at all.
    assert {"transcript", "progress", "guest"} <= found
