// From the text of a .y file to a grammar.
//
//   %start expr                       by default the first rule
//   %token WORD                       a keyword that stands for its own name
//   %token AND "&&"                   a name for a text
//   %left "+" "-"                     also %right, %nonassoc, %precedence: as in yacc, later declarations bind tighter
//   %expect 3                         so many conflicts are shifted without a warning
//   %glr-parser                       all ways are followed where tables are in conflict
//   %prefer "a" "/b+/"                of terminals that match the same lexeme these win; later lines win over earlier
//   %indentation NL INDENT DEDENT     lines as in Python: NL is a terminal, the others have no text (grammar.hpp)
//   %brackets "(" ")" "[" "]"         between them, newlines are skipped
//   %option final_newline             with %indentation: the last line may lack its newline
//   %option contextual                only terminals that the parser can take compete in the lexer
//   %option ambiguous                 as contextual and %glr-parser; a lexeme is every terminal that matches it
//   %option caseless                  ASCII letters of keywords are in any case
//   %option scannerless               no lexer: terminals stand one after the other, and every reading is followed
//   %%
//   expr : expr "+" expr | "-" expr %prec NEG | NUMBER | %empty ;
//   NUMBER : "/[0-9]+/" ;             a rule as any other; its name is how messages call the regex
//   call : NAME %json {"type": "object"} ;   a terminal: the JSON texts of a schema
//   SKIP : "/[ \n]+/" ;               what may stand between any two lexemes
//   NEVER : "/[0-9]+[a-z]/" ;         what the lexer reads as one lexeme, to refuse it: 3x is not 3 and then x
//   %%                                what follows a second one is not read
//
// Code in a host language and what only a generated parser needs is skipped with a warning: {...}, %{...%}, %union ...
// "keyword" and 'keyword' are one line long and know no escapes; "/regex/" (aici/regex/parser.hpp) is a regex; // and /* */
// are comments.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "aici/grammar/grammar.hpp"
#include "aici/grammar/problem.hpp"

namespace aici::grammar {

inline constexpr size_t MAX_GRAMMAR_BYTES = 1 << 20;
inline constexpr size_t MAX_SYMBOLS = 4096;
inline constexpr size_t MAX_PRODUCTIONS = 16384;
inline constexpr size_t MAX_BODY = 1024;  // symbols in one alternative

// nullopt if one of the problems is an error; problems are added in the order of discovery. In a returned grammar every
// rule can end, and no terminal but those under SKIP matches the empty string.
std::optional<Grammar> read_grammar(std::string_view text, std::vector<Problem>& problems);

}  // namespace aici::grammar
