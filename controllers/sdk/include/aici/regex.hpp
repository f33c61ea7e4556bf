// Regular expressions as constraints: the bytes generated must match the whole pattern. Syntax: aici/regex/parser.hpp.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "aici/recognizer.hpp"
#include "aici/regex/dfa.hpp"
#include "aici/regex/head_masks.hpp"
#include "aici/regex/parser.hpp"

namespace aici {

// A FunctionalRecognizer over the states of the automaton.
class RegexRecognizer {
 public:
  using State = regex::StateId;

  // Ends the guest with the parser's message when the pattern is refused.
  static RegexRecognizer from_pattern(std::string_view pattern);

  explicit RegexRecognizer(regex::Dfa dfa) : dfa_(static_cast<regex::Dfa&&>(dfa)) {}

  State initial() const { return dfa_.start(); }
  State append(State state, uint8_t byte) { return dfa_.next(state, byte); }
  bool byte_allowed(State state, uint8_t byte) { return dfa_.next(state, byte) != regex::Dfa::DEAD; }
  bool try_append(State state, uint8_t byte, State& next) { return (next = dfa_.next(state, byte)) != regex::Dfa::DEAD; }
  bool special_allowed(State state, SpecialToken special) const {
    return special == SpecialToken::EndOfSequence && dfa_.accepts(state);
  }
  // What masks are made of: allows the same tokens as `state`, for tokens of up to set_longest_token() bytes.
  State mask_state(State state) { return dfa_.capped(state, longest_token_); }
  void set_longest_token(size_t size_bytes) { longest_token_ = static_cast<uint32_t>(size_bytes); }
  // States that are equal allow the same tokens, so a mask can be kept under this number, until states are renumbered.
  uint32_t mask_key(State state) { return dfa_.num_compactions() << 16 | mask_state(state); }
  void compact(std::span<State> live) {
    if (dfa_.is_crowded()) dfa_.compact(live);
  }
  uint32_t num_allowed(State state, const TextClass& text) { return dfa_.num_allowed(state, text); }
  // Adds the tokens that are allowed, or returns false where it knows no faster way than a walk.
  bool try_allow_tokens(State state, const TokTrie& trie, TokenSet& mask) { return heads_.try_allow_tokens(dfa_, state, trie, mask); }
  const char* error() const { return dfa_.error(); }

 private:
  regex::Dfa dfa_;
  regex::HeadMasks heads_;
  uint32_t longest_token_ = regex::UNBOUNDED;
};

}  // namespace aici
