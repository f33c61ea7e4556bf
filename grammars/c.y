// C as people write it: C99 and C11, the usual extensions of GNU and Microsoft, and macros, without preprocessing.
//
// Preprocessor lines and comments are white space. All branches of an #if stand in the text, one after the other, so a text
// whose branches are no whole declarations, statements or list items may be refused.
// Any identifier may be the name of a type: where a * b; can be read in two ways, both are followed (%glr-parser).
// Macros: names in capitals, with or without a prefix (EXPORT, Py_BEGIN_ALLOW_THREADS), and names that begin with two
// underscores. Beside what identifiers may be, a macro with or without arguments may be a statement, a member, a
// declaration, an attribute of a declaration, and a part of a string. Arguments of calls may be types.
// Left out: macros in lower case as attributes, declarations in K&R style after a macro, nested functions, trigraphs.
// c89.y is the strict grammar of ANSI C after preprocessing.

%start translation_unit
%glr-parser

%%

SKIP
    : "/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//"    // block comment
    | "/\/\/([^\n\\]|\\[^\n]|\\\r?\n)*/"     // line comment
    // preprocessor line, with the comments in it; the input starts as if a newline came before it
    | "/\n[ \t\r\v\f]*#([^\n\\\/]|\\[^\n\r]|\\\r?\n|\/\*[^*]*\*+([^\/*][^*]*\*+)*\/|\/[^*\n])*/"
    | "/\n?[ \t\r\v\f]*/"                    // white space: a prefix of the line above, so that an end of line is complete
    | "/\\\r?\n/"                            // a line goes on
    ;

IDENTIFIER: "/[A-Za-z_$][A-Za-z0-9_$]*/" ;

MACRO
    : "/([A-Z]|_+[A-Z])[A-Z0-9_]*|__[a-z][a-z0-9_]*|_*[A-Za-z][A-Za-z0-9]*_[A-Z][A-Z0-9]*(_[A-Z0-9]+)*|PRI[a-zA-Z0-9]+/"
    ;

CONSTANT
    : "/(0[0-7]*|[1-9][0-9]*|0[xX][0-9a-fA-F]+|0[bB][01]+)([uU]?(l|L|ll|LL)?|(l|L|ll|LL)[uU]|[uU]?i(8|16|32|64))/"
    | "/([0-9]+[eE][+\-]?[0-9]+|([0-9]*\.[0-9]+|[0-9]+\.)([eE][+\-]?[0-9]+)?)[fFlL]?/"
    | "/0[xX]([0-9a-fA-F]*\.[0-9a-fA-F]+|[0-9a-fA-F]+\.?)[pP][+\-]?[0-9]+[fFlL]?/"
    | "/(L|u8?|U)?'([^'\\\n]|\\['\x22?\\abefnrtv]|\\[0-7]{1,3}|\\x[0-9a-fA-F]+|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8})+'/"
    ;

// A number is not followed by a letter or a digit.
NEVER: "/\.?[0-9]([eEpP][+\-]|[0-9A-Za-z_.])*/" ;

STRING_LITERAL
    : '/(L|u8?|U)?"([^"\\\n]|\\\r?\n|\\[\x27"?\\abefnrtv%]|\\[0-7]{1,3}|\\x[0-9a-fA-F]+|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8})*"/'
    ;

name: IDENTIFIER | MACRO ;

// Expressions: without levels of precedence, which change no text

primary_expression
    : name
    | CONSTANT
    | string
    | "(" expression ")"
    | "(" compound_statement ")"
    | "_Generic" "(" assignment_expression "," generic_list ")"
    ;

string
    : STRING_LITERAL
    | MACRO STRING_LITERAL
    | macro_call STRING_LITERAL
    | string STRING_LITERAL
    | string MACRO
    | string macro_call
    ;

generic_list
    : generic
    | generic_list "," generic
    ;

generic
    : type_name ":" assignment_expression
    | "default" ":" assignment_expression
    ;

postfix_expression
    : primary_expression
    | macro_call
    | postfix_expression "[" expression "]"
    | postfix_expression "(" ")"
    | postfix_expression "(" arguments ")"
    | postfix_expression "." name
    | postfix_expression "->" name
    | postfix_expression "++"
    | postfix_expression "--"
    | "(" type_name ")" braces
    ;

arguments
    : argument
    | arguments "," argument
    ;

argument
    : assignment_expression
    | type_argument
    ;

// A type that is more than a name, which an expression is as well
type_argument
    : basic_qualifiers
    | basic_qualifiers abstract_declarator
    | record_qualifiers
    | record_qualifiers abstract_declarator
    | qualifier_list name_qualifiers
    | qualifier_list name_qualifiers abstract_declarator
    | name_qualifiers abstract_declarator
    | macro_qualifiers abstract_declarator
    ;

macro_call
    : MACRO "(" macro_arguments ")"
    ;

macro_arguments
    : macro_argument
    | macro_arguments "," macro_argument
    ;

macro_argument
    : %empty
    | argument
    | operator
    | braces
    | compound_statement
    | parameter_declaration_with_name
    | "(" parameter_type_list ")"
    ;

operator: binary_operator | assignment_operator ;

unary_expression
    : postfix_expression
    | "++" unary_expression
    | "--" unary_expression
    | unary_operator cast_expression
    | "&&" name
    | "sizeof" unary_expression
    | "sizeof" "(" type_name ")"
    | "_Alignof" "(" type_name ")"
    ;

unary_operator: "&" | "*" | "+" | "-" | "~" | "!" ;

cast_expression
    : unary_expression
    | "(" type_name ")" cast_expression
    ;

binary_expression
    : cast_expression
    | binary_expression binary_operator cast_expression
    ;

binary_operator
    : "*" | "/" | "%" | "+" | "-" | "<<" | ">>" | "<" | ">" | "<=" | ">=" | "==" | "!=" | "&" | "^" | "|" | "&&" | "||" ;

conditional_expression
    : binary_expression
    | binary_expression "?" expression ":" conditional_expression
    | binary_expression "?" ":" conditional_expression
    ;

assignment_expression
    : conditional_expression
    | unary_expression assignment_operator assignment_expression
    ;

assignment_operator: "=" | "*=" | "/=" | "%=" | "+=" | "-=" | "<<=" | ">>=" | "&=" | "^=" | "|=" ;

expression
    : assignment_expression
    | expression "," assignment_expression
    ;

expression_opt
    : %empty
    | expression
    ;

// Declarations. One kind of type in a declaration: basic words, or one struct, union or enum, or one name. Without any of
// them, a macro is the type.

declaration
    : record_specifiers ";"
    | typed_specifiers init_declarators ";"
    | macro_specifiers init_declarators ";"
    | macro_specifiers ";"
    | static_assertion
    ;

static_assertion
    : "_Static_assert" "(" arguments ")" ";"
    | "static_assert" "(" arguments ")" ";"
    ;

typed_specifiers
    : basic_specifiers
    | record_specifiers
    | name_specifiers
    ;

modifiers
    : plain_modifiers
    | macro_specifiers
    ;

plain_modifiers
    : plain_modifier
    | plain_modifiers plain_modifier
    ;

macro_specifiers
    : macro_modifier
    | plain_modifiers macro_modifier
    | macro_specifiers modifier
    ;

basic_specifiers
    : basic_type
    | modifiers basic_type
    | basic_specifiers basic_type
    | basic_specifiers modifier
    ;

record_specifiers
    : record_type
    | modifiers record_type
    | record_specifiers modifier
    ;

name_specifiers
    : IDENTIFIER
    | modifiers IDENTIFIER
    | name_specifiers modifier
    ;

modifier
    : plain_modifier
    | macro_modifier
    ;

plain_modifier
    : "typedef"
    | "extern"
    | "static"
    | "auto"
    | "register"
    | "inline"
    | "_Noreturn"
    | "_Thread_local"
    | plain_qualifier
    ;

type_qualifier
    : plain_qualifier
    | macro_modifier
    ;

plain_qualifier
    : "const"
    | "volatile"
    | "restrict"
    | "_Atomic"
    | "_Alignas" "(" argument ")"
    | attribute
    ;

macro_modifier
    : MACRO
    | macro_call
    | "typeof" "(" argument ")"
    ;

attribute
    : "__attribute__" "(" "(" attributes ")" ")"
    | "[" "[" attributes "]" "]"
    ;

attributes
    : attribute_item
    | attributes "," attribute_item
    ;

attribute_item
    : %empty
    | name
    | "const"
    | name ":" ":" name
    | name "(" ")"
    | name "(" arguments ")"
    ;

basic_type
    : "void" | "char" | "short" | "int" | "long" | "float" | "double" | "signed" | "unsigned" | "_Bool" | "_Complex"
    | "_Atomic" "(" type_name ")"
    ;

record_type
    : struct_or_union "{" members "}"
    | struct_or_union name "{" members "}"
    | struct_or_union type_qualifiers name "{" members "}"
    | struct_or_union type_qualifiers "{" members "}"
    | struct_or_union name
    | struct_or_union type_qualifiers name
    | enum "{" enumerators comma_opt "}"
    | enum name "{" enumerators comma_opt "}"
    | enum name
    ;

enum
    : "enum"
    | "enum" attribute
    ;

struct_or_union: "struct" | "union" ;

type_qualifiers
    : type_qualifier
    | type_qualifiers type_qualifier
    ;

enumerators
    : enumerator
    | enumerators "," enumerator
    ;

enumerator
    : name
    | name attribute
    | name "=" conditional_expression
    | name attribute "=" conditional_expression
    | macro_call
    | macro_call enumerator
    ;

comma_opt
    : %empty
    | ","
    ;

init_declarators
    : init_declarator
    | init_declarators "," init_declarator
    | init_declarators "," MACRO init_declarator
    ;

init_declarator
    : declared
    | declared "=" initializer
    ;

// A declarator and the attributes after it
declared
    : declarator
    | declared after
    ;

after
    : attribute
    | MACRO
    | macro_call
    | asm "(" string ")"
    ;

initializer
    : assignment_expression
    | braces
    ;

braces
    : "{" "}"
    | "{" initializers comma_opt "}"
    ;

initializers
    : item
    | initializers "," item
    ;

item
    : initializer
    | designation initializer
    | macro_call item
    | MACRO table_row
    ;

// Rows that are macros have their commas in them.
table_row
    : braces
    | macro_item table_row
    ;

macro_item
    : MACRO
    | macro_call
    ;

designation
    : designators "="
    | name ":"
    ;

designators
    : designator
    | designators designator
    ;

designator
    : "[" conditional_expression "]"
    | "[" conditional_expression "..." conditional_expression "]"
    | "." name
    ;

members
    : %empty
    | members member
    ;

member
    : record_qualifiers ";"
    | typed_qualifiers member_declarators ";"
    | macro_qualifiers member_declarators ";"
    | macro_item
    | static_assertion
    | ";"
    ;

typed_qualifiers
    : basic_qualifiers
    | record_qualifiers
    | name_qualifiers
    | qualifier_list name_qualifiers
    ;

qualifier_list
    : plain_qualifiers
    | macro_qualifiers
    ;

plain_qualifiers
    : plain_qualifier
    | plain_qualifiers plain_qualifier
    ;

macro_qualifiers
    : macro_modifier
    | plain_qualifiers macro_modifier
    | macro_qualifiers type_qualifier
    ;

basic_qualifiers
    : basic_type
    | qualifier_list basic_type
    | basic_qualifiers basic_type
    | basic_qualifiers type_qualifier
    ;

record_qualifiers
    : record_type
    | qualifier_list record_type
    | record_qualifiers type_qualifier
    ;

name_qualifiers
    : IDENTIFIER
    | name_qualifiers type_qualifier
    ;

member_declarators
    : member_declarator
    | member_declarators "," member_declarator
    ;

member_declarator
    : declared
    | ":" conditional_expression
    | declarator ":" conditional_expression
    ;

// Declarators

declarator
    : direct_declarator
    | pointer direct_declarator
    ;

direct_declarator
    : name
    | "(" declarator ")"
    | "(" type_qualifiers declarator ")"
    | direct_declarator suffix
    ;

suffix
    : "[" "]"
    | "[" array_qualifiers "]"
    | "[" assignment_expression "]"
    | "[" array_qualifiers assignment_expression "]"
    | "[" "*" "]"
    | "(" ")"
    | "(" parameter_type_list ")"
    ;

array_qualifiers
    : array_qualifier
    | array_qualifiers array_qualifier
    ;

array_qualifier: "static" | "const" | "volatile" | "restrict" ;

pointer
    : "*"
    | "*" type_qualifiers
    | "*" pointer
    | "*" type_qualifiers pointer
    | "^"
    ;

parameter_type_list
    : parameters
    | parameters "," "..."
    ;

parameters
    : parameter
    | parameters "," parameter
    ;

parameter
    : specifiers
    | specifiers abstract_declarator
    | parameter_declaration_with_name
    ;

parameter_declaration_with_name
    : specifiers declared
    ;

specifiers
    : typed_specifiers
    | macro_specifiers
    ;

type_name
    : qualifiers
    | qualifiers abstract_declarator
    ;

qualifiers
    : typed_qualifiers
    | macro_qualifiers
    ;

abstract_declarator
    : pointer
    | direct_abstract_declarator
    | pointer direct_abstract_declarator
    ;

direct_abstract_declarator
    : "(" abstract_declarator ")"
    | "(" type_qualifiers abstract_declarator ")"
    | suffix
    | direct_abstract_declarator suffix
    ;

// Statements

statement
    : compound_statement
    | expression_opt ";"
    | macro_item
    | IDENTIFIER "(" arguments ")" compound_statement
    | "if" "(" expression ")" body
    | "if" "(" expression ")" body "else" body
    | "switch" "(" expression ")" body
    | "while" "(" expression ")" body
    | "do" body "while" "(" expression ")" ";"
    | "for" "(" expression_opt ";" expression_opt ";" expression_opt ")" body
    | "for" "(" declaration expression_opt ";" expression_opt ")" body
    | "goto" name ";"
    | "goto" "*" cast_expression ";"
    | "continue" ";"
    | "break" ";"
    | "return" expression_opt ";"
    | "return" braces ";"
    | assembly ";"
    | attribute ";"
    ;

body
    : statement
    | label body
    ;

label
    : name ":"
    | name ":" attribute
    | "case" conditional_expression ":"
    | "case" conditional_expression "..." conditional_expression ":"
    | "default" ":"
    ;

compound_statement
    : "{" block_items "}"
    ;

block_items
    : %empty
    | block_items block_item
    ;

block_item
    : declaration
    | statement
    | label
    ;

assembly
    : asm "(" assembly_parts ")"
    | asm asm_qualifiers "(" assembly_parts ")"
    ;

asm: "asm" | "__asm__" | "__asm" ;

asm_qualifiers
    : asm_qualifier
    | asm_qualifiers asm_qualifier
    ;

asm_qualifier: "volatile" | "goto" | "inline" | MACRO ;

assembly_parts
    : string
    | assembly_parts ":"
    | assembly_parts ":" operands
    ;

operands
    : operand
    | operands "," operand
    ;

operand
    : string
    | string "(" expression ")"
    | "[" name "]" string "(" expression ")"
    | name
    ;

// Translation units

translation_unit
    : external_declarations
    ;

external_declarations
    : %empty
    | external_declarations external_declaration
    ;

external_declaration
    : function_definition
    | declaration
    | untyped_declaration
    | macro_item
    | "extern" STRING_LITERAL "{" external_declarations "}"
    | "extern" STRING_LITERAL declaration
    | "extern" STRING_LITERAL function_definition
    | assembly ";"
    | ";"
    ;

// A macro in lower case
untyped_declaration
    : IDENTIFIER "(" arguments ")" ";"
    ;

function_definition
    : typed_specifiers declared function_body
    | modifiers declared function_body
    | untyped_function function_body
    ;

untyped_function
    : name "(" ")"
    | name "(" parameter_type_list ")"
    | untyped_function suffix
    | untyped_function after
    ;

function_body
    : compound_statement
    | declarations compound_statement
    ;

declarations
    : declaration
    | declarations declaration
    ;
