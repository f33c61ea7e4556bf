"""Texts of the terminals of the grammars that ship a part of a language, for sentences.py."""

import itertools
from typing import Final

from tests.grammars.sentences import Lexemes

_numbers = itertools.count()

WITHOUT_SPACES: Final = ("csv", "html", "markdown_table", "mermaid", "regex", "yaml")
"""Sentences of these have no blanks between lexemes."""

PARTS: Final = ("html", "javascript", "latex_math", "mermaid", "regex", "typescript", "yaml")
"""The other parser accepts more than the grammar."""

AVOID: Final = {
    "javascript": ["await", "break", "continue", "super", "target", "export", "REGEX", "default"],
    "mermaid": ["deactivate "],
}
"""Constructs that the other parser may refuse for other reasons than the syntax."""

_JAVASCRIPT: Final[Lexemes] = {
    "NAME": lambda _: f"x{next(_numbers)}",  # names are declared once
    "NUMBER": ["0", "1.5e3", ".5", "0xff", "12n", "1_000"],
    "STRING": ['"a"', r"'\x41\n\0'", "''"],
    "TEMPLATE": ["`a`", "`$ \\` {`"],
    "TEMPLATE_HEAD": ["`a${", "`$${"],
    "TEMPLATE_MIDDLE": ["}b${", "}${"],
    "TEMPLATE_TAIL": ["}c`", "}`"],
    "REGEX": ["/a+/g", "/[/]/"],
}

LEXEMES: Final[dict[str, Lexemes]] = {
    "html": {
        "TEXT": ["text", "two words ", 'a &amp; b &#8212; é > "'],
        "ATTRIBUTE": lambda _: f' a{next(_numbers)}="x &quot; y"',
        "DOCTYPE": ["<!DOCTYPE html>"],
        "RAW": ["a = b > c && d;"],
    },
    "javascript": _JAVASCRIPT,
    "latex_math": {
        "CHARACTER": ["a", "x", "1", "+", "=", "(", "]", "|", "<"],
        "RUN": ["x", "ab", "f(x)+1", "|A|", ":="],
        "PRIMES": ["'", "''"],
        "LETTER": [r"\alpha", r"\cdot", r"\infty", r"\%", r"\{"],
        "SYMBOL": [r"\leq", r"\sum", r"\lim", r"\to"],
        "FONT": [r"\mathbf", r"\mathrm"],
        "SPACE": [r"\,", r"\quad"],
        "ROOT": [r"\sqrt", r"\sqrt[3]"],
        "ACCENT": [r"\hat", r"\overline", r"\operatorname", r"\pmod", r"\underbrace"],
        "FRACTION": [r"\frac", r"\binom", r"\overset"],
        "TEXT": [r"\text{ if \% }", r"\textbf{a {b} c}"],
        "LEFT": [r"\left(", r"\left ."],
        "MIDDLE": [r"\middle|"],
        "RIGHT": [r"\right\}", r"\right\rangle"],
        "BIG": [r"\big(", r"\Biggl |"],
        "ARRAY": [r"\begin{array}{lcr}", r"\begin{array} { c }"],
        "NEXT_LINE": [r"\\", r"\\[2pt]"],
    },
    "mermaid": {
        "NEWLINE": ["\n", "\n%% comment\n\n  "],
        "ID": ["A", "b1", "node_2", "3", "Ox"],
        "BLANKS": [" "],
        "TEXT": ["text", " two words ", "é: a/b; c, 1 + 1 = 2?"],
        "SLANTED_TEXT": ["text", " two words "],
        "STRING": ['"quoted (text) [1]"'],
        "LINK": ["-->", " --- ", " --o ", " --x ", "<-->", "-.->", " -.- ", "==>", " === ", " ~~~ ", "---->"],
        "LINK_WITH_TEXT": [" -- yes --> ", " -. a text .-> ", " == two, 2 === ", "-- a ---"],
        "STYLE": ["fill:#f9f", "stroke-width: 2px", "color:red", "stroke-dasharray: 5 5"],
        "ACTOR": ["A", "Bob", "John_2"],
        "LINE": ["a line, (1) 2", "rgb(0, 255, 0)"],
        "MESSAGE": [": hello, world: 1 + 1", ":x"],
        "ARROW": ["->>", " --> ", "-x", "--)", " <<->> ", "->>+"],
        "AUTONUMBER": ["autonumber\n"],
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
    "typescript": _JAVASCRIPT,
    "yaml": {
        "PLAIN": ["text", "two words  ", "-1", "a:b # comment", "./x", "http://a.b:80/[c]"],
        "KEY": ["key:", "two words:", "a/b :", "x-y:"],
        "QUOTED": ['"a: \\n \\"b\\" # c"', "'it''s'", '""'],
        "FLOW_PLAIN": ["a", "1.5 ", "a-b c "],
        "BLANKS": [" ", "  "],
        "COMMENT": [" # comment", "  #"],
        "COLON": [":", " :"],
        "OPEN_LIST": ["[", "[ "],
        "OPEN_MAPPING": ["{", "{ "],
        "COMMA": [",", ", "],
        "FLOW_COLON": [": "],
        "BLOCK": ["|", ">-", "|+"],
        "LEADING": ["# a comment\n", "\n\n"],
        "MARK": ["---\n", "--- # x\n\n"],
        **{f"LINE_{n}": ["\n" + "  " * n, "\r\n\n" + "  " * n + "# comment\n" + "  " * n] for n in range(8)},
        **{f"FIRST_{n}": ["\n" + "  " * n + "text: [x", "\n\n" + "  " * n + "# x"] for n in range(1, 9)},
        **{f"MORE_{n}": ["\n\n" + "  " * n + "  # text", "\n" + "  " * n + "- x"] for n in range(1, 9)},
    },
}
