// From the text of a .y file to all parts of a recognizer.
#pragma once
#include <optional>
#include <string_view>

#include "aici/grammar/grammar.hpp"
#include "aici/grammar/lr_table.hpp"
#include "aici/regex/dfa.hpp"
#include "aici/text.hpp"

namespace aici::grammar {

struct Parser {
  Grammar grammar;
  LrTable table;                            // empty for a scannerless grammar
  std::optional<regex::Dfa> automaton{};  // of a scannerless grammar
};

// nullopt, with `why`, if the grammar has an error.
std::optional<Parser> read_parser(std::string_view text, Text& why);

}  // namespace aici::grammar
