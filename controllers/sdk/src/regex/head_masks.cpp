#include "aici/regex/head_masks.hpp"

namespace aici::regex {
namespace {

// The automaton in the form needed by the walks of a tree.
class Path {
 public:
  Path(Dfa& dfa, StateId state) : dfa_(dfa) { *top_ = state; }
  bool try_push_byte(uint8_t byte) {
    StateId next = dfa_.next(*top_, byte);
    if (next == Dfa::DEAD) return false;
    *++top_ = next;
    return true;
  }
  void pop_bytes(size_t num) { top_ -= num; }
  bool accepts() const { return dfa_.accepts(*top_); }

 private:
  Dfa& dfa_;
  StateId states_[AICI_MAX_TOKEN_LEN + 2];
  StateId* top_ = states_;
};

}  // namespace

bool HeadMasks::try_allow_tokens(Dfa& dfa, StateId state, const TokTrie& trie, TokenSet& mask) {
  if (compaction_ != dfa.num_compactions() || bytes_ > MAX_BYTES) forget(), compaction_ = dfa.num_compactions();
  const Split split = this->split(dfa, state);
  if (!split.has_head) return false;
  const Walk& walk = this->walk(dfa, split.parts.head, 0, trie);
  if (walk.too_many) return false;
  cross(dfa, split.parts.tail, walk, trie, mask, 0);
  return true;
}

void HeadMasks::forget() {
  splits_.clear(), walks_.clear();
  walk_table_ = {};
  bytes_ = 0;
}

const HeadMasks::Split& HeadMasks::split(Dfa& dfa, StateId state) {
  if (splits_.size() <= state) splits_.resize(dfa.num_states() + dfa.num_states() / 2);
  Split& split = splits_[state];
  if (split.known) return split;
  split.known = true;
  if (std::optional<Dfa::Split> parts = dfa.split(state)) split.has_head = true, split.parts = *parts;
  return split;
}

const HeadMasks::Walk& HeadMasks::walk(Dfa& dfa, StateId head, uint32_t node, const TokTrie& trie) {
  auto num_walks = static_cast<uint32_t>(walks_.size());
  uint32_t number = walk_table_.find_or_add(
      (head * 0x9E3779B1u ^ node) * 0x85EBCA6Bu >> 8, [&](uint32_t n) { return walks_[n]->head == head && walks_[n]->node == node; },
      [&] {
        walks_.push_back(std::make_unique<Walk>(head, node, false));
        return num_walks;
      });
  Walk& walk = *walks_[number];
  if (number < num_walks) return walk;
  Path path(dfa, head);
  std::vector<uint32_t> found;  // crossings, in the order of the tree
  bool crosses = path.accepts();
  uint32_t end = node + trie.node(node).subtree_size();
  for (uint32_t i = node + 1, depth = 0; i < end && found.size() <= MAX_CROSSINGS;) {
    const TokTrie::Node& at = trie.node(i);
    if (crosses) found.push_back(i), walk.first[at.byte() + 1u]++;
    bool pushed = path.try_push_byte(at.byte());
    if (pushed && at.token() < trie.vocab_size()) walk.inside.push_back(at.token());
    uint32_t levels = pushed ? (at.subtree_size() == 1 ? at.parents() : 0) : at.parents() - 1;
    i += pushed ? 1 : at.subtree_size();
    depth += pushed;
    if (levels > depth) levels = depth;
    path.pop_bytes(levels);
    depth -= levels;
    crosses = path.accepts();
  }
  walk.too_many = found.size() > MAX_CROSSINGS;
  if (!walk.too_many) {
    for (unsigned byte = 0; byte < 256; byte++) walk.first[byte + 1] = static_cast<uint16_t>(walk.first[byte + 1] + walk.first[byte]);
    walk.crossings.resize(found.size());
    std::array<uint16_t, 257> next = walk.first;
    for (uint32_t number : found) walk.crossings[next[trie.node(number).byte()]++] = number;
  }
  bytes_ += walk.size_bytes();
  return walk;
}

void HeadMasks::below(Dfa& dfa, StateId state, uint32_t node, const TokTrie& trie, TokenSet& mask, int depth) {
  if (depth < MAX_DEPTH && trie.node(node).subtree_size() >= MIN_SUBTREE) {
    const Split split = this->split(dfa, state);
    if (split.has_head) {
      const Walk& walk = this->walk(dfa, split.parts.head, node, trie);
      if (!walk.too_many) return cross(dfa, split.parts.tail, walk, trie, mask, depth);
    }
  }
  Path path(dfa, state);
  trie.walk_below(node, path, mask);
}

void HeadMasks::cross(Dfa& dfa, StateId tail, const Walk& walk, const TokTrie& trie, TokenSet& mask, int depth) {
  for (TokenId token : walk.inside) mask.allow(token);
  for (unsigned byte = 0; byte < 256; byte++) {
    if (walk.first[byte] == walk.first[byte + 1]) continue;
    StateId after = dfa.next(tail, static_cast<uint8_t>(byte));
    if (after == Dfa::DEAD) continue;
    for (uint32_t i = walk.first[byte]; i < walk.first[byte + 1]; i++) {
      const TokTrie::Node& node = trie.node(walk.crossings[i]);
      mask.allow_or_spare(node.token());
      if (node.subtree_size() > 1) below(dfa, after, walk.crossings[i], trie, mask, depth + 1);
    }
  }
}

}  // namespace aici::regex
