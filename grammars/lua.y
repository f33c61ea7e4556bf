// Lua 5.4. A call that begins with a parenthesis on a new line belongs to the expression before it, as in Lua:
//     local a = f
//     (g or h)()         -- calls f(g or h)
// Long brackets have up to two equals signs. Gotos and their labels, break outside loops, ... outside vararg functions and
// assignments to <const> are checked by Lua's compiler, not by its grammar.

%start chunk

%nonassoc OPERAND      // an operand ends only where no "(" follows
%nonassoc "("
%left "or"
%left "and"
%left "<" ">" "<=" ">=" "~=" "=="
%left "|"
%left "~"
%left "&"
%left "<<" ">>"
%right ".."
%left "+" "-"
%left "*" "/" "//" "%"
%right UNARY
%right "^"             // binds tighter than an operator before it: -2^2 is -(2^2)

%%

SKIP
    : "/[ \t\r\n\v\f]+/"
    | "/--([^\[\r\n][^\r\n]*|\[=*([^\[=\r\n][^\r\n]*)?)?/"
    | "/--\[\[(\]?[^\]])*\]\]/"
    | "/--\[=\[([^\]]|\]+(=[^\]]|[^\]=]))*\]+=\]/"
    | "/--\[==\[([^\]]|\](=?\])*([^\]=]|=[^\]=]|==[^\]]))*\](=?\])*==\]/"
    ;

NAME: "/[A-Za-z_][A-Za-z0-9_]*/" ;

NUMBER
    : "/(0[xX]([0-9a-fA-F]+(\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)([pP][+\-]?[0-9]+)?|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?)/"
    ;

// Lua reads a numeral as far as this goes and then finds it malformed: 3x is not 3 followed by x, nor 1..2 a concatenation.
NEVER: "/(0[xX]([pP][+\-]?|[0-9a-fA-F.])*|\.?[0-9]([eE][+\-]?|[0-9a-fA-F.])*)[A-Za-z_]?/" ;

// A decimal escape has at most three digits and takes all it can: one of fewer digits is not followed by a digit.
STRING
    : '/"[0-9]*(([^"\\\r\n0-9]|\\["\x27\\abfnrtv]|\\(\r\n?|\n\r?)|\\x[0-9a-fA-F]{2}|\\z[ \t\r\n\v\f]*|\\u\{0*[0-7]?[0-9a-fA-F]{1,7}\}|\\([01][0-9]{2}|2[0-4][0-9]|25[0-5]))[0-9]*|\\[0-9]{1,2})*"/'
    | "/'[0-9]*(([^'\\\r\n0-9]|\\['\x22\\abfnrtv]|\\(\r\n?|\n\r?)|\\x[0-9a-fA-F]{2}|\\z[ \t\r\n\v\f]*|\\u\{0*[0-7]?[0-9a-fA-F]{1,7}\}|\\([01][0-9]{2}|2[0-4][0-9]|25[0-5]))[0-9]*|\\[0-9]{1,2})*'/"
    | "/\[\[(\]?[^\]])*\]\]/"
    | "/\[=\[([^\]]|\]+(=[^\]]|[^\]=]))*\]+=\]/"
    | "/\[==\[([^\]]|\](=?\])*([^\]=]|=[^\]=]|==[^\]]))*\](=?\])*==\]/"
    ;

chunk: block ;

block
    : statements
    | statements "return" semicolon
    | statements "return" expressions semicolon
    ;

semicolon
    : %empty
    | ";"
    ;

statements
    : %empty
    | statements statement
    ;

statement
    : ";"
    | variables "=" expressions
    | call %prec OPERAND
    | "::" name "::"
    | "break"
    | "goto" name
    | "do" block "end"
    | "while" expression "do" block "end"
    | "repeat" block "until" expression
    | "if" expression "then" block else_ifs "end"
    | "if" expression "then" block else_ifs "else" block "end"
    | "for" name "=" expression "," expression "do" block "end"
    | "for" name "=" expression "," expression "," expression "do" block "end"
    | "for" names "in" expressions "do" block "end"
    | "function" function_name function_body
    | "local" "function" name function_body
    | "local" attributed_names
    | "local" attributed_names "=" expressions
    ;

else_ifs
    : %empty
    | else_ifs "elseif" expression "then" block
    ;

name
    : NAME
    | "const"          // not reserved: they mean something between < and > only
    | "close"
    ;

names
    : name
    | names "," name
    ;

attributed_names
    : attributed_name
    | attributed_names "," attributed_name
    ;

attributed_name
    : name
    | name "<" "const" ">"
    | name "<" "close" ">"
    ;

function_name
    : dotted_name
    | dotted_name ":" name
    ;

dotted_name
    : name
    | dotted_name "." name
    ;

function_body
    : "(" ")" block "end"
    | "(" parameters ")" block "end"
    ;

parameters
    : names
    | names "," "..."
    | "..."
    ;

variables
    : variable
    | variables "," variable
    ;

variable
    : name
    | variable index
    | call index
    | parenthesized index
    ;

index
    : "[" expression "]"
    | "." name
    ;

call
    : variable arguments
    | call arguments
    | parenthesized arguments
    ;

arguments
    : callee_arguments
    | ":" name callee_arguments
    ;

callee_arguments
    : "(" ")"
    | "(" expressions ")"
    | table
    | STRING
    ;

parenthesized: "(" expression ")" ;

expressions
    : expression
    | expressions "," expression
    ;

expression
    : "nil"
    | "false"
    | "true"
    | "..."
    | NUMBER
    | STRING
    | table
    | "function" function_body
    | variable %prec OPERAND
    | call %prec OPERAND
    | parenthesized %prec OPERAND
    | expression "or" expression
    | expression "and" expression
    | expression "<" expression
    | expression ">" expression
    | expression "<=" expression
    | expression ">=" expression
    | expression "~=" expression
    | expression "==" expression
    | expression "|" expression
    | expression "~" expression
    | expression "&" expression
    | expression "<<" expression
    | expression ">>" expression
    | expression ".." expression
    | expression "+" expression
    | expression "-" expression
    | expression "*" expression
    | expression "/" expression
    | expression "//" expression
    | expression "%" expression
    | expression "^" expression
    | "not" expression %prec UNARY
    | "#" expression %prec UNARY
    | "-" expression %prec UNARY
    | "~" expression %prec UNARY
    ;

table
    : "{" "}"
    | "{" fields "}"
    | "{" fields separator "}"
    ;

fields
    : field
    | fields separator field
    ;

separator: "," | ";" ;

field
    : expression
    | name "=" expression
    | "[" expression "]" "=" expression
    ;
