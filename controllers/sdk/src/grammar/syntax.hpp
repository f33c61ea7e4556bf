// A .y file as written: names are not resolved yet, texts are slices of the file.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "aici/grammar/problem.hpp"

namespace aici::grammar {

struct Word {
  std::string_view text;  // without the quotes
  bool quoted = false;  // a terminal: a text, a regex or a schema
  Place place{};
  bool json = false;  // %json {...}
};

struct WrittenAlternative {
  std::vector<Word> symbols;
  std::optional<Word> prec{};
  Place place{};
};

struct WrittenRule {
  Word name;
  std::vector<WrittenAlternative> alternatives;
};

struct WrittenGrammar {
  struct Level {
    Assoc assoc;
    std::vector<Word> words;
  };
  struct Alias {  // %token AND "&&": the text that AND stands for
    Word name, text;
  };
  std::optional<Word> start{};
  std::vector<Word> tokens{};
  std::vector<Alias> aliases{};
  std::vector<Level> levels{};  // loosest first
  std::vector<std::vector<Word>> preferences{};  // %prefer, the least first
  bool contextual = false, caseless = false, ambiguous = false, scannerless = false;
  bool general = false;  // %glr-parser
  std::vector<Word> indentation{}, brackets{};
  bool final_newline = false;
  uint32_t expected_conflicts = 0;  // %expect
  std::vector<WrittenRule> rules{};
};

WrittenGrammar parse_syntax(std::string_view text, std::vector<Problem>& problems);

// The most likely meaning of a misspelt `name` among `names`; empty if none is near.
std::string_view nearest(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace aici::grammar
