// A context-free grammar over terminals, as read from a .y file: rules, terminals and their precedence.
#pragma once
#include <cstdint>
#include <vector>

#include "aici/text.hpp"

namespace aici::grammar {

using SymbolId = uint32_t;      // terminals first: 0 .. terminals.size() - 1; then nonterminals
using ProductionId = uint32_t;  // index into productions; 0 is $start -> start symbol, added by the reader

inline constexpr SymbolId END = 0;  // terminal 0: the end of the input

struct Place {
  uint32_t line = 0, column = 0;  // from 1, in code points; 0: no position in the file
};

enum class Assoc : uint8_t { None, Left, Right, NonAssoc };

struct Precedence {
  uint32_t level = 0;  // 0: none declared; later declarations bind tighter
  Assoc assoc = Assoc::None;
};

struct Terminal {
  enum class Kind : uint8_t { End, Keyword, Regex, Json };  // End: no text; the end of the input, and indentation
  Kind kind = Kind::End;
  Text text;          // keyword: the bytes; regex: the pattern without slashes; JSON: the schema
  Text name;          // the name in messages: "while", /[0-9]+/, or the capitalized name of a rule that lists regexes
  bool skip = false;      // listed under SKIP: allowed between lexemes, never seen by the parser
  bool never = false;     // listed under NEVER: known to the lexer, taken by no rule, so refused
  bool caseless = false;  // a keyword whose ASCII letters match in either case
  uint32_t preference = 0;  // %prefer: of terminals that match the same lexeme, the greatest wins
  Precedence precedence{};
  Place place{};
};

struct Nonterminal {
  Text name;
  Place place{};
};

struct Production {
  SymbolId head;
  std::vector<SymbolId> body;
  Precedence precedence{};  // %prec, or the precedence of the last terminal in the body
  Place place{};
};

// %indentation: lines as terminals. The text of `newline` reaches from the end of a line to the first text in a later
// line, past lines that are blank. If that text is further right than the line before, `indent` follows; if further left,
// one `dedent` for each indentation that ends. The two have no text. See IndentedStacks.
struct Indentation {
  SymbolId newline = END, indent = END, dedent = END;
  std::vector<SymbolId> opening{}, closing{};  // %brackets: a newline between them is skipped
  bool final_newline = false;  // %option final_newline: the last line may lack its newline

  explicit operator bool() const { return newline != END; }
};

struct Grammar {
  std::vector<Terminal> terminals;  // [0] is END
  std::vector<Nonterminal> nonterminals;
  std::vector<Production> productions;
  bool contextual = false;  // %option contextual
  bool ambiguous = false;   // %option ambiguous: contextual, and a lexeme is every terminal that matches it
  bool general = false;     // %glr-parser: all ways are followed where tables are in conflict
  uint32_t expected_conflicts = 0;  // %expect: so many conflicts are settled without a word
  bool scannerless = false;  // %option scannerless
  Indentation indentation{};

  bool is_terminal(SymbolId symbol) const { return symbol < terminals.size(); }
  size_t num_symbols() const { return terminals.size() + nonterminals.size(); }
};

}  // namespace aici::grammar
