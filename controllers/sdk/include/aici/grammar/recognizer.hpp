// A grammar as a constraint: the generated text is a sentence of the grammar. See aici/recognizer.hpp.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "aici/grammar/lexer.hpp"
#include "aici/grammar/masks.hpp"
#include "aici/grammar/stacks.hpp"
#include "aici/recognizer.hpp"
#include "aici/trie.hpp"

namespace aici::grammar {

// With a general table, the grammar is the one that build_table made of it.
// A byte is allowed exactly if some sentence begins with the text so far and the byte: the lexeme of the byte must be
// able to become a terminal that the parser can take, after the required reductions.
class GrammarRecognizer {
 public:
  GrammarRecognizer(const Grammar& grammar, LrTable table);

  bool try_push_byte(uint8_t byte);
  void push_byte(uint8_t byte) { try_push_byte(byte); }
  void pop_bytes(size_t num) { path_.resize(path_.size() - num); }
  void collapse() { forget(path_.size() - 1); }
  bool byte_allowed(uint8_t byte) {
    Position next;
    return step(path_.back(), byte, next);
  }
  bool special_allowed(SpecialToken special);
  void trie_finished();

  // Forget the n oldest pushes, which cannot be undone afterwards.
  void forget(size_t n) { path_.erase(path_.begin(), path_.begin() + static_cast<ptrdiff_t>(n)); }
  // Add the tokens of `trie` that may follow; always call with the same trie.
  void allow_tokens(const TokTrie& trie, TokenSet& mask);
  const char* error() const { return parts_->lexer.error() ? parts_->lexer.error() : parts_->stacks->error(); }

  // For messages: the terminals that may come next, or that may continue if a lexeme is pending.
  std::vector<SymbolId> expected();

 private:
  struct Position {
    Lexer::State lexer;
    StackId stack;
  };
  // Allocated separately, so that their addresses stay.
  struct Parts {
    TerminalSets sets;
    Lexer lexer;
    std::unique_ptr<Stacks> stacks;
    Masks masks;
    Parts(const Grammar& grammar, LrTable table);
  };

  bool step(Position from, uint8_t byte, Position& to);

  std::unique_ptr<Parts> parts_;
  std::vector<Position> path_;  // after each byte; never empty
};

static_assert(Recognizer<GrammarRecognizer>);

}  // namespace aici::grammar
