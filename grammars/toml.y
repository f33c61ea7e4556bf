// TOML 1.0. Keys are not reserved words and values are not keys, so only what the parser can take competes in the lexer.
// Newlines and comments are tokens: both may stand inside an array, neither inside an inline table.
// That no key is defined twice, and that 2023 had no 29 February, is not for a grammar to say.

%start document
%option contextual
%%

SKIP: "/[ \t]+/" ;

COMMENT: "/#[^\x00-\x08\x0a-\x1f\x7f]*/" ;

NEWLINE: "/\r?\n/" ;

BARE_KEY: "/[A-Za-z0-9_\-]+/" ;

BASIC_STRING
    : '/"([^"\\\x00-\x08\x0a-\x1f\x7f]|\\["\\bfnrt]|\\(u|U0000)([0-9A-CEFa-cef][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2})|\\U00(0[1-9A-Fa-f]|10)[0-9A-Fa-f]{4})*"/'
    ;

LITERAL_STRING: "/'[^'\x00-\x08\x0a-\x1f\x7f]*'/" ;

// One or two quotes may stand before any character and before the three at the end.
MULTI_LINE_BASIC_STRING
    : '/"""("{0,2}([^"\\\x00-\x08\x0b-\x1f\x7f]|\r\n|\\["\\bfnrt]|\\[ \t]*\r?\n|\\(u|U0000)([0-9A-CEFa-cef][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2})|\\U00(0[1-9A-Fa-f]|10)[0-9A-Fa-f]{4}))*"{3,5}/'
    ;

MULTI_LINE_LITERAL_STRING: "/'''('{0,2}([^'\x00-\x08\x0b-\x1f\x7f]|\r\n))*'{3,5}/" ;

NUMBER
    : "/[+\-]?(0|[1-9](_?[0-9])*)(\.[0-9](_?[0-9])*)?([eE][+\-]?[0-9](_?[0-9])*)?/"
    | "/[+\-]?(inf|nan)/"
    | "/0x[0-9A-Fa-f](_?[0-9A-Fa-f])*/"
    | "/0o[0-7](_?[0-7])*/"
    | "/0b[01](_?[01])*/"
    ;

// A date alone may end in a space, since a time may follow the space: the lexer goes back one byte only.
DATE_TIME
    : "/[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))( |[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?([Zz]|[+\-]([01][0-9]|2[0-3]):[0-5][0-9])?)?/"
    | "/([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?/"
    ;

document
    : line
    | document NEWLINE line
    ;

line
    : statement
    | statement COMMENT
    ;

statement
    : %empty
    | key_value
    | "[" key "]"
    | "[[" key "]]"
    ;

key_value: key "=" value ;

key
    : simple_key
    | key "." simple_key
    ;

simple_key
    : BARE_KEY
    | BASIC_STRING
    | LITERAL_STRING
    ;

value
    : BASIC_STRING
    | LITERAL_STRING
    | MULTI_LINE_BASIC_STRING
    | MULTI_LINE_LITERAL_STRING
    | NUMBER
    | DATE_TIME
    | "true"
    | "false"
    | array
    | inline_table
    ;

array
    : "[" newlines "]"
    | "[" elements newlines "]"
    | "[" elements newlines "," newlines "]"
    ;

elements
    : newlines value
    | elements newlines "," newlines value
    ;

newlines
    : %empty
    | newlines NEWLINE
    | newlines COMMENT NEWLINE
    ;

inline_table
    : "{" "}"
    | "{" key_values "}"
    ;

key_values
    : key_value
    | key_values "," key_value
    ;
