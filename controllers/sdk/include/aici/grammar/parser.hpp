// From the text of a .y file to all that a recognizer is made of.
#pragma once
#include <optional>
#include <string_view>

#include "aici/grammar/grammar.hpp"
#include "aici/grammar/lr_table.hpp"
#include "aici/text.hpp"

namespace aici::grammar {

struct Parser {
  Grammar grammar;
  LrTable table;
};

// nullopt, and `why`, when there is an error in the grammar.
std::optional<Parser> read_parser(std::string_view text, Text& why);

}  // namespace aici::grammar
