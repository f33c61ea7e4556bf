"""Texts of the terminals of the grammars that ship a part of a language, for sentences.py."""

import itertools
from typing import Final

from tests.grammars.sentences import Lexemes

_numbers = itertools.count()

PARTS: Final = ("javascript", "regex")
"""The other parser accepts more than the grammar."""

AVOID: Final = {
    "javascript": ["await", "break", "continue", "super", "target", "export", "REGEX", "default"],
}
"""Constructs that the other parser may refuse for other reasons than the syntax."""

LEXEMES: Final[dict[str, Lexemes]] = {
    "javascript": {
        "NAME": lambda _: f"x{next(_numbers)}",  # names are declared once
        "NUMBER": ["0", "1.5e3", ".5", "0xff", "12n", "1_000"],
        "STRING": ['"a"', r"'\x41\n\0'", "''"],
        "TEMPLATE": ["`a`", "`$ \\` {`"],
        "TEMPLATE_HEAD": ["`a${", "`$${"],
        "TEMPLATE_MIDDLE": ["}b${", "}${"],
        "TEMPLATE_TAIL": ["}c`", "}`"],
        "REGEX": ["/a+/g", "/[/]/"],
    },
    "regex": {
        "LITERAL": ["a", "]", "}", "-", "é"],
        "COUNT": ["{2}", "{2,}", "{,3}", "{9,10}", "{10,19}", "{3,4}", "{100,200}"],
        "ESCAPE": ["\\.", "\\n", "\\x41", "\\u00e9", "\\0", "\\U0001F600"],
        "SET": ["\\d", "\\W"],
        "ANCHOR": ["^", "$", "\\b", "\\Z"],
        "GROUP": ["(", "(?:", "(?i:"],
        "LOOK_AHEAD": ["(?=", "(?!"],
        "LOOK_BEHIND": ["(?<=", "(?<!"],
        "FLAGS": ["(?i)", "(?ms)"],
        "CLASS": ["[", "[^"],
        "CLASS_AND_BRACKET": ["[]", "[^]"],
        "MEMBER": ["a", "^", "(", "{2", " "],
        "MEMBER_AND_DASH": ["a-", "\\.-", "\\x41-"],
        "RANGE": ["a-z", "xyA-Z", " -~", "\\x00-\\x1f", "\\x1a-\\x9F", "\\u4e00-\\u9fff", "A-é"],
    },
}
