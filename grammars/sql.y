// SQL queries: SELECT with everything around it, in the standard's syntax as far as PostgreSQL, SQLite and others share it.
// Key words are in any case and reserved, but for those under `name`. Comparisons do not chain: (a = b) = c.

%start statement
%option caseless

%nonassoc SCALAR       // ((SELECT 1)) has its inner parentheses from the query, not from the expression
%nonassoc ")"
%left "UNION" "EXCEPT"
%left "INTERSECT"
%left "OR"
%left "AND"
%right "NOT"
%left "||"
%left "+" "-"
%left "*" "/" "%"
%right SIGN

%%

SKIP
    : "/[ \t\r\n\f]+/"
    | "/--[^\n]*/"
    | "/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//"
    ;

IDENTIFIER
    : "/[A-Za-z_][A-Za-z0-9_]*/"
    | '/"([^"]|"")+"/'
    ;

NUMBER: "/([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?/" ;

// A number is not followed by a letter or a digit: 1a is not 1 AS a.
NEVER: "/\.?[0-9]([eE][+\-]?|[0-9A-Za-z_.])*/" ;

STRING: "/'([^']|'')*'/" ;

statement
    : query
    | query ";"
    ;

// Queries: with no parentheses around them, or in parentheses, so that (query) can be told from (expression).

query
    : bare_query
    | query_in_parentheses
    ;

query_in_parentheses
    : "(" bare_query ")"
    | "(" query_in_parentheses ")"
    ;

bare_query
    : simple_query
    | operand tail
    | with operand
    | with operand tail
    ;

operand
    : simple_query
    | query_in_parentheses
    ;

simple_query
    : "SELECT" quantifier select_list table_expression
    | "VALUES" rows
    | operand "UNION" quantifier operand
    | operand "EXCEPT" quantifier operand %prec "UNION"
    | operand "INTERSECT" quantifier operand %prec "INTERSECT"
    ;

quantifier
    : %empty
    | "ALL"
    | "DISTINCT"
    ;

with
    : "WITH" common_tables
    | "WITH" "RECURSIVE" common_tables
    ;

common_tables
    : common_table
    | common_tables "," common_table
    ;

common_table
    : name "AS" query_in_parentheses
    | name "(" names ")" "AS" query_in_parentheses
    ;

tail
    : order_by
    | order_by limit
    | limit
    ;

order_by: "ORDER" "BY" sort_keys ;

sort_keys
    : sort_key
    | sort_keys "," sort_key
    ;

sort_key: expression direction nulls ;

direction
    : %empty
    | "ASC"
    | "DESC"
    ;

nulls
    : %empty
    | "NULLS" "FIRST"
    | "NULLS" "LAST"
    ;

limit
    : "LIMIT" value
    | "LIMIT" value "OFFSET" value
    | "OFFSET" value rows_opt
    | "FETCH" first_or_next value row_or_rows "ONLY"
    | "OFFSET" value rows_opt "FETCH" first_or_next value row_or_rows "ONLY"
    ;

rows_opt
    : %empty
    | row_or_rows
    ;

row_or_rows: "ROW" | "ROWS" ;

first_or_next: "FIRST" | "NEXT" ;

rows
    : row
    | rows "," row
    ;

row: "(" expressions ")" ;

select_list
    : select_item
    | select_list "," select_item
    ;

select_item
    : "*"
    | qualified_name "." "*"
    | expression alias
    ;

alias
    : %empty %prec SCALAR
    | name
    | "AS" name
    ;

// FROM and what follows it

table_expression: from where group_by having windows ;

from
    : %empty
    | "FROM" tables
    ;

tables
    : table
    | tables "," table
    ;

table
    : primary_table
    | table "CROSS" "JOIN" primary_table
    | table "NATURAL" join_kind "JOIN" primary_table
    | table join_kind "JOIN" primary_table "ON" expression
    | table join_kind "JOIN" primary_table "USING" "(" names ")"
    ;

join_kind
    : %empty
    | "INNER"
    | "LEFT" outer
    | "RIGHT" outer
    | "FULL" outer
    ;

outer
    : %empty
    | "OUTER"
    ;

primary_table
    : qualified_name table_alias
    | call table_alias
    | query_in_parentheses table_alias
    | "LATERAL" query_in_parentheses table_alias
    | "(" table ")"
    ;

table_alias
    : alias
    | name "(" names ")"
    | "AS" name "(" names ")"
    ;

where
    : %empty
    | "WHERE" expression
    ;

group_by
    : %empty
    | "GROUP" "BY" expressions
    ;

having
    : %empty
    | "HAVING" expression
    ;

windows
    : %empty
    | "WINDOW" named_windows
    ;

named_windows
    : named_window
    | named_windows "," named_window
    ;

named_window: name "AS" window ;

window: "(" window_name partition_by window_order frame ")" ;

window_name
    : %empty
    | name
    ;

partition_by
    : %empty
    | "PARTITION" "BY" expressions
    ;

window_order
    : %empty
    | order_by
    ;

frame
    : %empty
    | frame_unit frame_bound
    | frame_unit "BETWEEN" frame_bound "AND" frame_bound
    ;

frame_unit: "ROWS" | "RANGE" | "GROUPS" ;

frame_bound
    : "UNBOUNDED" "PRECEDING"
    | "UNBOUNDED" "FOLLOWING"
    | "CURRENT" "ROW"
    | value "PRECEDING"
    | value "FOLLOWING"
    ;

// Expressions: `value` holds no AND, so that BETWEEN x AND y can be read

expressions
    : expression
    | expressions "," expression
    ;

expression
    : expression "OR" expression
    | expression "AND" expression
    | "NOT" expression
    | predicate
    ;

predicate
    : value
    | value comparison value
    | value comparison "ALL" query_in_parentheses
    | value comparison "ANY" query_in_parentheses
    | value comparison "SOME" query_in_parentheses
    | value "IS" not "NULL"
    | value "IS" not "TRUE"
    | value "IS" not "FALSE"
    | value "IS" not "UNKNOWN"
    | value "IS" not "DISTINCT" "FROM" value
    | value not "BETWEEN" value "AND" value
    | value not "LIKE" value
    | value not "LIKE" value "ESCAPE" value
    | value not "IN" query_in_parentheses
    | value not "IN" "(" expressions ")"
    ;

not
    : %empty
    | "NOT"
    ;

comparison: "=" | "<>" | "!=" | "<" | ">" | "<=" | ">=" ;

value
    : value "||" value
    | value "+" value
    | value "-" value
    | value "*" value
    | value "/" value
    | value "%" value
    | "+" value %prec SIGN
    | "-" value %prec SIGN
    | literal
    | qualified_name
    | call over
    | aggregate over
    | "EXISTS" query_in_parentheses
    | query_in_parentheses %prec SCALAR
    | "(" expression ")"
    | "(" expressions "," expression ")"
    | case
    | "CAST" "(" expression "AS" type ")"
    | "EXTRACT" "(" name "FROM" value ")"
    ;

literal
    : NUMBER
    | STRING
    | "NULL"
    | "TRUE"
    | "FALSE"
    | "DATE" STRING
    | "TIME" STRING
    | "TIMESTAMP" STRING
    | "INTERVAL" STRING name
    | "CURRENT_DATE"
    | "CURRENT_TIME"
    | "CURRENT_TIMESTAMP"
    ;

call
    : qualified_name "(" ")"
    | qualified_name "(" expressions ")"
    ;

aggregate
    : qualified_name "(" "*" ")"
    | qualified_name "(" "DISTINCT" expressions ")"
    | qualified_name "(" "ALL" expressions ")"
    ;

over
    : filter
    | filter "OVER" name
    | filter "OVER" window
    ;

filter
    : %empty
    | "FILTER" "(" "WHERE" expression ")"
    ;

case
    : "CASE" whens else "END"
    | "CASE" expression whens else "END"
    ;

whens
    : "WHEN" expression "THEN" expression
    | whens "WHEN" expression "THEN" expression
    ;

else
    : %empty
    | "ELSE" expression
    ;

type
    : type_words
    | type_words "(" NUMBER ")"
    | type_words "(" NUMBER "," NUMBER ")"
    ;

type_words
    : name
    | type_words name
    ;

// Names

qualified_name
    : name
    | qualified_name "." name
    ;

names
    : name
    | names "," name
    ;

name
    : IDENTIFIER
    | "DATE"
    | "TIME"
    | "TIMESTAMP"
    | "FIRST"
    | "LAST"
    | "NEXT"
    ;
