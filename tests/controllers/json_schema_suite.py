"""The JSON Schema Test Suite against the guest `json_schema`: a table of pass, declined and wrong for each draft.

    python -m tests.controllers.json_schema_suite [--folder SUITE/tests] [--show declined|wrong] [--only TEXT]

Without `--folder`, the suite (MIT licence) comes from the sdist of `jsonschema` in the package registry. Objects are
open and keys come in any order, as in the specification. An instance is written once, integers without a point. Cases
whose schema refers to another document, and instances that are no Unicode text, cannot be decided by a mask: they are
counted apart. `format.json` is left out: it says that formats constrain nothing, and here they do.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wasmtime

from tests.support.fake_host import GuestModule
from tests.support.guests import shipped_guest
from tests.support.schemas import ask_schema

_SDIST = "jsonschema==4.26.0"
_DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
_OTHER_DOCUMENT = "nothing in this document has that name"
_NO_VALUE = "no value satisfies"


@dataclass(frozen=True, slots=True)
class Case:
    """One instance of the suite and its verdict: pass, declined, wrong or undecided."""

    draft: str
    file: str
    schema: object
    instance: object
    valid: bool
    verdict: str
    why: str


def groups(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the draft, the file and each group: the required files, then those about formats."""
    for draft in _DRAFTS:
        required = sorted(path for path in (folder / draft).glob("*.json") if path.name != "format.json")
        for path in [*required, *sorted((folder / draft / "optional/format").glob("*.json"))]:
            for group in json.loads(path.read_text()):
                yield draft, str(path.relative_to(folder / draft)), group


def with_draft(schema: Any, draft: str) -> Any:
    """Return the schema with `$schema`, which the suite leaves out where the folder says it."""
    if not isinstance(schema, dict) or "$schema" in schema:
        return schema
    return {"$schema": _DRAFTS[draft], **schema}


def written(value: Any) -> Any:
    """Return the value with whole numbers as integers, which are written without a point."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [written(item) for item in value]
        case dict():
            return {key: written(item) for key, item in value.items()}
    return value


def judge(guest: GuestModule, draft: str, file: str, group: dict[str, Any]) -> Iterator[Case]:
    """Yield the cases of a group."""
    schema = with_draft(group["schema"], draft)
    texts = [json.dumps(written(test["data"]), ensure_ascii=False) for test in group["tests"]]
    encodable = [text.encode(errors="ignore").decode() for text in texts]
    try:
        report = ask_schema(guest, schema, encodable, objects="open", property_order="any")
        why = "; ".join(sorted({problem.message for problem in report.problems}))
        stopped = report.texts
    except (wasmtime.WasmtimeError, wasmtime.Trap) as error:  # a trap of the guest is a finding
        why, stopped = f"the guest failed: {str(error).splitlines()[-1]}", ()
    for number, test in enumerate(group["tests"]):
        verdict = "declined"
        if texts[number] != encodable[number] or _OTHER_DOCUMENT in why or "localhost" in str(schema_uri(schema)):
            verdict = "undecided"
        elif not why or why.startswith(_NO_VALUE):
            accepted = not why and stopped[number] is None
            verdict = "pass" if accepted == test["valid"] else "wrong"
        yield Case(draft, file, group["schema"], test["data"], test["valid"], verdict, why)


def schema_uri(schema: object) -> object:
    """Return the `$schema` of a schema: one of the suite's own cannot be read."""
    return schema.get("$schema") if isinstance(schema, dict) else None


def table(cases: list[Case]) -> str:
    """Return a line for each draft and kind of file."""
    count = Counter((case.draft, "formats" if "/" in case.file else "required", case.verdict) for case in cases)
    lines = [f"{'':24}{'pass':>7}{'declined':>10}{'wrong':>7}{'undecided':>11}{'share':>8}"]
    for draft in _DRAFTS:
        for kind in ("required", "formats"):
            good, declined, wrong, undecided = (
                count[draft, kind, verdict] for verdict in ("pass", "declined", "wrong", "undecided")
            )
            share = 100 * good / max(1, good + declined + wrong)
            lines.append(f"{draft} {kind:<11}".ljust(24) + f"{good:7}{declined:10}{wrong:7}{undecided:11}{share:7.2f}%")
    decided = [case for case in cases if case.verdict != "undecided"]
    share = 100 * sum(case.verdict == "pass" for case in decided) / max(1, len(decided))
    return "\n".join([*lines, f"{share:.2f}% of {len(decided)}"])


def fetched() -> Path:
    """Return the folder of the suite, fetched from the package registry."""
    folder = Path(tempfile.mkdtemp(prefix="aici-suite-"))
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", str(folder)]
    subprocess.run([*pip, _SDIST], check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.glob("jsonschema-*/json/tests"))


def main() -> None:
    """Print the table, and with --show the cases that do not pass."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--show", choices=["declined", "wrong", "undecided"])
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    guest = shipped_guest("json_schema")
    folder = arguments.folder or fetched()
    cases = [
        case
        for draft, file, group in groups(folder)
        if arguments.only in f"{draft}/{file}"
        for case in judge(guest, draft, file, group)
    ]
    for case in cases:
        if case.verdict == arguments.show:
            schema, instance = json.dumps(case.schema, ensure_ascii=False), json.dumps(case.instance)
            print(f"{case.draft}/{case.file}: {schema} {'yes' if case.valid else 'no'} {instance} {case.why}")
    print(table(cases))


if __name__ == "__main__":
    main()
