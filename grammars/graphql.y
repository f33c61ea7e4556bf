// GraphQL of October 2021: executable documents and the language of schemas. No word is reserved, so each is a name too,
// except where the specification says otherwise. Commas are white space.

%start document

%nonassoc BARE         // a definition ends only where no "{" follows: braces belong to it
%nonassoc "{"

%%

SKIP
    : "/[ \t\r\n,\ufeff]+/"
    | "/#[^\x00-\x08\x0a-\x1f]*/"
    ;

NAME: "/[_A-Za-z][_0-9A-Za-z]*/" ;

NUMBER: "/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?/" ;

// A number is not followed by a digit, a letter, _ or a dot.
NEVER: "/-?[0-9]([eE][+\-]?|[0-9A-Za-z_.])*/" ;

STRING: '/"([^"\\\x00-\x08\x0a-\x1f]|\\["\\\/bfnrt]|\\u[0-9A-Fa-f]{4})*"/' ;

// Ends at the first three quotes that no backslash precedes.
BLOCK_STRING
    : '/"""("{0,2}([^"\\\x00-\x08\x0b\x0c\x0e-\x1f]|\\("{0,2}\\)*("""|"{0,2}[^"\\\x00-\x08\x0b\x0c\x0e-\x1f])))*"""/'
    ;

document
    : definition
    | document definition
    ;

definition
    : selection_set
    | operation_type variable_definitions_opt directives selection_set
    | operation_type name variable_definitions_opt directives selection_set
    | "fragment" fragment_name type_condition directives selection_set
    | type_system_definition
    | description type_system_definition
    | "extend" type_system_extension
    ;

operation_type: "query" | "mutation" | "subscription" ;

type_condition: "on" name ;

// Names

name
    : fragment_name
    | "on"
    ;

fragment_name
    : enum_word
    | "true"
    | "false"
    | "null"
    ;

enum_value
    : enum_word
    | "on"
    ;

enum_word
    : NAME
    | "query"
    | "mutation"
    | "subscription"
    | "fragment"
    | "schema"
    | "scalar"
    | "type"
    | "interface"
    | "union"
    | "enum"
    | "input"
    | "directive"
    | "extend"
    | "implements"
    | "repeatable"
    | executable_location
    | type_system_location
    ;

// Operations

variable_definitions_opt
    : %empty
    | "(" variable_definitions ")"
    ;

variable_definitions
    : variable_definition
    | variable_definitions variable_definition
    ;

variable_definition: variable ":" type default_value const_directives ;

variable: "$" name ;

default_value
    : %empty
    | "=" const_value
    ;

selection_set: "{" selections "}" ;

selections
    : selection
    | selections selection
    ;

selection
    : field
    | "..." fragment_name directives
    | "..." "on" name directives selection_set
    | "..." directives selection_set
    ;

field
    : field_head
    | field_head selection_set
    ;

field_head
    : name arguments_opt directives
    | name ":" name arguments_opt directives
    ;

arguments_opt
    : %empty
    | "(" arguments ")"
    ;

arguments
    : argument
    | arguments argument
    ;

argument: name ":" value ;

directives
    : %empty
    | directives "@" name arguments_opt
    ;

value
    : variable
    | literal
    | "[" values "]"
    | "{" object_fields "}"
    ;

values
    : %empty
    | values value
    ;

object_fields
    : %empty
    | object_fields argument
    ;

literal
    : NUMBER
    | string
    | "true"
    | "false"
    | "null"
    | enum_value
    ;

string: STRING | BLOCK_STRING ;

const_value
    : literal
    | "[" const_values "]"
    | "{" const_object_fields "}"
    ;

const_values
    : %empty
    | const_values const_value
    ;

const_object_fields
    : %empty
    | const_object_fields const_argument
    ;

const_argument: name ":" const_value ;

const_arguments
    : const_argument
    | const_arguments const_argument
    ;

const_directives
    : %empty
    | some_const_directives
    ;

some_const_directives
    : const_directive
    | some_const_directives const_directive
    ;

const_directive
    : "@" name
    | "@" name "(" const_arguments ")"
    ;

type
    : nullable_type
    | nullable_type "!"
    ;

nullable_type
    : name
    | "[" type "]"
    ;

// Schemas

description: string ;

description_opt
    : %empty
    | description
    ;

type_system_definition
    : "schema" const_directives root_operations
    | "scalar" name const_directives
    | object %prec BARE
    | object field_definitions
    | "union" name const_directives
    | "union" name const_directives members
    | "enum" name const_directives %prec BARE
    | "enum" name const_directives enum_value_definitions
    | "input" name const_directives %prec BARE
    | "input" name const_directives input_fields
    | "directive" "@" name arguments_definition repeatable_opt "on" locations
    | "directive" "@" name arguments_definition repeatable_opt "on" "|" locations
    ;

// An extension adds something: it has one part at least.
type_system_extension
    : "schema" some_const_directives %prec BARE
    | "schema" some_const_directives root_operations
    | "schema" root_operations
    | "scalar" name some_const_directives
    | extended_object %prec BARE
    | extended_object field_definitions
    | object_kind name field_definitions
    | "union" name some_const_directives
    | "union" name const_directives members
    | "enum" name some_const_directives %prec BARE
    | "enum" name some_const_directives enum_value_definitions
    | "enum" name enum_value_definitions
    | "input" name some_const_directives %prec BARE
    | "input" name some_const_directives input_fields
    | "input" name input_fields
    ;

object
    : object_kind name
    | extended_object
    ;

extended_object
    : object_kind name some_const_directives
    | object_kind name implements const_directives
    ;

object_kind: "type" | "interface" ;

implements
    : "implements" name
    | "implements" "&" name
    | implements "&" name
    ;

root_operations: "{" root_operation_list "}" ;

root_operation_list
    : root_operation
    | root_operation_list root_operation
    ;

root_operation: operation_type ":" name ;

members
    : "=" name
    | "=" "|" name
    | members "|" name
    ;

field_definitions: "{" field_definition_list "}" ;

field_definition_list
    : field_definition
    | field_definition_list field_definition
    ;

field_definition: description_opt name arguments_definition ":" type const_directives ;

input_fields: "{" input_values "}" ;

arguments_definition
    : %empty
    | "(" input_values ")"
    ;

input_values
    : input_value
    | input_values input_value
    ;

input_value: description_opt name ":" type default_value const_directives ;

enum_value_definitions: "{" enum_value_definition_list "}" ;

enum_value_definition_list
    : enum_value_definition
    | enum_value_definition_list enum_value_definition
    ;

enum_value_definition: description_opt enum_value const_directives ;

repeatable_opt
    : %empty
    | "repeatable"
    ;

locations
    : location
    | locations "|" location
    ;

location: executable_location | type_system_location ;

executable_location
    : "QUERY"
    | "MUTATION"
    | "SUBSCRIPTION"
    | "FIELD"
    | "FRAGMENT_DEFINITION"
    | "FRAGMENT_SPREAD"
    | "INLINE_FRAGMENT"
    | "VARIABLE_DEFINITION"
    ;

type_system_location
    : "SCHEMA"
    | "SCALAR"
    | "OBJECT"
    | "FIELD_DEFINITION"
    | "ARGUMENT_DEFINITION"
    | "INTERFACE"
    | "UNION"
    | "ENUM"
    | "ENUM_VALUE"
    | "INPUT_OBJECT"
    | "INPUT_FIELD_DEFINITION"
    ;
