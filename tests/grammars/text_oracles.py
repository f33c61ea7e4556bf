"""Independent parsers in Python for grammars that ship a part of a language; see oracles.py."""

import re
import warnings
from typing import Final

import yaml as pyyaml
from justhtml import JustHTML, StrictModeError
from markdown_it import MarkdownIt

Verdict = bool | None


def regex(text: str) -> Verdict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(text)
        except (re.error, OverflowError) as error:
            return None if "redefinition of group name" in str(error) else False
    return True


_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")


def markdown_table(text: str) -> Verdict:
    """Judge by markdown-it-py, which completes and cuts rows: the cells of a row are counted by making the row the
    head of a table."""
    lines = re.sub(r"\r?\n\Z", "", text).replace("\r\n", "\n").split("\n")
    if any(line and not re.search(r"\A\|(.*[^\\])?\|[ \t]*\Z", line, re.DOTALL) for line in lines):
        return None if _tables(text) else False  # rows without the outer pipes, indented rows
    if re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)", text):
        return None
    if _tables(text) != [len(lines)]:
        return False
    columns = next(count for count in range(1, 200) if _tables(f"{lines[0]}\n|{'-|' * count}") == [2])
    if columns > 12:
        return None
    return all(_tables(f"{line}\n|{'-|' * columns}") == [2] for line in lines[2:])


def _tables(text: str) -> list[int]:
    """Return the number of lines of each table, if tables are all there is."""
    tokens = [token for token in _MARKDOWN.parse(text) if token.level == 0 and token.nesting >= 0]
    if any(token.type != "table_open" for token in tokens):
        return []
    return [token.map[1] - token.map[0] for token in tokens if token.map]


_DOCTYPE: Final = re.compile(r"(?is)\s*(<!--.*?-->\s*)*<!doctype")


_TAG: Final = re.compile(r"(?is)<!--.*?-->|(</?)([a-z][a-z0-9]*)")


def html(text: str) -> Verdict:
    """Judge by the standard's parse errors, and by the tree: it must have the elements of the text, in the same order.
    An attribute that is given twice is a parse error, but not for a grammar to say. Blanks between a comment and the
    document type are none, other than justhtml has it."""
    try:
        tree = JustHTML(text, strict=True, sanitize=False, fragment=not _DOCTYPE.match(text))
    except StrictModeError as error:
        return None if re.search("uplicate attribute|DOCTYPE but got text", str(error)) else False
    try:
        return _tags(text) == _tags(tree.to_html(pretty=False))
    except ValueError:  # odd names of attributes cannot be written
        return False


def _tags(text: str) -> list[tuple[str, str]]:
    implied = ("tbody", "html", "head", "body")
    return [(end, name.lower()) for end, name in _TAG.findall(text) if name and name.lower() not in implied]


def yaml(text: str) -> Verdict:
    try:
        for _ in pyyaml.parse(text):
            pass
    except pyyaml.YAMLError:
        return False
    return True
