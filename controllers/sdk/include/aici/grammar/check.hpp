// Facts about a grammar for tools.
#pragma once
#include <string_view>

#include "aici/text.hpp"

namespace aici::grammar {

// JSON: {"problems": [{"severity", "line", "column", "message", "example"}], "summary": {...} or null}. The summary is
// present if the file could be read: {"rules", "productions", "terminals", "skipped", "contextual", "states",
// "settled"}.
Text check_answer(std::string_view grammar_text);

}  // namespace aici::grammar
