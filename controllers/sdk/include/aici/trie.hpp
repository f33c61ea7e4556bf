// The vocabulary as a prefix tree over bytes, read in place from the runtime's blob, and the walk that makes masks.
//
// Blob: seven u32 (magic, header size, node bytes, offset bytes, unused, vocabulary size, EOS token), nodes, offsets,
// token bytes. Node: two u32, `token << 8 | byte` and `subtree size << 8 | parents`, depth first, children by byte.
// `parents`: levels to go up from a node to the parent of the node that follows its subtree. Offset: `offset << 8 |
// length` into the token bytes. Special tokens have no bytes and are not in the tree.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "aici/host.hpp"
#include "aici/recognizer.hpp"
#include "aici/slices.hpp"
#include "aici/token_set.hpp"

namespace aici {

class TokTrie {
 public:
  struct Node {
    uint32_t token_byte;
    uint32_t size_parents;
    uint8_t byte() const { return static_cast<uint8_t>(token_byte); }
    uint32_t token() const { return token_byte >> 8; }  // at least vocab_size() if there is none
    uint32_t subtree_size() const { return size_parents >> 8; }
    uint32_t parents() const { return size_parents & 0xFF; }
  };

  // Ends the guest with an error if the blob is not a trie.
  explicit TokTrie(std::vector<char> blob);
  // The vocabulary of the host. The first call costs nothing if the runtime has called aici_read_vocabulary.
  static TokTrie from_host();

  uint32_t vocab_size() const { return vocab_size_; }
  TokenId eos() const { return eos_; }
  size_t max_token_len() const { return max_token_len_; }

  // The bytes of a token; empty for special tokens and for ids outside the vocabulary.
  std::string_view token(TokenId token) const;
  Text decode(Tokens tokens) const;

  // The token with exactly these bytes; of several, the token in the tree.
  std::optional<TokenId> token_id(std::string_view bytes) const;

  // Is there a token that begins with `bytes` and continues with bytes allowed by `rec`? `bytes` is not empty.
  template <typename R>
  bool can_extend(std::string_view bytes, R& rec) const {
    uint32_t number = find(bytes);
    return number != 0 && has_token_below(number, rec);
  }

  TokenSet empty_set() const { return TokenSet(vocab_size_); }

  // Nodes by number, in the order of the tree; 0 is the root. The subtree of n ends before n + subtree_size().
  const Node& node(uint32_t number) const { return nodes_[number]; }
  uint32_t num_nodes() const { return num_nodes_; }

  // One slice for each of TEXT_CLASSES.
  std::span<const Slice> slices() const { return slices_; }

  // Fill `mask` with the tokens whose bytes `rec` allows in sequence, and EOS iff allowed here. Returns the slice used
  // to make the mask, if any. A recognizer that knows a faster way than byte by byte has allow_tokens(const TokTrie&,
  // TokenSet&), or try_allow_tokens, which returns whether the state has a faster way.
  template <Recognizer R>
  const Slice* compute_mask(R& rec, TokenSet& mask) const {
    mask.clear();
    const Slice* slice = nullptr;
    if constexpr (requires(const TextClass& text) { rec.num_allowed(text); }) {
      for (const Slice& candidate : slices_) {
        uint32_t count = rec.num_allowed(*candidate.text);
        if (count == 0) continue;
        slice = &candidate;
        allow_up_to(count, candidate, mask);
        break;
      }
    }
    bool done = false;
    if constexpr (requires { rec.try_allow_tokens(*this, mask); }) done = !slice && rec.try_allow_tokens(*this, mask);
    if constexpr (requires { rec.allow_tokens(*this, mask); }) {
      rec.allow_tokens(*this, mask);
    } else if (done) {
      // nothing is left to walk
    } else if constexpr (requires { rec.begin_walk(max_token_len_); }) {
      auto stack = rec.begin_walk(max_token_len_);
      slice ? walk_rest(*slice, stack, mask) : walk_below(0, stack, mask);
    } else {
      slice ? walk_rest(*slice, rec, mask) : walk_below(0, rec, mask);
    }
    rec.trie_finished();
    finish(mask);
    if (eos_ < vocab_size_ && rec.special_allowed(SpecialToken::EndOfSequence)) mask.allow(eos_);
    return slice;
  }

  // The walks. Each walk adds allowed tokens to `mask` and leaves `rec` unchanged. `rec` only needs try_push_byte and
  // pop_bytes. After all walks, `finish` completes the mask.

  // Below a node whose bytes have been pushed. The token of the node itself is not considered.
  template <typename R>
  void walk_below(uint32_t number, R& rec, TokenSet& mask) const {
    if (number != 0) return walk<false>(number + 1, number + nodes_[number].subtree_size(), rec, mask);
    // The first bytes are checked from a table: most states refuse most first bytes, and the nodes lie far apart.
    for (unsigned byte = 0; byte < 256; byte++) {
      uint32_t child = children_of_root_[byte];
      if (child == 0 || !rec.try_push_byte(static_cast<uint8_t>(byte))) continue;
      rec.pop_bytes(1);
      walk<true>(child, child + nodes_[child].subtree_size(), rec, mask);
    }
  }

  // The tree without the tokens of a slice.
  template <typename R>
  void walk_rest(const Slice& slice, R& rec, TokenSet& mask) const {
    uint32_t depth = 0;  // bytes pushed
    for (size_t i = 0; i < slice.rest.size();) {
      Slice::Entry entry = slice.rest[i];
      const Node& node = nodes_[entry.node()];
      rec.pop_bytes(depth + 1 - entry.depth());
      depth = entry.depth() - 1;
      if (!rec.try_push_byte(node.byte())) {
        i = entry.skip();
        continue;
      }
      depth++, i++;
      if (!entry.is_outside()) continue;
      mask.allow_or_spare(node.token());
      if (node.subtree_size() > 1) walk_below(entry.node(), rec, mask);
    }
    rec.pop_bytes(depth);
  }

  // Set an empty mask to the tokens of a slice with at most this many code points.
  void allow_up_to(uint32_t count, const Slice& slice, TokenSet& mask) const;

  void finish(TokenSet& mask) const {
    mask.clear_spare();
    for (const Duplicate& d : duplicates_)
      if (mask.allows(d.in_tree)) mask.allow(d.token);
  }

 private:
  struct Duplicate {
    TokenId token, in_tree;
  };

  template <bool is_at_root, typename R>
  void walk(uint32_t first, uint32_t last, R& rec, TokenSet& mask) const {
    const Node* node = nodes_ + first;
    const Node* end = nodes_ + last;
    [[maybe_unused]] uint32_t depth = 0;
    // The last node below a node pops all levels up to where the tree continues, perhaps above the start of the walk.
    auto pop = [&](uint32_t num) {
      if constexpr (!is_at_root) num = num < depth ? num : depth, depth -= num;
      rec.pop_bytes(num);
    };
    while (node < end) {
      if (rec.try_push_byte(node->byte())) {
        if constexpr (!is_at_root) depth++;
        // Whether a node has a token, and whether a node is a leaf, are coin tosses to the branch predictor. So both
        // are computed without branches: nodes without a token set the spare bit.
        mask.allow_or_spare(node->token());
        pop(node->subtree_size() == 1 ? node->parents() : 0);
        node++;
      } else {
        // Nothing was pushed for this node, so undo one level less.
        pop(node->parents() - 1);
        node += node->subtree_size();
      }
    }
  }

  template <typename R>
  bool has_token_below(uint32_t number, R& rec) const {
    uint32_t end = number + nodes_[number].subtree_size();
    for (uint32_t child = number + 1; child < end; child += nodes_[child].subtree_size()) {
      if (!rec.try_push_byte(nodes_[child].byte())) continue;
      bool found = nodes_[child].token() < vocab_size_ || has_token_below(child, rec);
      rec.pop_bytes(1);
      if (found) return true;
    }
    return false;
  }

  // The number of the node; 0 if there is none.
  uint32_t find(std::string_view bytes) const;
  void check_nodes();
  Slice slice_of(const TextClass& text);
  void find_duplicates();

  std::vector<char> blob_;
  const Node* nodes_;
  const uint32_t* offsets_;
  std::string_view bytes_;
  uint32_t num_nodes_, vocab_size_;
  TokenId eos_;
  size_t max_token_len_ = 0;
  uint32_t num_tokens_in_tree_ = 0;
  std::array<uint32_t, 256> children_of_root_{};  // by byte; 0: none
  std::vector<Duplicate> duplicates_;
  std::vector<Slice> slices_;
  std::vector<uint8_t> code_points_;  // (tokens,) how many begin in each, for tokens in slices; and spare entries
};

}  // namespace aici
