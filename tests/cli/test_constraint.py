"""How the flags of a constraint read files and texts."""

import json
from pathlib import Path

import pytest

from aici_cli.constraint import Flags, control_from
from aici_runtime.errors import UsageError


def test_files_as_windows_editors_write_them(tmp_path: Path) -> None:
    """A mark before the text and CR LF are the file's, not the text's; U+2028 ends no line."""
    lines = tmp_path / "lines"
    lines.write_bytes(b"\xef\xbb\xbfred\r\n\r\ndark\xe2\x80\xa8green\r\nblue")
    control = control_from(Flags(choices=lines))
    assert control is not None
    assert json.loads(control.argument) == ["red", "dark\u2028green", "blue"]
    control = control_from(Flags(substring=lines))
    assert control is not None
    assert json.loads(control.argument)["text"] == "red\r\n\r\ndark\u2028green\r\nblue"
    schema = tmp_path / "schema.json"
    schema.write_bytes(b'\xef\xbb\xbf{"type": "integer"}\r\n')
    assert control_from(Flags(json_schema=str(schema))) is not None
    grammar = tmp_path / "yes.y"
    grammar.write_bytes(b'\xef\xbb\xbf%start s\r\n%%\r\ns : "yes" ;\r\n')
    assert control_from(Flags(grammar=str(grammar))) is not None


@pytest.mark.parametrize(
    ("schema", "helps"),
    [
        ('{"type": "string", "patern": "b"}', True),
        ('{"type": "string", "maxLength": 3', False),
        ('{"type": "string", "enum": [1]}', False),
        ("false", False),
    ],
)
def test_lenient_is_advised_where_it_helps(schema: str, helps: bool) -> None:
    with pytest.raises(UsageError) as error:
        control_from(Flags(json_schema=schema))
    assert ("--lenient" in (error.value.hint or "")) == helps
