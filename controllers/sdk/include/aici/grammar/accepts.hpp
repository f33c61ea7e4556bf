// What tools want to know of an input: where does it fail, and what was expected there.
#pragma once
#include <string_view>

#include "aici/grammar/grammar.hpp"
#include "aici/grammar/lr_table.hpp"
#include "aici/text.hpp"

namespace aici::grammar {

// JSON: {"accepted", "at", "line", "column", "expected": [names], "complete"}. `at` counts bytes to the first one that is
// refused, or to the end of the input where more must follow; what lies before is a sentence iff `complete`. Lines and
// columns count from 1, columns in code points. The end of the input is called "end of input".
Text accepts_answer(const Grammar& grammar, const LrTable& table, std::string_view input);

}  // namespace aici::grammar
