// Mermaid: flowcharts and sequence diagrams.
// Flowcharts: nodes in all the classic shapes, links with texts, subgraphs (with a direction in the first line), classes, styles.
// Left out: names that are no identifiers or are key words, Markdown in texts, shapes and edges with @, clicks, styles of single
// links, values of styles other than colours, numbers and lengths, titles in front matter, directives (%%{).
// Sequence diagrams: participants, messages, activations, notes, blocks (loop, alt, opt, par, critical, break, rect), boxes, autonumber
// in the first line. Left out: participants without identifiers, links of participants, accessibility.
// A comment (%%) has a line of its own; blanks at the ends of lines follow nodes and texts only, as Mermaid has it.
// Whether a participant that is deactivated was active is not for a grammar to say.

%start document
%option contextual
%%

// The end of a line, with the blank lines and comments after it.
NEWLINE: "/\r?\n([ \t]*(%%[^{\r\n][^\r\n]*)?\r?\n)*[ \t]*(%%[^{\r\n][^\r\n]*)?/" ;

BLANKS: "/[ \t]+/" ;

document
    : newline_opt flowchart
    | newline_opt sequence
    ;

newline_opt
    : %empty
    | NEWLINE
    ;

// Flowcharts

ID: "/(?&[A-Za-z0-9_]+&(?~[xo]|[0-9]+[A-Za-z_].*|(style|linkStyle|class|click|href|call|default|interpolate|graph|subgraph|flowchart|direction|end|classDef|_self|_blank|_parent|_top)))/" ;

// The text of a node or a link.
TEXT: '/[^\[\](){}|"\r\n\\\/<>@%-]([^\[\](){}|"\r\n\\@%]*[^\[\](){}|"\r\n\\\/@%])?/' ;
SLANTED_TEXT: '/[^\[\](){}|"\r\n\\\/<>@%-][^\[\](){}|"\r\n\\\/@%]*/' ;
STRING: '/"[^"`\r\n%@]+"/' ;

LINK: "/[ \t]*(<?--+>|---+|--+[ox]|<?==+>|===+|<?-\.+->|-\.+-|~~~+)[ \t]*/" ;

LINK_WITH_TEXT
    : '/[ \t]*--[ \t]+[^\[\](){}|"\r\n\\<>=@% \t~.-]([^\[\](){}|"\r\n\\<>=@%~.-]*[^\[\](){}|"\r\n\\<>=@% \t~.-])?[ \t]+(--+>|---+)[ \t]*/'
    | '/[ \t]*-\.[ \t]+[^\[\](){}|"\r\n\\<>=@% \t~.-]([^\[\](){}|"\r\n\\<>=@%~.-]*[^\[\](){}|"\r\n\\<>=@% \t~.-])?[ \t]+\.+->?[ \t]*/'
    | '/[ \t]*==[ \t]+[^\[\](){}|"\r\n\\<>=@% \t~.-]([^\[\](){}|"\r\n\\<>=@%~.-]*[^\[\](){}|"\r\n\\<>=@% \t~.-])?[ \t]+(==+>|===+)[ \t]*/'
    ;

STYLE: "/(fill|stroke|color|background|opacity|stroke-width|font-size|font-weight|rx|ry|stroke-dasharray): ?(#[0-9a-fA-F]{3}|#[0-9a-fA-F]{6}|[a-z]+|[0-9]+(px|em|%)?|[0-9]+ [0-9]+)/" ;

flowchart
    : header
    | header separator
    | header separator statements
    | header separator ended_statements
    ;

header: kind way ;

kind: "flowchart " | "graph " ;

way: "TD" | "TB" | "BT" | "LR" | "RL" ;

separator
    : NEWLINE
    | ";"
    | ";" NEWLINE
    | ";" BLANKS
    ;

// After styles no semicolon: Mermaid reads #f9f; as a character.

statements
    : after_plain
    | after_styled
    ;

ended_statements
    : after_plain separator
    | after_styled NEWLINE
    ;

after_plain
    : plain
    | ended_statements plain
    ;

after_styled
    : styled
    | ended_statements styled
    ;

plain
    : chain
    | chain BLANKS
    | "subgraph " title separator ended_statements "end"
    | "subgraph " title NEWLINE "direction " way NEWLINE ended_statements "end"
    | "subgraph " title separator "end"
    | "class " names " " ID
    ;

styled
    : "classDef " class " " styles
    | "style " ID " " styles
    | "linkStyle default " styles
    ;

class: ID | "default" ;

title
    : ID
    | STRING
    | ID "[" text "]"
    | ID " [" text "]"
    ;

names
    : ID
    | names "," ID
    ;

styles
    : STYLE
    | styles "," STYLE
    ;

chain
    : nodes
    | chain link nodes
    ;

nodes
    : node
    | nodes " & " node
    ;

node
    : shape
    | shape ":::" ID
    ;

shape
    : ID
    | ID "[" text "]"
    | ID "(" text ")"
    | ID "([" text "])"
    | ID "[[" text "]]"
    | ID "[(" text ")]"
    | ID "((" text "))"
    | ID "(((" text ")))"
    | ID ">" text "]"
    | ID "{" text "}"
    | ID "{{" text "}}"
    | ID "[/" slanted_text "/]"
    | ID "[/" slanted_text "\]"
    | ID "[\" slanted_text "\]"
    | ID "[\" slanted_text "/]"
    ;

text: TEXT | STRING ;

slanted_text: SLANTED_TEXT | STRING ;

link
    : LINK
    | LINK "|" text "|"
    | LINK "|" text "|" BLANKS
    | LINK_WITH_TEXT
    ;

// Sequence diagrams

ACTOR: "/(?&[A-Za-z_][A-Za-z0-9_]*&(?~(?i:end|loop|rect|opt|alt|else|par|and|critical|break|note|activate|deactivate|autonumber|title|box|create|destroy|actor|link|properties|details|over|left|right|as|off|option|participant|sequencediagram|acctitle|accdescr)))/" ;

// The rest of a line.
LINE: "/[^#;:%\r\n \t][^#;%\r\n]*/" ;
MESSAGE: "/[ \t]*:[ \t]*[^#;:%\r\n \t][^#;%\r\n]*/" ;

ARROW: "/[ \t]*(--?>>?|--?x|--?\)|<<--?>>)[ \t]*[+\-]?[ \t]*/" ;

AUTONUMBER: "/autonumber\r?\n[ \t]*/" ;

sequence
    : "sequenceDiagram"
    | "sequenceDiagram" NEWLINE
    | "sequenceDiagram" NEWLINE events
    | "sequenceDiagram" NEWLINE events NEWLINE
    | "sequenceDiagram" NEWLINE AUTONUMBER events
    | "sequenceDiagram" NEWLINE AUTONUMBER events NEWLINE
    ;

events
    : event
    | events NEWLINE event
    ;

event
    : declaration
    | "create " declaration
    | "destroy " ACTOR
    | "box " LINE NEWLINE declarations NEWLINE "end"
    | "activate " ACTOR
    | "deactivate " ACTOR
    | ACTOR ARROW ACTOR MESSAGE
    | note place MESSAGE
    | "loop " body "end"
    | "opt " body "end"
    | "break " body "end"
    | "rect " body "end"
    | "alt " body elses "end"
    | "par " body ands "end"
    | "critical " body options "end"
    ;

declaration
    : participant ACTOR
    | participant ACTOR " as " LINE
    ;

participant: "participant " | "actor " ;

declarations
    : declaration
    | declarations NEWLINE declaration
    ;

note: "Note " | "note " ;

place
    : "right of " ACTOR
    | "left of " ACTOR
    | "over " ACTOR
    | "over " ACTOR "," ACTOR
    | "over " ACTOR ", " ACTOR
    ;

body
    : LINE NEWLINE
    | LINE NEWLINE events NEWLINE
    ;

elses
    : %empty
    | elses "else " body
    | elses "else" NEWLINE events NEWLINE
    ;

ands
    : %empty
    | ands "and " body
    ;

options
    : %empty
    | options "option " body
    ;
