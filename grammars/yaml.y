// YAML in block style, as configuration files have it: mappings and sequences in mappings and sequences, two blanks of indentation a
// level, up to 8 levels; a sequence in a mapping may be as far left as its key. Scalars are plain, in quotes, or blocks (| and >).
// Sequences and mappings in brackets stand on one line; their plain scalars have no colons.
// A comment on a line of its own begins where the next line does, or where the first one of all does.
// Left out: other indentation, plain scalars and quotes of several lines, anchors and aliases, tags, merge keys, ? before a key,
// a scalar as the whole document, plain scalars that begin with =, <, ~ or a character that means something.
// That no key is given twice is not for a grammar to say.

%start document
%option contextual
%glr-parser

%%

PLAIN: "/([^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\-?:,\[\]{}#&*!|>'\x22%@`.=<~]|-[^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff:\-]|\.{1,2}[^ .:\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff])([^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|:+[^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff])*( +[^ :#\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]([^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|:+[^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff])*| +:+[^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]([^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|:+[^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff])*)* *( #[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)?/" ;

KEY: "/([^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\-?:,\[\]{}#&*!|>'\x22%@`.=<~]|-[^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff:\-]|\.{1,2}[^ .:\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff])([^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|:+[^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff])*( +[^ :#\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]([^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|:+[^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff])*| +:+[^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]([^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|:+[^ :\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff])*)* *:/" ;

QUOTED
    : '/"([^"\\\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|\\([0abtnvfre "\/\\N_LP]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}))*"/'
    | "/'([^'\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|'')*'/"
    ;

FLOW_PLAIN: "/([^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\-?:,\[\]{}#&*!|>'\x22%@`.=<~]|-[^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff:,\[\]{}\-]|\.{1,2}[^ .:,\[\]{}\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff])[^ :,\[\]{}?\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*( +[^ :,\[\]{}#?\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff][^ :,\[\]{}?\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)* */" ;

BLANKS: "/ +/" ;

// A comment at the end of a line.
COMMENT: "/ +#[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;

COLON: "/ *:/" ;
OPEN_LIST: "/\[ */" ;
OPEN_MAPPING: "/\{ */" ;
COMMA: "/, */" ;
FLOW_COLON: "/: +/" ;

// How a block begins.
BLOCK: "/[|>][+\-]?/" ;

LEADING: "/(#[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*\r?\n|\r?\n)+/" ;
MARK: "/---( *| +#[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)(\r?\n *(#[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)?)*\r?\n/" ;

LINE_0: "/(\r?\n *|\r?\n#[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)*\r?\n/" ;
LINE_1: "/(\r?\n *|\r?\n( {2})?#[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)*\r?\n {2}/" ;
LINE_2: "/(\r?\n *|\r?\n( {4})?#[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)*\r?\n {4}/" ;
LINE_3: "/(\r?\n *|\r?\n( {6})?#[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)*\r?\n {6}/" ;
LINE_4: "/(\r?\n *|\r?\n( {8})?#[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)*\r?\n {8}/" ;
LINE_5: "/(\r?\n *|\r?\n( {10})?#[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)*\r?\n {10}/" ;
LINE_6: "/(\r?\n *|\r?\n( {12})?#[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)*\r?\n {12}/" ;
LINE_7: "/(\r?\n *|\r?\n( {14})?#[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*)*\r?\n {14}/" ;

// The lines of a block: the first one says how far the block is to the right.
FIRST_1: "/(\r?\n)+ {2}[^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff][^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
MORE_1: "/(\r?\n *)*\r?\n {2}[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
FIRST_2: "/(\r?\n)+ {4}[^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff][^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
MORE_2: "/(\r?\n *)*\r?\n {4}[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
FIRST_3: "/(\r?\n)+ {6}[^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff][^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
MORE_3: "/(\r?\n *)*\r?\n {6}[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
FIRST_4: "/(\r?\n)+ {8}[^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff][^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
MORE_4: "/(\r?\n *)*\r?\n {8}[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
FIRST_5: "/(\r?\n)+ {10}[^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff][^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
MORE_5: "/(\r?\n *)*\r?\n {10}[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
FIRST_6: "/(\r?\n)+ {12}[^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff][^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
MORE_6: "/(\r?\n *)*\r?\n {12}[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
FIRST_7: "/(\r?\n)+ {14}[^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff][^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
MORE_7: "/(\r?\n *)*\r?\n {14}[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
FIRST_8: "/(\r?\n)+ {16}[^ \x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff][^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;
MORE_8: "/(\r?\n *)*\r?\n {16}[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*/" ;

document
    : start node_0
    | start node_0 LINE_0
    ;

start
    : %empty
    | LEADING
    | MARK
    | LEADING MARK
    ;

scalar
    : PLAIN
    | QUOTED comment
    | flow comment
    ;

comment
    : %empty
    | BLANKS
    | COMMENT
    ;

key
    : KEY
    | QUOTED COLON
    ;

flow
    : OPEN_LIST "]"
    | OPEN_LIST items "]"
    | OPEN_LIST items COMMA "]"
    | OPEN_MAPPING "}"
    | OPEN_MAPPING pairs "}"
    | OPEN_MAPPING pairs COMMA "}"
    ;

items
    : flow_value
    | items COMMA flow_value
    ;

flow_value
    : FLOW_PLAIN
    | QUOTED blanks
    | flow blanks
    ;

blanks
    : %empty
    | BLANKS
    ;

pairs
    : pair
    | pairs COMMA pair
    ;

pair
    : FLOW_PLAIN FLOW_COLON flow_value
    | QUOTED FLOW_COLON flow_value
    ;

node_0
    : mapping_0
    | sequence_0
    ;

mapping_0
    : entry_0
    | mapping_0 LINE_0 entry_0
    ;

entry_0
    : key comment
    | key BLANKS scalar
    | key BLANKS block_1
    | key comment LINE_0 sequence_0
    | key comment LINE_1 node_1
    ;

sequence_0
    : item_0
    | sequence_0 LINE_0 item_0
    ;

item_0
    : "- " scalar
    | "- " block_1
    | "- " mapping_1
    | "- " sequence_1
    | "-" LINE_1 node_1
    ;

block_1
    : BLOCK comment FIRST_1
    | block_1 MORE_1
    ;

node_1
    : mapping_1
    | sequence_1
    ;

mapping_1
    : entry_1
    | mapping_1 LINE_1 entry_1
    ;

entry_1
    : key comment
    | key BLANKS scalar
    | key BLANKS block_2
    | key comment LINE_1 sequence_1
    | key comment LINE_2 node_2
    ;

sequence_1
    : item_1
    | sequence_1 LINE_1 item_1
    ;

item_1
    : "- " scalar
    | "- " block_2
    | "- " mapping_2
    | "- " sequence_2
    | "-" LINE_2 node_2
    ;

block_2
    : BLOCK comment FIRST_2
    | block_2 MORE_2
    ;

node_2
    : mapping_2
    | sequence_2
    ;

mapping_2
    : entry_2
    | mapping_2 LINE_2 entry_2
    ;

entry_2
    : key comment
    | key BLANKS scalar
    | key BLANKS block_3
    | key comment LINE_2 sequence_2
    | key comment LINE_3 node_3
    ;

sequence_2
    : item_2
    | sequence_2 LINE_2 item_2
    ;

item_2
    : "- " scalar
    | "- " block_3
    | "- " mapping_3
    | "- " sequence_3
    | "-" LINE_3 node_3
    ;

block_3
    : BLOCK comment FIRST_3
    | block_3 MORE_3
    ;

node_3
    : mapping_3
    | sequence_3
    ;

mapping_3
    : entry_3
    | mapping_3 LINE_3 entry_3
    ;

entry_3
    : key comment
    | key BLANKS scalar
    | key BLANKS block_4
    | key comment LINE_3 sequence_3
    | key comment LINE_4 node_4
    ;

sequence_3
    : item_3
    | sequence_3 LINE_3 item_3
    ;

item_3
    : "- " scalar
    | "- " block_4
    | "- " mapping_4
    | "- " sequence_4
    | "-" LINE_4 node_4
    ;

block_4
    : BLOCK comment FIRST_4
    | block_4 MORE_4
    ;

node_4
    : mapping_4
    | sequence_4
    ;

mapping_4
    : entry_4
    | mapping_4 LINE_4 entry_4
    ;

entry_4
    : key comment
    | key BLANKS scalar
    | key BLANKS block_5
    | key comment LINE_4 sequence_4
    | key comment LINE_5 node_5
    ;

sequence_4
    : item_4
    | sequence_4 LINE_4 item_4
    ;

item_4
    : "- " scalar
    | "- " block_5
    | "- " mapping_5
    | "- " sequence_5
    | "-" LINE_5 node_5
    ;

block_5
    : BLOCK comment FIRST_5
    | block_5 MORE_5
    ;

node_5
    : mapping_5
    | sequence_5
    ;

mapping_5
    : entry_5
    | mapping_5 LINE_5 entry_5
    ;

entry_5
    : key comment
    | key BLANKS scalar
    | key BLANKS block_6
    | key comment LINE_5 sequence_5
    | key comment LINE_6 node_6
    ;

sequence_5
    : item_5
    | sequence_5 LINE_5 item_5
    ;

item_5
    : "- " scalar
    | "- " block_6
    | "- " mapping_6
    | "- " sequence_6
    | "-" LINE_6 node_6
    ;

block_6
    : BLOCK comment FIRST_6
    | block_6 MORE_6
    ;

node_6
    : mapping_6
    | sequence_6
    ;

mapping_6
    : entry_6
    | mapping_6 LINE_6 entry_6
    ;

entry_6
    : key comment
    | key BLANKS scalar
    | key BLANKS block_7
    | key comment LINE_6 sequence_6
    | key comment LINE_7 node_7
    ;

sequence_6
    : item_6
    | sequence_6 LINE_6 item_6
    ;

item_6
    : "- " scalar
    | "- " block_7
    | "- " mapping_7
    | "- " sequence_7
    | "-" LINE_7 node_7
    ;

block_7
    : BLOCK comment FIRST_7
    | block_7 MORE_7
    ;

node_7
    : mapping_7
    | sequence_7
    ;

mapping_7
    : entry_7
    | mapping_7 LINE_7 entry_7
    ;

entry_7
    : key comment
    | key BLANKS scalar
    | key BLANKS block_8
    | key comment LINE_7 sequence_7
    ;

sequence_7
    : item_7
    | sequence_7 LINE_7 item_7
    ;

item_7
    : "- " scalar
    | "- " block_8
    ;

block_8
    : BLOCK comment FIRST_8
    | block_8 MORE_8
    ;
