// JavaScript: expressions, statements and modules of ECMAScript 2022, in strict mode.
// A statement ends with ";", but for the last of a block or of the text: line breaks end nothing. They are white space everywhere,
// also where JavaScript forbids them (before => and postfix ++, after throw and async) or ends a statement (after return).
// Left out: generators, labels, private names, static accessors, JSX, names beyond ASCII,
// parentheses around the target of an assignment, <, in, ==, && and their like in the first part of for (;;).
// Not for a grammar to say: await outside async functions, break outside loops, super outside classes, return outside functions,
// names that are declared twice or exported without a declaration, whether a regular expression is well-formed.

%start program
%option contextual
%glr-parser

%%

SKIP
    : "/[ \t\r\n]+/"
    | "/\/\/[^\r\n\u2028\u2029]*/"
    | "/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//"
    ;

// A name is not a reserved word.
NAME: "/(?&[A-Za-z_$][A-Za-z0-9_$]*&(?~break|case|catch|class|const|continue|debugger|default|delete|do|else|enum|export|extends|false|finally|for|function|if|import|in|instanceof|let|new|null|return|static|super|switch|this|throw|true|try|typeof|var|void|while|with|yield|await|async|arguments|eval|implements|interface|package|private|protected|public))/" ;

NUMBER
    : "/(0|[1-9](_?[0-9])*)n|((0|[1-9](_?[0-9])*)(\.([0-9](_?[0-9])*)?)?|\.[0-9](_?[0-9])*)([eE][+\-]?[0-9](_?[0-9])*)?|0([xX][0-9a-fA-F](_?[0-9a-fA-F])*|[oO][0-7](_?[0-7])*|[bB][01](_?[01])*)n?/"
    ;

// A number is not followed by a letter, a digit or a dot.
NEVER
    : "/\.?[0-9]([eE][+\-]?|[0-9A-Za-z_$.])*/"
    | "/\+\+|--/"     // not two signs
    | "/(in|instanceof|of|as|from|case|default|extends|function|class|const|let|var|async)[A-Za-z0-9_$]+/"     // inx is not in and then x
    ;

STRING
    : '/"((\\0)*([^"\\\r\n0-9]|\\([^0-9xu\r\n]|\r?\n|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,5}\}))|[0-9])*(\\0)*"/'
    | "/'((\\0)*([^'\\\r\n0-9]|\\([^0-9xu\r\n]|\r?\n|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,5}\}))|[0-9])*(\\0)*'/"
    ;

TEMPLATE: "/`(\$*([^`\\${]|\\([^0-9xu\r\n]|\r?\n|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,5}\}))|\{)*\$*`/" ;
TEMPLATE_HEAD: "/`(\$*([^`\\${]|\\([^0-9xu\r\n]|\r?\n|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,5}\}))|\{)*\$+\{/" ;
TEMPLATE_MIDDLE: "/\}(\$*([^`\\${]|\\([^0-9xu\r\n]|\r?\n|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,5}\}))|\{)*\$+\{/" ;
TEMPLATE_TAIL: "/\}(\$*([^`\\${]|\\([^0-9xu\r\n]|\r?\n|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,5}\}))|\{)*\$*`/" ;

REGEX
    : "/\/([^*\/\\\[\r\n]|\\[^\r\n]|\[([^\]\\\r\n]|\\[^\r\n])*\])([^\/\\\[\r\n]|\\[^\r\n]|\[([^\]\\\r\n]|\\[^\r\n])*\])*\/(g?i?m?s?u?y?|ig|mg|img?)/"
    ;

program
    : module_items
    | module_items last_item
    ;

module_items
    : %empty
    | module_items item
    | module_items "import" STRING ";"
    | module_items "import" imports "from" STRING ";"
    | module_items "export" declaration
    | module_items "export" variables ";"
    | module_items "export" "default" function_declaration
    | module_items "export" "default" "function" signature
    | module_items "export" "default" "async" "function" signature
    | module_items "export" "default" "class" class_body
    | module_items "export" "default" "class" NAME class_body
    | module_items "export" "default" assignment_s ";"
    | module_items "export" "default" object ";"
    | module_items "export" "{" specifiers "}" ";"
    | module_items "export" "{" outer_specifiers "}" "from" STRING ";"
    | module_items "export" "*" "from" STRING ";"
    | module_items "export" "*" "as" property_name "from" STRING ";"
    ;

imports
    : NAME
    | NAME "," named_imports
    | named_imports
    ;

named_imports
    : "*" "as" NAME
    | "{" import_specifiers "}"
    ;

import_specifiers
    : %empty
    | import_specifier
    | import_specifier "," import_specifiers
    ;

import_specifier
    : NAME
    | property_name "as" NAME
    ;

specifiers
    : %empty
    | specifier
    | specifier "," specifiers
    ;

specifier
    : NAME
    | NAME "as" property_name
    ;

outer_specifiers
    : %empty
    | outer_specifier
    | outer_specifier "," outer_specifiers
    ;

outer_specifier
    : property_name
    | property_name "as" property_name
    ;

// Statements

block: "{" items "}" | "{" items last_item "}" ;

items
    : %empty
    | items item
    ;

item
    : statement
    | declaration
    | lexical ";"
    ;

// The last statement needs no semicolon.
last_item
    : last
    | lexical
    ;

last
    : simple
    | "if" "(" expression ")" last
    | "if" "(" expression ")" statement "else" last
    | "for" "(" for_head ")" last
    | "while" "(" expression ")" last
    ;

statement
    : ";"
    | block
    | simple ";"
    | "if" "(" expression ")" statement
    | "if" "(" expression ")" statement "else" statement
    | "for" "(" for_head ")" statement
    | "for" "await" "(" each ")" statement
    | "while" "(" expression ")" statement
    | "switch" "(" expression ")" "{" clauses "}"
    | "try" block catch
    | "try" block "finally" block
    | "try" block catch "finally" block
    ;

simple
    : expression_s
    | "var" bindings
    | "return"
    | "return" expression
    | "throw" expression
    | "break"
    | "continue"
    | "debugger"
    | "do" statement "while" "(" expression ")"
    ;

catch
    : "catch" block
    | "catch" "(" binding ")" block
    ;

clauses
    : cases
    | some_cases last_item
    | cases default cases
    | cases default last_item
    | cases default some_cases last_item
    ;

default: "default" ":" items ;

cases
    : %empty
    | some_cases
    ;

some_cases: cases "case" expression ":" items ;

for_head
    : ";" optional_expression ";" optional_expression
    | "var" for_bindings ";" optional_expression ";" optional_expression
    | "let" for_bindings ";" optional_expression ";" optional_expression
    | "const" initialized_for_bindings ";" optional_expression ";" optional_expression
    | for_assignments ";" optional_expression ";" optional_expression
    | each
    | "var" binding "in" expression
    | "let" binding "in" expression
    | "const" binding "in" expression
    | target_s "in" expression
    ;

each
    : "var" binding "of" assignment
    | "let" binding "of" assignment
    | "const" binding "of" assignment
    | target_s "of" assignment
    ;

for_bindings
    : for_binding
    | for_bindings "," for_binding
    ;

for_binding
    : NAME
    | for_initialized
    ;

initialized_for_bindings
    : for_initialized
    | initialized_for_bindings "," for_initialized
    ;

for_initialized: binding "=" arithmetic ;

for_assignments
    : target_s "=" arithmetic
    | for_assignments "," target_s "=" arithmetic
    ;

optional_expression
    : %empty
    | expression
    ;

// Declarations

lexical
    : "let" bindings
    | "const" initialized_bindings
    ;

variables
    : "var" bindings
    | lexical
    ;

declaration
    : function_declaration
    | "class" NAME class_body
    ;

function_declaration
    : "function" NAME signature
    | "async" "function" NAME signature
    ;

signature: "(" parameters ")" block ;

parameters
    : %empty
    | parameter
    | "..." binding
    | parameter "," parameters
    ;

parameter
    : binding
    | binding "=" assignment
    ;

bindings
    : NAME
    | initialized
    | bindings "," NAME
    | bindings "," initialized
    ;

initialized_bindings
    : initialized
    | initialized_bindings "," initialized
    ;

initialized: binding "=" assignment ;

binding
    : NAME
    | "[" binding_elements "]"
    | "{" binding_properties "}"
    ;

binding_elements
    : binding_element
    | "..." binding
    | binding_element "," binding_elements
    ;

binding_element
    : %empty
    | parameter
    ;

binding_properties
    : %empty
    | binding_property
    | "..." NAME
    | binding_property "," binding_properties
    ;

binding_property
    : NAME
    | NAME "=" assignment
    | key ":" parameter
    ;

// Classes: the first member function of the name "constructor" is the constructor.

class_body
    : "{" members "}"
    | "extends" left "{" members "}"
    ;

members
    : %empty
    | members ";"
    | members method
    | members "static" method
    | members field ";"
    | members "static" field ";"
    | members "static" block
    ;

field
    : key
    | key "=" assignment
    ;

method
    : key signature
    | "async" key signature
    | "get" key "(" ")" block
    | "set" key "(" parameter ")" block
    ;

key
    : property_name
    | STRING
    | NUMBER
    | "[" assignment "]"
    ;

// Expressions. Operators of one rule differ in precedence, which changes no text's acceptance. What ends in _s may begin a statement: it does not begin with {, function or class.

expression
    : assignment
    | expression "," assignment
    ;

assignment
    : conditional
    | arrow
    | target assign assignment
    | pattern "=" assignment
    ;

assign: "=" | "+=" | "-=" | "*=" | "/=" | "%=" | "**=" | "<<=" | ">>=" | ">>>=" | "&=" | "^=" | "|=" | "&&=" | "||=" | "??=" ;

arrow
    : NAME "=>" arrow_body
    | "(" parameters ")" "=>" arrow_body
    | "async" NAME "=>" arrow_body
    | "async" "(" parameters ")" "=>" arrow_body
    ;

arrow_body
    : block
    | assignment_s
    | function
    ;

// What a destructuring assignment assigns to.
pattern
    : "[" pattern_elements "]"
    | "{" pattern_properties "}"
    ;

pattern_elements
    : pattern_element
    | "..." pattern_target
    | pattern_element "," pattern_elements
    ;

pattern_element
    : %empty
    | pattern_target
    | pattern_target "=" assignment
    ;

pattern_target
    : target
    | pattern
    ;

pattern_properties
    : %empty
    | pattern_property
    | "..." target
    | pattern_property "," pattern_properties
    ;

pattern_property
    : NAME
    | NAME "=" assignment
    | key ":" pattern_target
    | key ":" pattern_target "=" assignment
    ;

conditional
    : short
    | short "?" assignment ":" assignment
    ;

short
    : logical
    | coalesce
    ;

coalesce
    : comparison "??" comparison
    | coalesce "??" comparison
    ;

logical
    : comparison
    | logical "||" comparison
    | logical "&&" comparison
    ;

comparison
    : arithmetic
    | comparison "<" arithmetic
    | comparison ">" arithmetic
    | comparison "<=" arithmetic
    | comparison ">=" arithmetic
    | comparison "instanceof" arithmetic
    | comparison "in" arithmetic
    | comparison "==" arithmetic
    | comparison "!=" arithmetic
    | comparison "===" arithmetic
    | comparison "!==" arithmetic
    | comparison "&" arithmetic
    | comparison "^" arithmetic
    | comparison "|" arithmetic
    ;

arithmetic
    : power
    | arithmetic "+" power
    | arithmetic "-" power
    | arithmetic "*" power
    | arithmetic "/" power
    | arithmetic "%" power
    | arithmetic "<<" power
    | arithmetic ">>" power
    | arithmetic ">>>" power
    ;

power
    : unary
    | update "**" power
    ;

unary
    : update
    | "+" unary
    | "-" unary
    | "!" unary
    | "~" unary
    | "typeof" unary
    | "void" unary
    | "await" unary
    | "delete" access
    | "delete" call_access
    | "delete" optional
    ;

update
    : left
    | target "++"
    | target "--"
    | "++" target
    | "--" target
    ;

left
    : new
    | call
    | optional
    ;

new
    : member
    | "new" new
    ;

member
    : primary
    | access
    | member template
    | "new" member arguments
    | "import" "." "meta"
    | "new" "." "target"
    ;

access
    : member "." property_name
    | member "[" expression "]"
    | "super" "." property_name
    | "super" "[" expression "]"
    ;

call
    : member arguments
    | call_access
    | call arguments
    | call template
    | "super" arguments
    | "import" "(" assignment ")"
    ;

call_access
    : call "." property_name
    | call "[" expression "]"
    ;

optional
    : member "?." optional_link
    | call "?." optional_link
    | optional "?." optional_link
    | optional "." property_name
    | optional "[" expression "]"
    | optional arguments
    ;

optional_link
    : property_name
    | "[" expression "]"
    | arguments
    ;

target
    : NAME
    | access
    | call_access
    ;

arguments: "(" argument_list ")" ;

argument_list
    : %empty
    | argument
    | argument "," argument_list
    ;

argument
    : assignment
    | "..." assignment
    ;

primary
    : NAME
    | "this"
    | "arguments"
    | "null"
    | "true"
    | "false"
    | NUMBER
    | STRING
    | REGEX
    | template
    | "[" elements "]"
    | "(" expression ")"
    | object
    | function
    ;

template
    : TEMPLATE
    | TEMPLATE_HEAD expression template_rest
    ;

template_rest
    : TEMPLATE_TAIL
    | TEMPLATE_MIDDLE expression template_rest
    ;

elements
    : element
    | element "," elements
    ;

element
    : %empty
    | argument
    ;

object: "{" properties "}" ;

properties
    : %empty
    | property
    | property "," properties
    ;

property
    : NAME
    | "get"
    | "set"
    | key ":" assignment
    | "..." assignment
    | method
    ;

function
    : "function" signature
    | "function" NAME signature
    | "async" "function" signature
    | "async" "function" NAME signature
    | "class" class_body
    | "class" NAME class_body
    ;

expression_s
    : assignment_s
    | expression_s "," assignment
    ;

assignment_s
    : conditional_s
    | arrow
    | target_s assign assignment
    | "[" pattern_elements "]" "=" assignment
    ;

conditional_s
    : short_s
    | short_s "?" assignment ":" assignment
    ;

short_s
    : logical_s
    | coalesce_s
    ;

coalesce_s
    : comparison_s "??" comparison
    | coalesce_s "??" comparison
    ;

logical_s
    : comparison_s
    | logical_s "||" comparison
    | logical_s "&&" comparison
    ;

comparison_s
    : arithmetic_s
    | comparison_s "<" arithmetic
    | comparison_s ">" arithmetic
    | comparison_s "<=" arithmetic
    | comparison_s ">=" arithmetic
    | comparison_s "instanceof" arithmetic
    | comparison_s "in" arithmetic
    | comparison_s "==" arithmetic
    | comparison_s "!=" arithmetic
    | comparison_s "===" arithmetic
    | comparison_s "!==" arithmetic
    | comparison_s "&" arithmetic
    | comparison_s "^" arithmetic
    | comparison_s "|" arithmetic
    ;

arithmetic_s
    : power_s
    | arithmetic_s "+" power
    | arithmetic_s "-" power
    | arithmetic_s "*" power
    | arithmetic_s "/" power
    | arithmetic_s "%" power
    | arithmetic_s "<<" power
    | arithmetic_s ">>" power
    | arithmetic_s ">>>" power
    ;

power_s
    : unary_s
    | update_s "**" power
    ;

unary_s
    : update_s
    | "+" unary
    | "-" unary
    | "!" unary
    | "~" unary
    | "typeof" unary
    | "void" unary
    | "await" unary
    | "delete" access
    | "delete" call_access
    | "delete" optional
    ;

update_s
    : left_s
    | target_s "++"
    | target_s "--"
    | "++" target
    | "--" target
    ;

left_s
    : new_s
    | call_s
    | optional_s
    ;

new_s
    : member_s
    | "new" new
    ;

member_s
    : primary_s
    | access_s
    | member_s template
    | "new" member arguments
    | "import" "." "meta"
    | "new" "." "target"
    ;

access_s
    : member_s "." property_name
    | member_s "[" expression "]"
    | "super" "." property_name
    | "super" "[" expression "]"
    ;

call_s
    : member_s arguments
    | call_access_s
    | call_s arguments
    | call_s template
    | "super" arguments
    | "import" "(" assignment ")"
    ;

call_access_s
    : call_s "." property_name
    | call_s "[" expression "]"
    ;

optional_s
    : member_s "?." optional_link
    | call_s "?." optional_link
    | optional_s "?." optional_link
    | optional_s "." property_name
    | optional_s "[" expression "]"
    | optional_s arguments
    ;

target_s
    : NAME
    | access_s
    | call_access_s
    ;

primary_s
    : NAME
    | "this"
    | "arguments"
    | "null"
    | "true"
    | "false"
    | NUMBER
    | STRING
    | REGEX
    | template
    | "[" elements "]"
    | "(" expression ")"
    ;

// Any word may name a property.
property_name
    : NAME
    | "get"
    | "set"
    | "break"
    | "case"
    | "catch"
    | "class"
    | "const"
    | "continue"
    | "debugger"
    | "default"
    | "delete"
    | "do"
    | "else"
    | "enum"
    | "export"
    | "extends"
    | "false"
    | "finally"
    | "for"
    | "function"
    | "if"
    | "import"
    | "in"
    | "instanceof"
    | "let"
    | "new"
    | "null"
    | "return"
    | "static"
    | "super"
    | "switch"
    | "this"
    | "throw"
    | "true"
    | "try"
    | "typeof"
    | "var"
    | "void"
    | "while"
    | "with"
    | "yield"
    | "await"
    | "async"
    | "arguments"
    | "eval"
    | "implements"
    | "interface"
    | "package"
    | "private"
    | "protected"
    | "public"
    ;
