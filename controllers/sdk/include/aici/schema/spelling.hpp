// Misspelt words.
#pragma once
#include <span>
#include <string_view>

namespace aici::schema {

// The first of `words` that one letter more, less, changed or in another case makes of `word`; empty if there is none.
std::string_view neighbour(std::string_view word, std::span<const std::string_view> words);

}  // namespace aici::schema
