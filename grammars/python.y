// Python 3.11: files, as ast.parse reads them.
//
// %indentation makes terminals of lines: NEWLINE reaches from the end of a line past blank lines and comments to the first
// text of the next line, whose column makes INDENT and DEDENT. Between brackets lines go on.
// `single` and `many` are expressions that can be assigned to, and others are told apart from them, so that f() = 1 is
// refused. The names match and case are also key words: both readings are followed (%glr-parser).
// Left out: what stands between the braces of an f-string is text; \N{...} takes any name; 1if x else y needs a space.
// Not syntax, so accepted: return outside a function, two parameters of one name, and what else only the compiler refuses.

%start file
%glr-parser
%indentation NEWLINE INDENT DEDENT
%brackets "(" ")" "[" "]" "{" "}"
%option final_newline

%%

NEWLINE: "/(\r?\n[ \t\f]*(#[^\n]*)?)+/" ;

SKIP
    : "/[ \t\f]+/"
    | "/#[^\n]*/"
    | "/\\\r?\n/"
    ;

NAME: "/[\p{L}\p{Nl}_][\p{L}\p{Nl}\p{M}\p{Nd}\p{Pc}]*/" ;

NUMBER
    : "/([1-9](_?[0-9])*|0(_?0)*|0[xX](_?[0-9a-fA-F])+|0[oO](_?[0-7])+|0[bB](_?[01])+)/"
    | "/([0-9](_?[0-9])*[jJ]|([0-9](_?[0-9])*\.([0-9](_?[0-9])*)?|\.[0-9](_?[0-9])*)([eE][+\-]?[0-9](_?[0-9])*)?[jJ]?|[0-9](_?[0-9])*[eE][+\-]?[0-9](_?[0-9])*[jJ]?)/"
    ;

// A number is not followed by a letter.
NEVER: "/[0-9][0-9A-Za-z_]*\.?[0-9A-Za-z_]*([eE][+\-]\w*)?|\.[0-9]\w*([eE][+\-]\w*)?/" ;

STRING
    : "/[uUfF]?'([^'\\\n]|\\(\r?\n|[^\nxuUN]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U(000[0-9a-fA-F]|0010)[0-9a-fA-F]{4}|N\{[^}\n]+\}))*'/"
    | "/[uUfF]?\x22([^\x22\\\n]|\\(\r?\n|[^\nxuUN]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U(000[0-9a-fA-F]|0010)[0-9a-fA-F]{4}|N\{[^}\n]+\}))*\x22/"
    | "/[uUfF]?'''('?'?([^'\\]|\\([^xuUN]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U(000[0-9a-fA-F]|0010)[0-9a-fA-F]{4}|N\{[^}\n]+\})))*'''/"
    | "/[uUfF]?\x22\x22\x22(\x22?\x22?([^\x22\\]|\\([^xuUN]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U(000[0-9a-fA-F]|0010)[0-9a-fA-F]{4}|N\{[^}\n]+\})))*\x22\x22\x22/"
    | "/([rR][fF]?|[fF][rR])('([^'\\\n]|\\\r?\n|\\[^\n])*'|\x22([^\x22\\\n]|\\\r?\n|\\[^\n])*\x22)/"
    | "/([rR][fF]?|[fF][rR])('''('?'?([^'\\]|\\(?s:.)))*'''|\x22\x22\x22(\x22?\x22?([^\x22\\]|\\(?s:.)))*\x22\x22\x22)/"
    ;

BYTES
    : "/[bB]('([\x00-\x09\x0b-\x26\x28-\x5b\x5d-\x7f]|\\(\r?\n|[\x00-\x09\x0b-\x77\x79-\x7f]|x[0-9a-fA-F]{2}))*'|\x22([\x00-\x09\x0b-\x21\x23-\x5b\x5d-\x7f]|\\(\r?\n|[\x00-\x09\x0b-\x77\x79-\x7f]|x[0-9a-fA-F]{2}))*\x22)/"
    | "/[bB]('''('?'?([\x00-\x26\x28-\x5b\x5d-\x7f]|\\([\x00-\x77\x79-\x7f]|x[0-9a-fA-F]{2})))*'''|\x22\x22\x22(\x22?\x22?([\x00-\x21\x23-\x5b\x5d-\x7f]|\\([\x00-\x77\x79-\x7f]|x[0-9a-fA-F]{2})))*\x22\x22\x22)/"
    | "/([bB][rR]|[rR][bB])('([\x00-\x09\x0b-\x26\x28-\x5b\x5d-\x7f]|\\\r?\n|\\[\x00-\x09\x0b-\x7f])*'|\x22([\x00-\x09\x0b-\x21\x23-\x5b\x5d-\x7f]|\\\r?\n|\\[\x00-\x09\x0b-\x7f])*\x22)/"
    | "/([bB][rR]|[rR][bB])('''('?'?([\x00-\x26\x28-\x5b\x5d-\x7f]|\\[\x00-\x7f]))*'''|\x22\x22\x22(\x22?\x22?([\x00-\x21\x23-\x5b\x5d-\x7f]|\\[\x00-\x7f]))*\x22\x22\x22)/"
    ;

name: NAME | "match" | "case" ;

file
    : %empty
    | statements
    ;

statements
    : statement
    | statements statement
    ;

statement
    : simple_statements
    | compound_statement
    ;

block
    : simple_statements
    | NEWLINE INDENT statements DEDENT
    ;

// Simple statements

simple_statements
    : simple_list NEWLINE
    | simple_list ";" NEWLINE
    ;

simple_list
    : simple_statement
    | simple_list ";" simple_statement
    ;

simple_statement
    : expressions
    | assignment
    | single augmented value
    | single ":" expression
    | single ":" expression "=" value
    | yield
    | "return"
    | "return" expressions
    | "pass"
    | "break"
    | "continue"
    | "del" deleted comma_opt
    | "assert" expression
    | "assert" expression "," expression
    | "global" names
    | "nonlocal" names
    | "raise"
    | "raise" expression
    | "raise" expression "from" expression
    | "import" modules
    | "from" module_path "import" imported
    ;

assignment: target_list "=" assigned ;

assigned
    : value
    | assignment
    ;

value
    : expressions
    | yield
    ;

augmented: "+=" | "-=" | "*=" | "/=" | "//=" | "%=" | "@=" | "&=" | "|=" | "^=" | ">>=" | "<<=" | "**=" ;

deleted
    : target
    | deleted "," target
    ;

names
    : name
    | names "," name
    ;

modules
    : module
    | modules "," module
    ;

module
    : dotted_name
    | dotted_name "as" name
    ;

dotted_name
    : name
    | dotted_name "." name
    ;

module_path
    : dotted_name
    | dots
    | dots dotted_name
    ;

dots
    : dot
    | dots dot
    ;

dot: "." | ".." | "..." ;

imported
    : "*"
    | imports
    | "(" imports comma_opt ")"
    ;

imports
    : import
    | imports "," import
    ;

import
    : name
    | name "as" name
    ;

comma_opt
    : %empty
    | ","
    ;

// Compound statements

compound_statement
    : "if" condition ":" block else_if
    | "while" condition ":" block else
    | for
    | "async" for
    | with
    | "async" with
    | try
    | definition
    | decorators definition
    | "match" subject ":" NEWLINE INDENT cases DEDENT
    ;

condition: named_expression ;

else_if
    : else
    | "elif" condition ":" block else_if
    ;

else
    : %empty
    | "else" ":" block
    ;

for: "for" target_list "in" expressions ":" block else ;

with
    : "with" with_items ":" block
    | "with" "(" with_items comma_opt ")" ":" block
    ;

with_items
    : with_item
    | with_items "," with_item
    ;

with_item
    : expression
    | expression "as" target
    ;

try
    : "try" ":" block "finally" ":" block
    | "try" ":" block handlers else finally
    | "try" ":" block group_handlers else finally
    ;

finally
    : %empty
    | "finally" ":" block
    ;

handlers
    : handler
    | handlers handler
    ;

handler
    : "except" ":" block
    | "except" expression ":" block
    | "except" expression "as" name ":" block
    ;

group_handlers
    : group_handler
    | group_handlers group_handler
    ;

group_handler
    : "except" "*" expression ":" block
    | "except" "*" expression "as" name ":" block
    ;

decorators
    : "@" named_expression NEWLINE
    | decorators "@" named_expression NEWLINE
    ;

definition
    : function
    | "async" function
    | "class" name ":" block
    | "class" name "(" ")" ":" block
    | "class" name "(" arguments comma_opt ")" ":" block
    ;

function
    : "def" name "(" parameters ")" ":" block
    | "def" name "(" parameters ")" "->" expression ":" block
    ;

// Parameters: `plain` have no default, after `defaulted` all have one; then those by keyword.

parameters
    : %empty
    | by_place comma_opt
    | starred_parameter comma_opt
    | by_keyword comma_opt
    | keywords comma_opt
    ;

by_place
    : plain
    | defaulted
    | plain_after_slash
    | defaulted_after_slash
    ;

plain
    : parameter
    | plain "," parameter
    ;

defaulted
    : parameter default
    | plain "," parameter default
    | defaulted "," parameter default
    ;

plain_after_slash
    : plain "," "/"
    | plain_after_slash "," parameter
    ;

defaulted_after_slash
    : defaulted "," "/"
    | plain_after_slash "," parameter default
    | defaulted_after_slash "," parameter default
    ;

starred_parameter
    : "*" parameter
    | "*" name ":" "*" arithmetic
    | by_place "," "*" parameter
    | by_place "," "*" name ":" "*" arithmetic
    ;

star
    : "*"
    | by_place "," "*"
    ;

by_keyword
    : star "," keyword_parameter
    | starred_parameter "," keyword_parameter
    | by_keyword "," keyword_parameter
    ;

keyword_parameter
    : parameter
    | parameter default
    ;

keywords
    : "**" parameter
    | by_place "," "**" parameter
    | starred_parameter "," "**" parameter
    | by_keyword "," "**" parameter
    ;

parameter
    : name
    | name ":" expression
    ;

default: "=" expression ;

// The same for lambda, without types

lambda: "lambda" lambda_parameters ":" expression ;

lambda_parameters
    : %empty
    | lambda_by_place comma_opt
    | lambda_starred comma_opt
    | lambda_by_keyword comma_opt
    | lambda_keywords comma_opt
    ;

lambda_by_place
    : names
    | lambda_defaulted
    | lambda_after_slash
    | lambda_defaulted_after_slash
    ;

lambda_defaulted
    : name default
    | names "," name default
    | lambda_defaulted "," name default
    ;

lambda_after_slash
    : names "," "/"
    | lambda_after_slash "," name
    ;

lambda_defaulted_after_slash
    : lambda_defaulted "," "/"
    | lambda_after_slash "," name default
    | lambda_defaulted_after_slash "," name default
    ;

lambda_starred
    : "*" name
    | lambda_by_place "," "*" name
    ;

lambda_star
    : "*"
    | lambda_by_place "," "*"
    ;

lambda_by_keyword
    : lambda_star "," lambda_keyword
    | lambda_starred "," lambda_keyword
    | lambda_by_keyword "," lambda_keyword
    ;

lambda_keyword
    : name
    | name default
    ;

lambda_keywords
    : "**" name
    | lambda_by_place "," "**" name
    | lambda_starred "," "**" name
    | lambda_by_keyword "," "**" name
    ;

// Patterns of match

subject
    : named_expression
    | one_item ","
    | several_items comma_opt
    ;

one_item
    : target_item
    | other_item
    ;

several_items
    : target_item "," targets
    | several_others
    ;

cases
    : case
    | cases case
    ;

case: "case" patterns guard ":" block ;

guard
    : %empty
    | "if" named_expression
    ;

patterns
    : pattern
    | open_patterns
    ;

open_patterns
    : item_pattern ","
    | item_pattern "," item_patterns comma_opt
    ;

item_patterns
    : item_pattern
    | item_patterns "," item_pattern
    ;

item_pattern
    : pattern
    | "*" name
    ;

pattern
    : or_pattern
    | or_pattern "as" name
    ;

or_pattern
    : closed_pattern
    | or_pattern "|" closed_pattern
    ;

closed_pattern
    : literal_pattern
    | dotted_name
    | "(" pattern ")"
    | "(" ")"
    | "(" open_patterns ")"
    | "[" "]"
    | "[" item_patterns comma_opt "]"
    | "{" "}"
    | "{" key_patterns comma_opt "}"
    | "{" rest_pattern comma_opt "}"
    | "{" key_patterns "," rest_pattern comma_opt "}"
    | dotted_name "(" ")"
    | dotted_name "(" class_patterns comma_opt ")"
    ;

literal_pattern
    : strings
    | number_pattern
    | "None"
    | "True"
    | "False"
    ;

number_pattern
    : signed_number
    | signed_number "+" NUMBER
    | signed_number "-" NUMBER
    ;

signed_number
    : NUMBER
    | "-" NUMBER
    ;

key_patterns
    : key_pattern
    | key_patterns "," key_pattern
    ;

key_pattern
    : literal_pattern ":" pattern
    | dotted_name "." name ":" pattern
    ;

rest_pattern: "**" name ;

class_patterns
    : item_of_class
    | class_patterns "," item_of_class
    ;

item_of_class
    : pattern
    | name "=" pattern
    ;

// What can be assigned to: `single` in each kind of assignment, `many` in the plain one

single
    : name
    | primary "." name
    | primary "[" subscripts comma_opt "]"
    | "(" single ")"
    ;

many
    : "(" ")"
    | "(" target_item "," ")"
    | "(" target_item "," targets comma_opt ")"
    | "(" many ")"
    | "[" "]"
    | "[" targets comma_opt "]"
    ;

target
    : single
    | many
    ;

target_item
    : target
    | "*" target
    ;

targets
    : target_item
    | targets "," target_item
    ;

target_list
    : targets
    | targets ","
    ;

// Expressions. `other_x`: an x that cannot be assigned to.

expressions
    : target_list
    | mixed
    | mixed ","
    ;

mixed
    : other_expression
    | "*" other_arithmetic
    | targets "," other_expression
    | targets "," "*" other_arithmetic
    | mixed "," other_expression
    | mixed "," "*" other_arithmetic
    | mixed "," target_item
    ;

yield
    : "yield"
    | "yield" expressions
    | "yield" "from" expression
    ;

named_expression
    : target
    | other_named
    ;

other_named
    : other_expression
    | name ":=" expression
    ;

expression
    : target
    | other_expression
    ;

other_expression
    : other_logical
    | logical "if" logical "else" expression
    | lambda
    ;

logical
    : target
    | other_logical
    ;

other_logical
    : other_inversion
    | logical "and" inversion
    | logical "or" inversion
    ;

inversion
    : target
    | other_inversion
    ;

other_inversion
    : other_comparison
    | "not" inversion
    ;

comparison
    : target
    | other_comparison
    ;

other_comparison
    : other_arithmetic
    | comparison comparing arithmetic
    ;

comparing: "==" | "!=" | "<" | ">" | "<=" | ">=" | "in" | "not" "in" | "is" | "is" "not" ;

arithmetic
    : target
    | other_arithmetic
    ;

other_arithmetic
    : other_operand
    | arithmetic operator operand
    ;

operator: "+" | "-" | "*" | "/" | "//" | "%" | "@" | "&" | "|" | "^" | "<<" | ">>" | "**" ;

operand
    : target
    | other_operand
    ;

other_operand
    : other_primary
    | "await" primary
    | "+" operand
    | "-" operand
    | "~" operand
    ;

primary
    : target
    | other_primary
    ;

other_primary
    : NUMBER
    | strings
    | "None"
    | "True"
    | "False"
    | "..."
    | primary "(" ")"
    | primary "(" arguments comma_opt ")"
    | primary "(" named_expression comprehension ")"
    | "(" other_named ")"
    | "(" yield ")"
    | "(" named_expression comprehension ")"
    | "(" other_item "," ")"
    | "(" several_others comma_opt ")"
    | "[" other_item comma_opt "]"
    | "[" several_others comma_opt "]"
    | "[" named_expression comprehension "]"
    | "{" items comma_opt "}"
    | "{" named_expression comprehension "}"
    | "{" "}"
    | "{" pairs comma_opt "}"
    | "{" pair comprehension "}"
    ;

strings
    : text
    | bytes
    ;

text
    : STRING
    | text STRING
    ;

bytes
    : BYTES
    | bytes BYTES
    ;

other_item
    : other_named
    | "*" other_arithmetic
    ;

// Two items at least, of which one cannot be assigned to
several_others
    : targets "," other_item
    | other_item "," target_item
    | other_item "," other_item
    | several_others "," target_item
    | several_others "," other_item
    ;

items
    : item
    | items "," item
    ;

item
    : named_expression
    | "*" arithmetic
    ;

pairs
    : pair
    | "**" arithmetic
    | pairs "," pair
    | pairs "," "**" arithmetic
    ;

pair: expression ":" expression ;

comprehension
    : comprehension_for
    | comprehension comprehension_for
    | comprehension "if" logical
    ;

comprehension_for
    : "for" target_list "in" logical
    | "async" "for" target_list "in" logical
    ;

subscripts
    : subscript
    | subscripts "," subscript
    ;

subscript
    : named_expression
    | "*" arithmetic
    | expression_opt ":" expression_opt
    | expression_opt ":" expression_opt ":" expression_opt
    ;

expression_opt
    : %empty
    | expression
    ;

// Arguments: no place after a keyword, no star after two stars

arguments
    : places
    | arguments_with_keywords
    | arguments_with_mappings
    ;

places
    : place
    | places "," place
    ;

place
    : named_expression
    | "*" expression
    ;

arguments_with_keywords
    : keyword
    | places "," keyword
    | arguments_with_keywords "," keyword
    | arguments_with_keywords "," "*" expression
    ;

arguments_with_mappings
    : "**" expression
    | places "," "**" expression
    | arguments_with_keywords "," "**" expression
    | arguments_with_mappings "," keyword
    | arguments_with_mappings "," "**" expression
    ;

keyword: name "=" expression ;
