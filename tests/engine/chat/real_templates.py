"""Compares turns with the chat templates of published models: `python -m tests.engine.chat.real_templates FOLDER`.

The folder has templates as files `NAME.jinja`, for example those in the source distribution of llama-cpp-python
(`vendor/llama.cpp/models/templates`). For each template, the syntax of its calls and its think tags are printed. If the
syntax is known, every case of `tool_cases` is rendered by the template, written by a scripted model, and read back.
"""

import sys
from collections import Counter
from pathlib import Path

from aici_base.errors import UsageError
from aici_engine.chat.settings import ChatSettings
from tests.engine.chat.tool_cases import CASES
from tests.engine.chat.tool_turns import prompt_and_answer, run, template
from tests.support.scripted_model import ScriptedModel


def outcome(source: str, name: str) -> str:
    """Return what comes of a case with a template: ok, refused (by the template), or what is wrong."""
    chat, case = template(source), CASES[name]
    syntax = ChatSettings().syntax_of(chat)
    try:
        prompt, answer = prompt_and_answer(chat, syntax, case)
    except UsageError:
        return "refused"
    try:
        text, calls, _ = run(ScriptedModel(prompt, answer), case, syntax)
    except Exception as error:  # noqa: BLE001 the report says what is wrong
        return f"{name}: {type(error).__name__} {str(error)[:200]}"
    if calls != list(case.calls):
        return f"{name}: {calls}"
    return "ok" if text.strip() == case.text.strip() else f"{name}: {text!r}"


def main(folder: Path) -> int:
    num_wrong = 0
    for file in sorted(folder.glob("*.jinja")):
        source = file.read_text()
        try:
            chat = template(source)
        except UsageError as error:
            print(f"{file.stem}: {error.message}")
            continue
        tags = ChatSettings().tags_of(chat)
        known = chat.tools
        syntax = "generic" if known is None else known.syntax.name
        found = Counter() if known is None else Counter(outcome(source, name) for name in CASES)
        num_wrong += sum(num for what, num in found.items() if what not in ("ok", "refused"))
        print(f"{file.stem:60} {syntax:14} {tags.name if tags else '-':10} {dict(found)}")
    return min(num_wrong, 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
