// CSV as in RFC 4180: quoted fields hold commas, line breaks and doubled quotes; other fields hold no quote at all.
// All lines end in CR LF, or all in LF (which RFC 4180 does not know and everybody writes).
// Text is what RFC 4180 calls TEXTDATA, and whatever is beyond ASCII: no control characters, a tab is one of them.
// Spaces belong to the fields, so there is nothing to skip. That all lines have as many fields is not for a grammar to say.

%start file
%%

TEXT: '/[^",\x00-\x1f\x7f]+/' ;

QUOTED: '/"([^"\x00-\x09\x0b\x0c\x0e-\x1f\x7f]|"")*"/' ;

file
    : record
    | crlf_lines
    | lf_lines
    ;

crlf_lines
    : record "/\r\n/" record
    | crlf_lines "/\r\n/" record
    ;

lf_lines
    : record "/\n/" record
    | lf_lines "/\n/" record
    ;

record
    : field
    | record "," field
    ;

field
    : %empty
    | TEXT
    | QUOTED
    ;
