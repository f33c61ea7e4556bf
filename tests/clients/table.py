"""The table client by feature, as a page of the documentation."""

from collections.abc import Mapping, Sequence

from tests.clients.catalogue import CLIENTS
from tests.clients.client import Check, Client

FEATURES = (
    "chat",
    "stream",
    "multi-turn",
    "tools",
    "parallel tools",
    "structured output",
    "tools + structured output",
    "constraints",
    "responses",
    "messages",
    "logprobs",
    "usage",
    "errors",
    "embeddings",
)
"""`constraints`: fields of ours, of vLLM or of SGLang. `messages`: Anthropic's protocol. `errors`: the client raises
its own class of errors, with our message."""
INTRO = """<!-- Written by `python -m tests.clients --make --write`: do not edit. -->
# Clients

Each client below ran unmodified against `aici serve` with the default model, in an environment of its own. The
programs are in `tests/clients/programs`. `python -m tests.clients --make --write` installs the clients, runs the
programs and writes this page; `AICI_ORIGINAL` names a checkout of upstream AICI, which no registry has.

- ✓: all checks of the feature passed. A number says how many there are, if more than one.
- a letter: a check failed, and the note below says why.
- ✗: a check failed, and the catalogue of clients knows no reason.
- empty: the client has no such feature, or no program uses the feature.

The columns `constraints` and `messages` stand for the constraint fields of this server, vLLM and SGLang, and for
Anthropic's protocol. Where a model decides whether it calls a tool, the check is that every request was answered.

"""


def page(found: Mapping[str, Sequence[Check]]) -> str:
    """Return the page for the checks of each client, by the client's name."""
    notes: list[str] = []
    rows = [
        [client.name, *(_cell(client, feature, found[client.name], notes) for feature in FEATURES)]
        for client in CLIENTS
        if client.name in found
    ]
    lines = [["client", *FEATURES], ["---"] * (1 + len(FEATURES)), *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    said = "".join(f"- {_letter(number)}: {note}\n" for number, note in enumerate(notes))
    versions = "".join(f"| {client.name} | {_versions(client)} |\n" for client in CLIENTS if client.name in found)
    return f"{INTRO}{table}\n{said}\n## Versions\n\n| client | packages |\n|---|---|\n{versions}"


def unexplained(client: Client, checks: Sequence[Check]) -> list[Check]:
    """Return the failed checks for which the catalogue has no reason."""
    return [check for check in checks if check.error and client.excuse(check) is None]


def stale_excuses(client: Client, checks: Sequence[Check]) -> list[str]:
    """Return the keys of `client.theirs` for which no check fails any more."""
    failed = {name for check in checks if check.error for name in (check.feature, f"{check.feature}: {check.detail}")}
    return [key for key in client.theirs if key not in failed]


def _cell(client: Client, feature: str, checks: Sequence[Check], notes: list[str]) -> str:
    about = [check for check in checks if check.feature == feature]
    failed = [check for check in about if check.error]
    if any(client.excuse(check) is None for check in failed):
        return "✗"
    passed = len(about) - len(failed)
    marks = ["✓" if passed == 1 else f"✓ {passed}"] if passed else []
    for check in failed:
        note = f"{client.name}: {client.excuse(check)}"
        if note not in notes:
            notes.append(note)
        if (letter := _letter(notes.index(note))) not in marks:
            marks.append(letter)
    return " ".join(marks)


def _letter(number: int) -> str:
    return chr(ord("a") + number)


def _versions(client: Client) -> str:
    return ", ".join(f"`{package}`" for package in client.environment.packages)
