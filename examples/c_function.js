// A function in C that compiles: the grammar lets the model use the parameters that there are, and no others.
//
//   aici run c_function.js

const grammar = String.raw`
%%
function : "int larger(int a, int b)\n{\n" body "}\n" ;
body : "    return " expr ";\n" | "    if (" condition ")\n        return " expr ";\n    return " expr ";\n" ;
condition : expr " > " expr | expr " < " expr | expr " == " expr ;
expr : name | name " + " name | name " - " name | name " * " name ;
name : "a" | "b" ;
`;

await $`/* Returns the larger of a and b. */\n`;
await gen({ yacc: grammar.replaceAll("\n\"", "\""), maxTokens: 80 });
