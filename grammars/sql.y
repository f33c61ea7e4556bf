// SQL: queries (SELECT with everything around it), INSERT, UPDATE and DELETE, in the standard's syntax and in what
// PostgreSQL, MySQL and SQLite add to expressions, names, literals, placeholders and limits.
// Key words are in any case and reserved, but for those under `name`. Comparisons do not chain: (a = b) = c.
// Left out: definitions of tables, backslashes in strings (E'...' has them), tags between dollars ($$...$$ is read),
// operators on bits.

%start statement
%option caseless

%nonassoc SCALAR       // ((SELECT 1)) has its inner parentheses from the query, not from the expression
%nonassoc "YEAR" "QUARTER" "MONTH" "WEEK" "DAY" "HOUR" "MINUTE" "SECOND"  // belong to INTERVAL
%nonassoc ")"
%left "UNION" "EXCEPT"
%left "INTERSECT"
%left "OR"
%left "AND"
%right "NOT"
%left "||"
%left "+" "-"
%left "*" "/" "%" "%s"
%right SIGN
%left "COLLATE" "AT"
%left "::" "[" "->" "->>" "#>" "#>>"

%%

SKIP
    : "/[ \t\r\n\f]+/"
    | "/--[^\n]*/"
    | "/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//"
    ;

IDENTIFIER
    : "/[A-Za-z_][A-Za-z0-9_]*/"
    | '/"([^"]|"")+"/'
    | "/`([^`]|``)+`/"
    ;

PLACEHOLDER: "/[?][0-9]*|[$][0-9]+|[:@][A-Za-z_][A-Za-z0-9_]*|%\([A-Za-z_][A-Za-z0-9_]*\)s/" ;

NUMBER: "/([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?/" ;

// A number is not followed by a letter or a digit: 1a is not 1 AS a.
NEVER: "/\.?[0-9]([eE][+\-]?|[0-9A-Za-z_.])*/" ;

STRING
    : "/[nNxXbB]?'([^']|'')*'/"
    | "/[eE]'([^'\\]|''|\\(?s:.))*'/"
    | "/[$][$]([$]?[^$])*[$][$]/"
    ;

statement
    : command
    | command ";"
    ;

command
    : query
    | change
    | with change
    ;

// Changes of tables

change
    : insert qualified_name table_name source conflict returning
    | "UPDATE" primary_table "SET" assignments from where returning
    | "DELETE" "FROM" primary_table using where returning
    ;

insert
    : "INSERT" "INTO"
    | "INSERT" "OR" name "INTO"
    | "INSERT" "IGNORE" "INTO"
    | "REPLACE" "INTO"
    ;

table_name
    : %empty
    | "AS" name
    ;

columns
    : %empty
    | "(" names ")"
    ;

source
    : bare_query
    | query_in_parentheses
    | "(" names ")" bare_query
    | "(" names ")" query_in_parentheses
    | "DEFAULT" "VALUES"
    ;

conflict
    : %empty
    | "ON" "CONFLICT" conflict_target "DO" "NOTHING"
    | "ON" "CONFLICT" conflict_target "DO" "UPDATE" "SET" assignments where
    | "ON" "DUPLICATE" "KEY" "UPDATE" assignments
    ;

conflict_target
    : %empty
    | "(" expressions ")" where
    | "ON" "CONSTRAINT" name
    ;

returning
    : %empty
    | "RETURNING" select_list
    ;

using
    : %empty
    | "USING" tables
    ;

assignments
    : assignment
    | assignments "," assignment
    ;

assignment
    : qualified_name "=" expression
    | qualified_name "=" "DEFAULT"
    | "(" names ")" "=" expression
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
    : "SELECT" distinct select_list table_expression
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

distinct
    : quantifier
    | "DISTINCT" "ON" "(" expressions ")"
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
    : name columns "AS" materialized query_in_parentheses
    | name columns "AS" materialized "(" change ")"
    ;

materialized
    : %empty
    | "MATERIALIZED"
    | "NOT" "MATERIALIZED"
    ;

tail
    : order_by
    | order_by limit
    | limit
    | order_by locks
    | order_by limit locks
    | limit locks
    | locks
    ;

locks
    : lock
    | locks lock
    ;

lock
    : "FOR" lock_strength lock_of lock_wait
    ;

lock_strength: "UPDATE" | "SHARE" ;

lock_of
    : %empty
    | "OF" names
    ;

lock_wait
    : %empty
    | "NOWAIT"
    | "SKIP" "LOCKED"
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
    | "LIMIT" "ALL"
    | "LIMIT" value "," value
    | "LIMIT" value "OFFSET" value rows_opt
    | "OFFSET" value rows_opt
    | "OFFSET" value rows_opt "LIMIT" value
    | fetch
    | "OFFSET" value rows_opt fetch
    ;

fetch
    : "FETCH" first_or_next row_or_rows only
    | "FETCH" first_or_next number_of_rows row_or_rows only
    ;

number_of_rows
    : NUMBER
    | placeholder
    | "(" expression ")"
    ;

only
    : "ONLY"
    | "WITH" "TIES"
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

row: "(" row_items ")" ;

row_items
    : row_item
    | row_items "," row_item
    ;

row_item
    : expression
    | "DEFAULT"
    ;

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
    | "LATERAL" call table_alias
    | call "WITH" "ORDINALITY" table_alias
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
    | value not like value
    | value not like value "ESCAPE" value
    | value not "IN" placeholder
    | value "IS" not "JSON"
    | value "ISNULL"
    | value "NOTNULL"
    | value comparison "ANY" "(" expression ")"
    | value comparison "ALL" "(" expression ")"
    | value comparison "SOME" "(" expression ")"
    | value not "IN" query_in_parentheses
    | value not "IN" "(" expressions ")"
    ;

not
    : %empty
    | "NOT"
    ;

like: "LIKE" | "ILIKE" | "SIMILAR" "TO" | "GLOB" | "REGEXP" | "RLIKE" | "MATCH" ;

comparison
    : "=" | "==" | "<>" | "!=" | "<" | ">" | "<=" | ">=" | "<=>" | "~" | "~*" | "!~" | "!~*" | "@>" | "<@" | "@@" ;

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
    | "SUBSTRING" "(" expressions ")"
    | "SUBSTRING" "(" value "FROM" value ")"
    | "SUBSTRING" "(" value "FROM" value "FOR" value ")"
    | "SUBSTRING" "(" value "FOR" value ")"
    | "POSITION" "(" value "IN" value ")"
    | "OVERLAY" "(" value "PLACING" value "FROM" value ")"
    | "OVERLAY" "(" value "PLACING" value "FROM" value "FOR" value ")"
    | "TRIM" "(" expressions ")"
    | "TRIM" "(" value "FROM" value ")"
    | "TRIM" "(" trim_side "FROM" value ")"
    | "TRIM" "(" trim_side value "FROM" value ")"
    | "ARRAY" "[" "]"
    | "ARRAY" "[" expressions "]"
    | "ARRAY" query_in_parentheses
    | "ROW" "(" expressions ")"
    | placeholder
    | value "::" short_type
    | value "[" value "]"
    | value "[" bound ":" bound "]"
    | value "->" value
    | value "->>" value
    | value "#>" value
    | value "#>>" value
    | value "COLLATE" name
    | value "AT" "TIME" "ZONE" value %prec "AT"
    | value "%s" %prec "*"
    ;

placeholder
    : PLACEHOLDER
    | "%s"
    ;

bound
    : %empty
    | value
    ;

trim_side: "LEADING" | "TRAILING" | "BOTH" ;

literal
    : NUMBER
    | STRING
    | "NULL"
    | "TRUE"
    | "FALSE"
    | "DATE" STRING
    | "TIME" STRING
    | "TIMESTAMP" STRING
    | "INTERVAL" STRING %prec SCALAR
    | "INTERVAL" STRING unit
    | "INTERVAL" NUMBER unit
    | "CURRENT_DATE"
    | "CURRENT_TIME"
    | "CURRENT_TIMESTAMP"
    ;

unit: "YEAR" | "QUARTER" | "MONTH" | "WEEK" | "DAY" | "HOUR" | "MINUTE" | "SECOND" ;

call
    : qualified_name "(" ")"
    | qualified_name "(" expressions ")"
    ;

aggregate
    : qualified_name "(" "*" ")"
    | qualified_name "(" "DISTINCT" expressions ")"
    | qualified_name "(" "ALL" expressions ")"
    | qualified_name "(" expressions order_by ")"
    | qualified_name "(" "DISTINCT" expressions order_by ")"
    | qualified_name "(" "DISTINCT" expressions order_by separator ")"
    | qualified_name "(" "DISTINCT" expressions separator ")"
    | qualified_name "(" expressions separator ")"
    | qualified_name "(" expressions order_by separator ")"
    ;

separator: "SEPARATOR" STRING ;

over
    : filter
    | filter "OVER" name
    | filter "OVER" window
    ;

filter
    : within_group
    | within_group "FILTER" "(" "WHERE" expression ")"
    ;

within_group
    : %empty
    | "WITHIN" "GROUP" "(" order_by ")"
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
    | type "[]"
    ;

short_type
    : name
    | name "(" NUMBER ")"
    | name "(" NUMBER "," NUMBER ")"
    | short_type "[]"
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
    | "CONFLICT"
    | "DUPLICATE"
    | "IGNORE"
    | "KEY"
    | "NOTHING"
    | "JSON"
    | "MATERIALIZED"
    | "NOWAIT"
    | "ORDINALITY"
    | "REPLACE"
    | "SHARE"
    | "SKIP"
    | "LOCKED"
    | "TIES"
    | "ZONE"
    | "YEAR"
    | "QUARTER"
    | "MONTH"
    | "WEEK"
    | "DAY"
    | "HOUR"
    | "MINUTE"
    | "SECOND"
    ;
