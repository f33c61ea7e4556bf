// Masks of states of the form head . tail, if many states share the head: the vocabulary behind the head is explored
// once, and only the part behind the head is walked for each tail.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "aici/regex/dfa.hpp"
#include "aici/trie.hpp"

namespace aici::regex {

class HeadMasks {
 public:
  // Add the tokens allowed in `state`; returns false and adds nothing if the state has no head.
  bool try_allow_tokens(Dfa& dfa, StateId state, const TokTrie& trie, TokenSet& mask);

 private:
  // Facts about one head below one node: a token is allowed if the token stays inside the head, or if the tail accepts
  // the rest after a text of the head. A position where the rest may begin is a crossing: the node of the tail's first
  // byte.
  struct Walk {
    StateId head;
    uint32_t node;
    bool too_many;  // crossings
    std::vector<TokenId> inside{};
    std::vector<uint32_t> crossings{};    // nodes, by their byte
    std::array<uint16_t, 257> first{};  // (bytes + 1,) of the crossings of each byte
    size_t size_bytes() const { return sizeof(Walk) + (inside.capacity() + crossings.capacity()) * sizeof(uint32_t); }
  };
  struct Split {
    bool known = false, has_head = false;
    Dfa::Split parts{};
  };

  static constexpr size_t MAX_BYTES = 2 << 20;
  static constexpr size_t MAX_CROSSINGS = 4000;
  static constexpr int MAX_DEPTH = 4;  // heads in sequence within one token
  static constexpr uint32_t MIN_SUBTREE = 64;  // nodes; a smaller part is walked directly

  const Split& split(Dfa& dfa, StateId state);
  const Walk& walk(Dfa& dfa, StateId head, uint32_t node, const TokTrie& trie);
  void below(Dfa& dfa, StateId state, uint32_t node, const TokTrie& trie, TokenSet& mask, int depth);
  void cross(Dfa& dfa, StateId tail, const Walk& walk, const TokTrie& trie, TokenSet& mask, int depth);
  void forget();

  std::vector<Split> splits_;  // (states,)
  std::vector<std::unique_ptr<Walk>> walks_;
  InternTable walk_table_;
  size_t bytes_ = 0;
  uint32_t compaction_ = 0;  // renumberings of the automaton at the time of the record
};

}  // namespace aici::regex
