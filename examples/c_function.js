// A function in C that compiles: the grammar lets the model use the parameters that there are, and no others.
//
//   aici run c_function.js

const grammar = String.raw`
%%
function : "int larger(int a, int b) {" statement "}" ;
statement : "return " expr ";" | "if (" condition ") return " expr "; else return " expr ";" ;
condition : expr " > " expr | expr " < " expr | expr " == " expr ;
expr : name | name " + " name | name " - " name | name " * " name ;
name : "a" | "b" ;
`;

await $`/* Returns the larger of a and b. */\n`;
const body = await gen({ yacc: grammar, maxTokens: 60 });
setVar("body", body);
