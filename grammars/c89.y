// ANSI C (C89): translation units after the preprocessor, with its lines and comments as white space.
//
// Whether a name is a type cannot be known without a table of symbols. The convention: what ends in _t is the name of a
// type, as are FILE, va_list and jmp_buf; every other identifier is not. A type name can be declared
// (typedef unsigned long word_t;) and can be a tag, a member or a label, which are name spaces of their own.

%start translation_unit

%nonassoc THEN
%nonassoc "else"       // belongs to the nearest if

%left "||"
%left "&&"
%left "|"
%left "^"
%left "&"
%left "==" "!="
%left "<" ">" "<=" ">="
%left "<<" ">>"
%left "+" "-"
%left "*" "/" "%"

%%

SKIP
    : "/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//"    // block comment
    | "/\/\/.*/"                             // line comment
    | "/\n[ \t\r\v\f]*#(.*\\\r?\n)*.*/"      // preprocessor line; the input starts as if a newline came before it
    | "/\n?[ \t\r\v\f]*/"                    // white space: a prefix of the line above, so that an end of line is complete
    ;

IDENTIFIER: "/[A-Za-z_][A-Za-z0-9_]*/" ;

TYPE_NAME
    : "/[A-Za-z_][A-Za-z0-9_]*_t/"
    | "FILE"
    | "va_list"
    | "jmp_buf"
    ;

CONSTANT
    : "/(0[0-7]*|[1-9][0-9]*|0[xX][0-9a-fA-F]+)([uU][lL]?|[lL][uU]?)?/"
    | "/([0-9]+[eE][+\-]?[0-9]+|([0-9]*\.[0-9]+|[0-9]+\.)([eE][+\-]?[0-9]+)?)[fFlL]?/"
    | "/L?'([^'\\\n]|\\['\x22?\\abfnrtv]|\\[0-7]{1,3}|\\x[0-9a-fA-F]+)+'/"
    ;

STRING_LITERAL: '/L?"([^"\\\n]|\\[\x27"?\\abfnrtv]|\\[0-7]{1,3}|\\x[0-9a-fA-F]+)*"/' ;

// Expressions

primary_expression
    : IDENTIFIER
    | CONSTANT
    | string
    | "(" expression ")"
    ;

string
    : STRING_LITERAL
    | string STRING_LITERAL
    ;

postfix_expression
    : primary_expression
    | postfix_expression "[" expression "]"
    | postfix_expression "(" ")"
    | postfix_expression "(" argument_expression_list ")"
    | postfix_expression "." member_name
    | postfix_expression "->" member_name
    | postfix_expression "++"
    | postfix_expression "--"
    ;

argument_expression_list
    : assignment_expression
    | argument_expression_list "," assignment_expression
    ;

unary_expression
    : postfix_expression
    | "++" unary_expression
    | "--" unary_expression
    | unary_operator cast_expression
    | "sizeof" unary_expression
    | "sizeof" "(" type_name ")"
    ;

unary_operator: "&" | "*" | "+" | "-" | "~" | "!" ;

cast_expression
    : unary_expression
    | "(" type_name ")" cast_expression
    ;

binary_expression
    : cast_expression
    | binary_expression "*" binary_expression
    | binary_expression "/" binary_expression
    | binary_expression "%" binary_expression
    | binary_expression "+" binary_expression
    | binary_expression "-" binary_expression
    | binary_expression "<<" binary_expression
    | binary_expression ">>" binary_expression
    | binary_expression "<" binary_expression
    | binary_expression ">" binary_expression
    | binary_expression "<=" binary_expression
    | binary_expression ">=" binary_expression
    | binary_expression "==" binary_expression
    | binary_expression "!=" binary_expression
    | binary_expression "&" binary_expression
    | binary_expression "^" binary_expression
    | binary_expression "|" binary_expression
    | binary_expression "&&" binary_expression
    | binary_expression "||" binary_expression
    ;

conditional_expression
    : binary_expression
    | binary_expression "?" expression ":" conditional_expression
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

constant_expression: conditional_expression ;

// Declarations. One kind of type in a declaration: basic words, or one struct, union or enum, or one type name; so that
// a type name after any of these can only be what is declared. Without any of them the type is int.

declaration
    : record_specifiers ";"
    | typed_specifiers init_declarator_list ";"
    | untyped_specifiers plain_init_declarator_list ";"
    ;

typed_specifiers
    : basic_specifiers
    | record_specifiers
    | name_specifiers
    ;

untyped_specifiers
    : modifier
    | untyped_specifiers modifier
    ;

basic_specifiers
    : basic_type
    | untyped_specifiers basic_type
    | basic_specifiers basic_type
    | basic_specifiers modifier
    ;

record_specifiers
    : record_type
    | untyped_specifiers record_type
    | record_specifiers modifier
    ;

name_specifiers
    : TYPE_NAME
    | untyped_specifiers TYPE_NAME
    | name_specifiers modifier
    ;

modifier
    : "typedef"
    | "extern"
    | "static"
    | "auto"
    | "register"
    | type_qualifier
    ;

type_qualifier: "const" | "volatile" ;

basic_type: "void" | "char" | "short" | "int" | "long" | "float" | "double" | "signed" | "unsigned" ;

record_type
    : struct_or_union tag "{" struct_declaration_list "}"
    | struct_or_union "{" struct_declaration_list "}"
    | struct_or_union tag
    | "enum" tag "{" enumerator_list "}"
    | "enum" "{" enumerator_list "}"
    | "enum" tag
    ;

struct_or_union: "struct" | "union" ;

tag: IDENTIFIER | TYPE_NAME ;

member_name: IDENTIFIER | TYPE_NAME ;

enumerator_list
    : enumerator
    | enumerator_list "," enumerator
    ;

enumerator
    : IDENTIFIER
    | IDENTIFIER "=" constant_expression
    ;

init_declarator_list
    : init_declarator
    | init_declarator_list "," init_declarator
    ;

init_declarator
    : declarator
    | declarator "=" initializer
    ;

plain_init_declarator_list
    : plain_init_declarator
    | plain_init_declarator_list "," plain_init_declarator
    ;

plain_init_declarator
    : plain_declarator
    | plain_declarator "=" initializer
    ;

initializer
    : assignment_expression
    | "{" initializer_list "}"
    | "{" initializer_list "," "}"
    ;

initializer_list
    : initializer
    | initializer_list "," initializer
    ;

struct_declaration_list
    : struct_declaration
    | struct_declaration_list struct_declaration
    ;

struct_declaration
    : typed_qualifiers struct_declarator_list ";"
    | qualifier_list plain_struct_declarator_list ";"
    ;

typed_qualifiers
    : basic_qualifiers
    | record_qualifiers
    | name_qualifiers
    ;

qualifier_list
    : type_qualifier
    | qualifier_list type_qualifier
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
    : TYPE_NAME
    | qualifier_list TYPE_NAME
    | name_qualifiers type_qualifier
    ;

struct_declarator_list
    : struct_declarator
    | struct_declarator_list "," struct_declarator
    ;

struct_declarator
    : declarator
    | ":" constant_expression
    | declarator ":" constant_expression
    ;

plain_struct_declarator_list
    : plain_struct_declarator
    | plain_struct_declarator_list "," plain_struct_declarator
    ;

plain_struct_declarator
    : plain_declarator
    | ":" constant_expression
    | plain_declarator ":" constant_expression
    ;

// Declarators: plain ones declare no type name, for where that would be read as a type.

declarator
    : direct_declarator
    | pointer direct_declarator
    ;

direct_declarator
    : IDENTIFIER
    | TYPE_NAME
    | "(" declarator ")"
    | direct_declarator suffix
    ;

plain_declarator
    : plain_direct_declarator
    | pointer plain_direct_declarator
    ;

plain_direct_declarator
    : IDENTIFIER
    | "(" plain_declarator ")"
    | plain_direct_declarator suffix
    ;

suffix
    : abstract_suffix
    | "(" identifier_list ")"
    ;

abstract_suffix
    : "[" "]"
    | "[" constant_expression "]"
    | "(" ")"
    | "(" parameter_type_list ")"
    ;

pointer
    : "*"
    | "*" qualifier_list
    | "*" pointer
    | "*" qualifier_list pointer
    ;

parameter_type_list
    : parameter_list
    | parameter_list "," "..."
    ;

parameter_list
    : parameter_declaration
    | parameter_list "," parameter_declaration
    ;

parameter_declaration
    : specifiers
    | specifiers plain_declarator
    | specifiers abstract_declarator
    ;

specifiers
    : typed_specifiers
    | untyped_specifiers
    ;

identifier_list
    : IDENTIFIER
    | identifier_list "," IDENTIFIER
    ;

type_name
    : qualifiers
    | qualifiers abstract_declarator
    ;

qualifiers
    : typed_qualifiers
    | qualifier_list
    ;

abstract_declarator
    : pointer
    | direct_abstract_declarator
    | pointer direct_abstract_declarator
    ;

direct_abstract_declarator
    : "(" abstract_declarator ")"
    | abstract_suffix
    | direct_abstract_declarator abstract_suffix
    ;

// Statements

statement
    : labeled_statement
    | compound_statement
    | expression_statement
    | selection_statement
    | iteration_statement
    | jump_statement
    ;

labeled_statement
    : label ":" statement
    | "case" constant_expression ":" statement
    | "default" ":" statement
    ;

label: IDENTIFIER | TYPE_NAME ;

compound_statement
    : "{" "}"
    | "{" statement_list "}"
    | "{" declaration_list "}"
    | "{" declaration_list statement_list "}"
    ;

declaration_list
    : declaration
    | declaration_list declaration
    ;

statement_list
    : statement
    | statement_list statement
    ;

expression_statement
    : ";"
    | expression ";"
    ;

selection_statement
    : "if" "(" expression ")" statement %prec THEN
    | "if" "(" expression ")" statement "else" statement
    | "switch" "(" expression ")" statement
    ;

iteration_statement
    : "while" "(" expression ")" statement
    | "do" statement "while" "(" expression ")" ";"
    | "for" "(" expression_statement expression_statement ")" statement
    | "for" "(" expression_statement expression_statement expression ")" statement
    ;

jump_statement
    : "goto" label ";"
    | "continue" ";"
    | "break" ";"
    | "return" ";"
    | "return" expression ";"
    ;

// Translation units

translation_unit
    : external_declaration
    | translation_unit external_declaration
    ;

external_declaration
    : function_definition
    | declaration
    ;

function_definition
    : typed_specifiers declarator function_body
    | untyped_specifiers plain_declarator function_body
    | plain_declarator function_body
    ;

function_body
    : compound_statement
    | declaration_list compound_statement
    ;
