// The constraints that a program can ask for, from what its author writes.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "aici/constraint.hpp"
#include "aici/json_value.hpp"
#include "aici/text.hpp"

namespace aici::script {

// `constraint` is null when `problem` says what is wrong.
struct MadeConstraint {
  std::unique_ptr<Constraint> constraint{};
  Text problem{};
};

// `trie` outlives them all.
MadeConstraint regex_constraint(const TokTrie& trie, std::string_view pattern);
MadeConstraint grammar_constraint(const TokTrie& trie, std::string_view grammar);           // text of a .y file
MadeConstraint json_schema_constraint(const TokTrie& trie, std::string_view schema);         // JSON text
MadeConstraint json_schema_constraint(const TokTrie& trie, const json::Value& schema);
MadeConstraint choices_constraint(const TokTrie& trie, std::span<const Text> choices);       // in any tokens
MadeConstraint substring_constraint(const TokTrie& trie, std::string_view text, std::string_view end);

// Whatever has a text, and the end at any time. Special tokens but EOS are no text.
std::unique_ptr<Constraint> any_text(const TokTrie& trie);

// One of some lists of tokens, as the tokenizer makes them of texts: no other tokens of the same text.
MadeConstraint options_constraint(const TokTrie& trie, std::span<const Text> options);

// Wherever the text has `after` in it, one of the options comes next.
struct Inner {
  Text after;
  std::vector<Text> options;
};

// Text of one character at least that keeps all of these.
MadeConstraint inner_constraint(const TokTrie& trie, std::span<const Inner> rules);

}  // namespace aici::script
