// Facts about an input for tools: where the input fails, and what was expected there.
#pragma once
#include <string_view>

#include "aici/grammar/grammar.hpp"
#include "aici/grammar/lr_table.hpp"
#include "aici/text.hpp"

namespace aici::grammar {

// JSON: {"accepted", "at", "line", "column", "expected": [names], "complete"}. `at` counts the bytes before the first
// refused byte, or before the end of the input if more must follow; the text before `at` is a sentence iff `complete`.
// Lines and columns count from 1, columns in code points. The end of the input is called "end of input".
Text accepts_answer(const Grammar& grammar, const LrTable& table, std::string_view input);

}  // namespace aici::grammar
