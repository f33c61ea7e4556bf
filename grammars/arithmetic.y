// Arithmetic: numbers, names, calls, parentheses and + - * / % ^ with the usual precedence.

%start expression

%left "+" "-"
%left "*" "/" "%"
%right SIGN
%right "^"             // binds tighter than a sign before it: -2^2 is -(2^2)

%%

SKIP: "/[ \t\r\n]+/" ;

NUMBER: "/([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?/" ;

NAME: "/[A-Za-z_][A-Za-z0-9_]*/" ;

expression
    : expression "+" expression
    | expression "-" expression
    | expression "*" expression
    | expression "/" expression
    | expression "%" expression
    | expression "^" expression
    | "+" expression %prec SIGN
    | "-" expression %prec SIGN
    | "(" expression ")"
    | NAME "(" ")"
    | NAME "(" arguments ")"
    | NAME
    | NUMBER
    ;

arguments
    : expression
    | arguments "," expression
    ;
