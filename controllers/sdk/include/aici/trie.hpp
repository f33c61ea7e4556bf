// The vocabulary as a prefix tree over bytes, read in place from the host's blob, and the walk that makes masks.
//
// Blob: seven u32 (magic, header size, node bytes, offset bytes, unused, vocabulary size, EOS token), nodes, offsets,
// token bytes. Node: two u32, `token << 8 | byte` and `subtree size << 8 | parents`, depth first, children by byte.
// `parents` is how many levels to go up from a node to the parent of the node that follows its subtree.
// Offset: `offset << 8 | length` into the token bytes. Special tokens have no bytes and are not in the tree.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "aici/host.hpp"
#include "aici/recognizer.hpp"
#include "aici/token_set.hpp"

namespace aici {

class TokTrie {
 public:
  // Ends the guest with an error when the blob is not a trie.
  explicit TokTrie(std::vector<char> blob);
  static TokTrie from_host() { return TokTrie(read_blob(aici_host_token_trie())); }

  uint32_t vocab_size() const { return vocab_size_; }
  TokenId eos() const { return eos_; }
  size_t max_token_len() const { return max_token_len_; }

  // The bytes of a token; empty for special tokens and for ids outside the vocabulary.
  std::string_view token(TokenId token) const;
  Text decode(Tokens tokens) const;

  // The token whose bytes are exactly these; of several, the one that the tree holds.
  std::optional<TokenId> token_id(std::string_view bytes) const;

  TokenSet empty_set() const { return TokenSet(vocab_size_); }

  // Fills `mask` with the tokens whose bytes `rec` allows one after another, and EOS iff it is allowed here.
  template <Recognizer R>
  void compute_mask(R& rec, TokenSet& mask) const {
    mask.clear();
    if constexpr (requires { rec.begin_walk(max_token_len_); }) {
      auto stack = rec.begin_walk(max_token_len_);
      walk(stack, mask);
    } else {
      walk(rec, mask);
    }
    rec.trie_finished();
    for (const Duplicate& d : duplicates_)
      if (mask.allows(d.in_tree)) mask.allow(d.token);
    if (eos_ < vocab_size_ && rec.special_allowed(SpecialToken::EndOfSequence)) mask.allow(eos_);
  }

 private:
  struct Node {
    uint32_t token_byte;
    uint32_t size_parents;
    uint8_t byte() const { return static_cast<uint8_t>(token_byte); }
    uint32_t token() const { return token_byte >> 8; }
    uint32_t subtree_size() const { return size_parents >> 8; }
    uint32_t parents() const { return size_parents & 0xFF; }
  };
  struct Duplicate {
    TokenId token, in_tree;
  };

  // `rec` needs try_push_byte and pop_bytes only.
  template <typename R>
  void walk(R& rec, TokenSet& mask) const {
    const Node* node = nodes_ + 1;
    const Node* end = nodes_ + num_nodes_;
    while (node < end) {
      if (rec.try_push_byte(node->byte())) {
        // Whether a node has a token and whether it is a leaf are coin tosses to the processor's branch predictor, so
        // both are computed, not branched on: nodes without a token set the spare bit.
        mask.allow_or_spare(node->token());
        rec.pop_bytes(node->subtree_size() == 1 ? node->parents() : 0);
        node++;
      } else {
        // Nothing was pushed for this node, so one level less is to be undone.
        rec.pop_bytes(node->parents() - 1);
        node += node->subtree_size();
      }
    }
    mask.clear_spare();
  }

  void check_nodes() const;
  void find_duplicates();

  std::vector<char> blob_;
  const Node* nodes_;
  const uint32_t* offsets_;
  std::string_view bytes_;
  uint32_t num_nodes_, vocab_size_;
  TokenId eos_;
  size_t max_token_len_ = 0;
  std::vector<Duplicate> duplicates_;
};

}  // namespace aici
