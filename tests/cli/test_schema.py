"""`aici schema`, run as a user runs the command."""

import json
from pathlib import Path

from tests.support.cli import aici

ODD = '{"type": "integer", "maximun": 3}'


def test_check_names_what_is_not_enforced() -> None:
    done = aici("schema", "check", ODD)
    assert (done.returncode, done.stdout) == (0, "ok, 1 warning\n")
    assert done.stderr == "not enforced: #/maximun: unknown keyword, one letter from maximum\n"
    plain = aici("schema", "check", "-", stdin='{"type": "integer"}')
    assert (plain.returncode, plain.stdout, plain.stderr) == (0, "ok\n", "")


def test_check_refuses_and_answers_in_json() -> None:
    refused = aici("schema", "check", ODD, "--strict-schema")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("json schema error at #/maximun: unknown keyword")
    done = aici("schema", "check", ODD, "--strict-schema", "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert (answer["ok"], answer["warnings"]) == (False, [])
    assert [problem["pointer"] for problem in answer["problems"]] == ["/maximun"]
    lenient = json.loads(aici("schema", "check", '{"pattern": "(a)\\\\1"}', "--lenient", "--json").stdout)
    assert lenient["ok"]
    assert [warning["keyword"] for warning in lenient["warnings"]] == ["pattern"]


def test_accepts_says_where_a_text_ends_to_be_allowed(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"items": {"type": "integer"}, "type": "array"}')
    done = aici("schema", "accepts", str(file), "-", "--whitespace", "flexible", stdin="[1,\n 2, x]\n")
    assert (done.returncode, done.stdout) == (1, "2:5: unexpected 'x]'\n   2, x]\n      ^\n")
    assert json.loads(aici("schema", "accepts", str(file), "-", "--json", stdin="[1").stdout) == {
        "accepted": False,
        "at": 2,
    }
    assert aici("schema", "accepts", str(file), "-", stdin="[1, 2]").stdout == "accepted\n"
    spaced = aici("schema", "accepts", str(file), "-", stdin="[1,2]")
    assert (spaced.returncode, spaced.stdout.splitlines()[0]) == (1, "1:4: unexpected '2]'")
    assert "--whitespace flexible accepts the text" in spaced.stderr
    assert aici("schema", "accepts", str(file), "-", stdin="[1,x]").stderr == ""
