"""The terminals of Lark's module `common`, described anew: `%import common.NUMBER` finds them here."""

from typing import Final

COMMON: Final = r"""
DIGIT: "0".."9"
HEXDIGIT: /[0-9a-fA-F]/
INT: DIGIT+
SIGNED_INT: /[+-]/? INT
DECIMAL: INT "." INT? | "." INT
_EXP: /[eE]/ SIGNED_INT
FLOAT: INT _EXP | DECIMAL _EXP?
SIGNED_FLOAT: /[+-]/? FLOAT
NUMBER: INT | FLOAT
SIGNED_NUMBER: /[+-]/? NUMBER

_STRING_INNER: /[^\n]*?/
_STRING_ESC_INNER: /(?:[^"\\\n]|\\[^\n])*/
ESCAPED_STRING: "\"" _STRING_ESC_INNER "\""

LCASE_LETTER: "a".."z"
UCASE_LETTER: "A".."Z"
LETTER: UCASE_LETTER | LCASE_LETTER
WORD: LETTER+
CNAME: /[_a-zA-Z][_a-zA-Z0-9]*/

WS_INLINE: /[ \t]+/
WS: /[ \t\f\r\n]+/
CR: /\r/
LF: /\n/
NEWLINE: /(?:\r?\n)+/

SH_COMMENT: /#[^\n]*/
CPP_COMMENT: /\/\/[^\n]*/
C_COMMENT: /\/\*(?:[^*]|\*+[^*\/])*\*+\//
SQL_COMMENT: /--[^\n]*/
"""
