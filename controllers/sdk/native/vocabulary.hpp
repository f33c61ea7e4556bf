// Token tries in the layout of aici/trie.hpp.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aici/trie.hpp"

namespace aici::native {

// Token 0 is the end of the sequence and has no bytes; `tokens[i]` is token i + 1. Tokens may repeat.
TokTrie make_trie(std::span<const std::string> tokens);

// All single bytes, so that every allowed text can be spelled, and `words`: tokens that span and cut lexemes.
std::vector<std::string> with_all_bytes(std::span<const std::string_view> words);

// Words that suit JSON, programs and prose alike.
std::span<const std::string_view> common_words();

}  // namespace aici::native
