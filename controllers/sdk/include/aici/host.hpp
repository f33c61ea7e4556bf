// What the host offers, in C++ types. Every function here is one call of an import.
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

// Appends to the log of this guest, as it is: end lines with \n.
void print(std::string_view text);

// Logs `why`, ends the guest with an error, does not return. The user reads `why`.
[[noreturn]] void fail(std::string_view why);

std::vector<char> read_blob(uint32_t blob);

// The argument that the request gave to this controller.
std::vector<char> module_arg();

// Tokens of UTF-8 text, no special tokens added.
std::vector<TokenId> tokenize(std::string_view text);

TokenId eos_token();
uint32_t self_seq_id();

}  // namespace aici
