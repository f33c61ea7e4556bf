// Regular expressions of Python's re, for text (str), without re.VERBOSE.
// Left out: references to groups (\1, (?P=name), conditions), possessive quantifiers and atomic groups (new in 3.11), comments,
// flags that are turned off, \N{...}. Quantifiers need an atom that can match a character: not an anchor, not a look-around.
// The body of a look-behind has a fixed width: atoms without quantifiers, no alternatives, no groups.
// A count has up to four digits. In {m,n}: n has more digits than m; or both have one digit and m is not
// above n; or both have two digits and the first one of n is the larger; or m is 10, 20 and so on, 100 or
// 1000.
// Ranges are in order. RANGE lists most of those that people write: not those of neighbours (b-d: write bcd), nor those of \xHH or
// \uHHHH that begin alike, nor most of those between punctuation marks.
// That no group name is given twice is not for a grammar to say.

%start pattern
%option contextual
%prefer "/[^\\\]-]+/"     // in a class: NEVER speaks of the other places
%%

LITERAL: "/[^\\^$.|?*+()\[{]+/" ;

// What looks like a count is none only in a class.
NEVER: "/\{[0-9,]/" ;

COUNT
    : "/\{[0-9]{1,4},?\}/"
    | "/\{,[0-9]{0,4}\}/"
    | "/\{([0-9],[1-9][0-9]{1,3}|[1-9][0-9],[1-9][0-9]{2,3}|[1-9][0-9]{2},[1-9][0-9]{3})\}/"
    | "/\{(0,[0-9]|1,[1-9]|2,[2-9]|3,[3-9]|4,[4-9]|5,[5-9]|6,[6-9]|7,[7-9]|8,[8-9]|9,9)\}/"
    | "/\{(1.,[2-9].|2.,[3-9].|3.,[4-9].|4.,[5-9].|5.,[6-9].|6.,[7-9].|7.,[8-9].|8.,[9-9].)\}/"
    | "/\{(10,1|20,2|30,3|40,4|50,5|60,6|70,7|80,8|90,9)[0-9]\}/"
    | "/\{(100,[1-9][0-9]{2}|1000,[1-9][0-9]{3})\}/"
    ;

ESCAPE
    : "/\\[^0-9A-Za-z]/"
    | "/\\[nrtfva]/"
    | "/\\0[0-7]{0,2}/"
    | "/\\x[0-9a-fA-F]{2}/"
    | "/\\u[0-9a-fA-F]{4}/"
    | "/\\U000[0-9a-fA-F]{5}/"
    | "/\\U0010[0-9a-fA-F]{4}/"
    ;

BACKSPACE: "\b" ;

SET: "/\\[dDsSwW]/" ;

ANCHOR: "/\^|\$|\\[AbBZ]/" ;

GROUP: "/\((\?:|\?[ims]+:|\?P<[A-Za-z_][A-Za-z0-9_]*>)?/" ;

LOOK_AHEAD: "/\(\?[=!]/" ;

LOOK_BEHIND: "/\(\?<[=!]/" ;

FLAGS: "/\(\?[ims]+\)/" ;

CLASS: "/\[\^?/" ;

// A "]" that comes first is a member of the class.
CLASS_AND_BRACKET: "/\[\^?\]/" ;

MEMBER: "/[^\\\]-]+/" ;

// In a class, "-" after a character makes a range, unless the class ends.
MEMBER_AND_DASH
    : "/([^\\\]-]+|\\([^0-9A-Za-z]|[nrtfvab]|0[0-7]{0,2}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|U0010[0-9a-fA-F]{4}))-/"
    ;

// A run of characters and a range after it: a token is read as one lexeme, for speed.
RANGE
    : "/[^\\\]-]*(0-[1-9]|1-[2-9]|[23]-[4-9]|[4-6]-[7-9]|a-[b-z]|[b-d]-[e-z]|[e-j]-[k-z]|[k-r]-[s-z]|A-[B-Z]|[B-D]-[E-Z]|[E-J]-[K-Z]|[K-R]-[S-Z])/"
    | "/[^\\\]-]*([ !]-[\/~]|[0-9]-[A-Za-z]|[A-Z]-[a-z]|\+-[.\/]|:-@|[ \[]-`|\{-~|[!-,.-[\^-~]-[^\x00-\x7f])/"
    | "/\\x(0[0-9a-fA-F]-\\x[1-9a-fA-F][0-9a-fA-F]|1[0-9a-fA-F]-\\x[2-9a-fA-F][0-9a-fA-F]|[2-7][0-9a-fA-F]-\\x[89a-fA-F][0-9a-fA-F]|[23][0-9a-fA-F]-\\x[4-7][0-9a-fA-F]|[89][0-9a-fA-F]-\\x[a-fA-F][0-9a-fA-F]|00-\\x0[0-9a-fA-F]|0[0-7]-\\x0[89a-fA-F])/"
    | "/\\u(0[0-9a-fA-F]{3}-\\u[1-9a-fA-F][0-9a-fA-F]{3}|[1-3][0-9a-fA-F]{3}-\\u[4-9a-fA-F][0-9a-fA-F]{3}|[4-7][0-9a-fA-F]{3}-\\u[89a-fA-F][0-9a-fA-F]{3}|[89][0-9a-fA-F]{3}-\\u[a-fA-F][0-9a-fA-F]{3}|00[0-9a-fA-F]{2}-\\u0[1-9a-fA-F][0-9a-fA-F]{2}|0[1-3][0-9a-fA-F]{2}-\\u0[4-9a-fA-F][0-9a-fA-F]{2})/"
    | "/\\\[-(`|\\[\]\^`])/"
    ;

pattern
    : alternatives
    | FLAGS alternatives
    ;

alternatives
    : sequence
    | alternatives "|" sequence
    ;

sequence
    : %empty
    | sequence ANCHOR
    | sequence LOOK_AHEAD alternatives ")"
    | sequence LOOK_BEHIND fixed ")"
    | sequence atom
    | sequence atom quantifier
    ;

quantifier
    : repeat
    | repeat "?"
    ;

repeat: "*" | "+" | "?" | COUNT ;

atom
    : character
    | GROUP alternatives ")"
    ;

fixed
    : %empty
    | fixed ANCHOR
    | fixed character
    ;

character
    : LITERAL
    | "{"
    | "."
    | ESCAPE
    | SET
    | after_one "]"
    | after_one MEMBER_AND_DASH "]"
    | after_many "]"
    | after_many "-" "]"
    | after_many MEMBER_AND_DASH "]"
    | CLASS MEMBER_AND_DASH "]"
    ;

// A class so far. After a set or a dash, another dash does not make a range and may only come last.

after_one
    : CLASS one
    | after_one one
    | after_many one
    ;

after_many
    : CLASS_AND_BRACKET
    | CLASS many
    | after_one many
    | after_many SET
    ;

one: MEMBER | ESCAPE | BACKSPACE | RANGE ;

many: SET | "-" ;
