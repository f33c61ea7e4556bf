// JSON as in RFC 8259.

%start value
%%

SKIP: "/[ \t\n\r]+/" ;

STRING: '/"([^"\\\x00-\x1f]|\\["\\\/bfnrt]|\\u[0-9a-fA-F]{4})*"/' ;

NUMBER: "/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?/" ;

value
    : "{" "}"
    | "{" members "}"
    | "[" "]"
    | "[" elements "]"
    | STRING
    | NUMBER
    | "true"
    | "false"
    | "null"
    ;

members
    : member
    | members "," member
    ;

member: STRING ":" value ;

elements
    : value
    | elements "," value
    ;
