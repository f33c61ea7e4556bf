// The constraints available to a program, from the notation of its author.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "aici/constraint.hpp"
#include "aici/json_value.hpp"
#include "aici/text.hpp"

namespace aici::script {

// `constraint` is null if `problem` describes an error.
struct MadeConstraint {
  std::unique_ptr<Constraint> constraint{};
  Text problem{};
};

// `trie` must outlive all constraints.
MadeConstraint regex_constraint(const TokTrie& trie, std::string_view pattern);
MadeConstraint grammar_constraint(const TokTrie& trie, std::string_view grammar);           // text of a .y file
MadeConstraint json_schema_constraint(const TokTrie& trie, std::string_view schema);         // JSON text
MadeConstraint json_schema_constraint(const TokTrie& trie, const json::Value& schema);
MadeConstraint choices_constraint(const TokTrie& trie, std::span<const Text> choices);       // in any tokens
MadeConstraint substring_constraint(const TokTrie& trie, std::string_view text, std::string_view end);

// Any text, and the end at any time. Special tokens other than EOS are not text.
std::unique_ptr<Constraint> any_text(const TokTrie& trie);

// One of several lists of tokens, as the tokenizer spells the texts: no other tokens of the same text.
MadeConstraint options_constraint(const TokTrie& trie, std::span<const Text> options);

// After every occurrence of `after`, one of the options follows.
struct Inner {
  Text after;
  std::vector<Text> options;
};

// Text of at least one character that satisfies all given constraints.
MadeConstraint inner_constraint(const TokTrie& trie, std::span<const Inner> rules);

}  // namespace aici::script
