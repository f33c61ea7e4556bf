// A table of GitHub Flavored Markdown, of up to 12 columns: a row of headings, a row of dashes, and any number of rows. All
// rows have as many cells, a pipe before each and one at the end. "\|" in a cell is a pipe.
// Left out: rows without the outer pipes, rows that are longer or shorter than the headings, indented rows.
// What a cell holds is any text on one line: links, code and the like are not looked at.

%start document
%option contextual
%%

NEWLINE: "/\r?\n/" ;

document
    : table_1
    | table_2
    | table_3
    | table_4
    | table_5
    | table_6
    | table_7
    | table_8
    | table_9
    | table_10
    | table_11
    | table_12
    ;

ROW_1: "/\|(\\+[^\\\x00-\x08\x0a-\x1f\x7f]|[^|\\\x00-\x08\x0a-\x1f\x7f])*\|[ \t]*/" ;
DASHES_1: "/\|[ \t]*:?-+:?[ \t]*\|[ \t]*/" ;
table_1: rows_1 | rows_1 NEWLINE ;
rows_1
    : ROW_1 NEWLINE DASHES_1
    | rows_1 NEWLINE ROW_1
    ;

ROW_2: "/\|((\\+[^\\\x00-\x08\x0a-\x1f\x7f]|[^|\\\x00-\x08\x0a-\x1f\x7f])*\|){2}[ \t]*/" ;
DASHES_2: "/\|([ \t]*:?-+:?[ \t]*\|){2}[ \t]*/" ;
table_2: rows_2 | rows_2 NEWLINE ;
rows_2
    : ROW_2 NEWLINE DASHES_2
    | rows_2 NEWLINE ROW_2
    ;

ROW_3: "/\|((\\+[^\\\x00-\x08\x0a-\x1f\x7f]|[^|\\\x00-\x08\x0a-\x1f\x7f])*\|){3}[ \t]*/" ;
DASHES_3: "/\|([ \t]*:?-+:?[ \t]*\|){3}[ \t]*/" ;
table_3: rows_3 | rows_3 NEWLINE ;
rows_3
    : ROW_3 NEWLINE DASHES_3
    | rows_3 NEWLINE ROW_3
    ;

ROW_4: "/\|((\\+[^\\\x00-\x08\x0a-\x1f\x7f]|[^|\\\x00-\x08\x0a-\x1f\x7f])*\|){4}[ \t]*/" ;
DASHES_4: "/\|([ \t]*:?-+:?[ \t]*\|){4}[ \t]*/" ;
table_4: rows_4 | rows_4 NEWLINE ;
rows_4
    : ROW_4 NEWLINE DASHES_4
    | rows_4 NEWLINE ROW_4
    ;

ROW_5: "/\|((\\+[^\\\x00-\x08\x0a-\x1f\x7f]|[^|\\\x00-\x08\x0a-\x1f\x7f])*\|){5}[ \t]*/" ;
DASHES_5: "/\|([ \t]*:?-+:?[ \t]*\|){5}[ \t]*/" ;
table_5: rows_5 | rows_5 NEWLINE ;
rows_5
    : ROW_5 NEWLINE DASHES_5
    | rows_5 NEWLINE ROW_5
    ;

ROW_6: "/\|((\\+[^\\\x00-\x08\x0a-\x1f\x7f]|[^|\\\x00-\x08\x0a-\x1f\x7f])*\|){6}[ \t]*/" ;
DASHES_6: "/\|([ \t]*:?-+:?[ \t]*\|){6}[ \t]*/" ;
table_6: rows_6 | rows_6 NEWLINE ;
rows_6
    : ROW_6 NEWLINE DASHES_6
    | rows_6 NEWLINE ROW_6
    ;

ROW_7: "/\|((\\+[^\\\x00-\x08\x0a-\x1f\x7f]|[^|\\\x00-\x08\x0a-\x1f\x7f])*\|){7}[ \t]*/" ;
DASHES_7: "/\|([ \t]*:?-+:?[ \t]*\|){7}[ \t]*/" ;
table_7: rows_7 | rows_7 NEWLINE ;
rows_7
    : ROW_7 NEWLINE DASHES_7
    | rows_7 NEWLINE ROW_7
    ;

ROW_8: "/\|((\\+[^\\\x00-\x08\x0a-\x1f\x7f]|[^|\\\x00-\x08\x0a-\x1f\x7f])*\|){8}[ \t]*/" ;
DASHES_8: "/\|([ \t]*:?-+:?[ \t]*\|){8}[ \t]*/" ;
table_8: rows_8 | rows_8 NEWLINE ;
rows_8
    : ROW_8 NEWLINE DASHES_8
    | rows_8 NEWLINE ROW_8
    ;

ROW_9: "/\|((\\+[^\\\x00-\x08\x0a-\x1f\x7f]|[^|\\\x00-\x08\x0a-\x1f\x7f])*\|){9}[ \t]*/" ;
DASHES_9: "/\|([ \t]*:?-+:?[ \t]*\|){9}[ \t]*/" ;
table_9: rows_9 | rows_9 NEWLINE ;
rows_9
    : ROW_9 NEWLINE DASHES_9
    | rows_9 NEWLINE ROW_9
    ;

ROW_10: "/\|((\\+[^\\\x00-\x08\x0a-\x1f\x7f]|[^|\\\x00-\x08\x0a-\x1f\x7f])*\|){10}[ \t]*/" ;
DASHES_10: "/\|([ \t]*:?-+:?[ \t]*\|){10}[ \t]*/" ;
table_10: rows_10 | rows_10 NEWLINE ;
rows_10
    : ROW_10 NEWLINE DASHES_10
    | rows_10 NEWLINE ROW_10
    ;

ROW_11: "/\|((\\+[^\\\x00-\x08\x0a-\x1f\x7f]|[^|\\\x00-\x08\x0a-\x1f\x7f])*\|){11}[ \t]*/" ;
DASHES_11: "/\|([ \t]*:?-+:?[ \t]*\|){11}[ \t]*/" ;
table_11: rows_11 | rows_11 NEWLINE ;
rows_11
    : ROW_11 NEWLINE DASHES_11
    | rows_11 NEWLINE ROW_11
    ;

ROW_12: "/\|((\\+[^\\\x00-\x08\x0a-\x1f\x7f]|[^|\\\x00-\x08\x0a-\x1f\x7f])*\|){12}[ \t]*/" ;
DASHES_12: "/\|([ \t]*:?-+:?[ \t]*\|){12}[ \t]*/" ;
table_12: rows_12 | rows_12 NEWLINE ;
rows_12
    : ROW_12 NEWLINE DASHES_12
    | rows_12 NEWLINE ROW_12
    ;
