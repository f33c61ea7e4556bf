// The host functions with C++ types. Every function here makes one call of an import.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "aici.h"
#include "aici/text.hpp"

namespace aici {

using TokenId = uint32_t;
using Tokens = std::span<const TokenId>;

// Append to the log of this guest, verbatim: end lines with \n.
void print(std::string_view text);

// Log `why`, which the user reads, and end the guest with an error. Does not return.
[[noreturn]] void fail(std::string_view why);

std::vector<char> read_blob(uint32_t blob);

// The argument of this controller, from the request.
std::vector<char> module_arg();

// The tokens of UTF-8 text, without special tokens.
std::vector<TokenId> tokenize(std::string_view text);

TokenId eos_token();
uint32_t self_seq_id();

}  // namespace aici
