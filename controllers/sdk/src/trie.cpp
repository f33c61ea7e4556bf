#include "aici/trie.hpp"

#include <cstring>

namespace aici {

static_assert(AICI_NODE_SIZE == 8 && AICI_TRIE_HEADER_SIZE == 28 && AICI_TOKEN_LEN_BITS == 8);

TokTrie::TokTrie(std::vector<char> blob) : blob_(static_cast<std::vector<char>&&>(blob)) {
  uint32_t header[7] = {};
  if (blob_.size() >= sizeof(header)) memcpy(header, blob_.data(), sizeof(header));
  auto [magic, header_size, node_bytes, offset_bytes, unused, vocab_size, eos] = header;
  (void)unused;
  if (magic != AICI_TRIE_MAGIC || header_size != sizeof(header)) fail("the host's token trie has a wrong header");
  uint64_t data = uint64_t{header_size} + node_bytes + offset_bytes;
  if (node_bytes % sizeof(Node) || node_bytes == 0 || offset_bytes != uint64_t{vocab_size} * 4 || data > blob_.size())
    fail("the host's token trie has wrong sizes");
  nodes_ = reinterpret_cast<const Node*>(blob_.data() + header_size);
  offsets_ = reinterpret_cast<const uint32_t*>(blob_.data() + header_size + node_bytes);
  bytes_ = std::string_view(blob_.data(), blob_.size()).substr(static_cast<size_t>(data));
  num_nodes_ = node_bytes / static_cast<uint32_t>(sizeof(Node));
  vocab_size_ = vocab_size;
  eos_ = eos;
  read_nodes();
}

// One pass. The walks trust what is checked here: tokens lie in the vocabulary, and each step stays within the nodes.
void TokTrie::read_nodes() {
  std::vector<SliceBuilder> builders;
  std::vector<uint32_t> resume;  // (builders,) nodes before this one are below a node outside
  for (const TextClass& text : TEXT_CLASSES) builders.emplace_back(text, empty_set()), resume.push_back(1);
  TokenSet in_tree = empty_set();
  uint32_t depth = 0;
  for (uint32_t i = 0; i < num_nodes_; i++) {
    const Node& node = nodes_[i];
    bool token_ok = node.token() == AICI_NO_TOKEN || node.token() < vocab_size_;
    bool size_ok = node.subtree_size() >= 1 && node.subtree_size() <= num_nodes_ - i;
    bool depth_ok = i == 0 || (depth > 0 && depth <= AICI_MAX_TOKEN_LEN && node.parents() > 0);
    if (!token_ok || !size_ok || !depth_ok) fail("the host's token trie has a wrong node");
    if (node.token() != AICI_NO_TOKEN) in_tree.allow(node.token());
    if (depth > max_token_len_) max_token_len_ = depth;
    for (size_t k = 0; i > 0 && k < builders.size(); k++)
      if (i >= resume[k] && !builders[k].add(i, depth, node.byte(), node.token())) resume[k] = i + node.subtree_size();
    if (i == 0 || node.subtree_size() > 1)
      depth++;
    else
      depth = node.parents() <= depth ? depth + 1 - node.parents() : 0;
  }
  for (SliceBuilder& builder : builders) slices_.push_back(builder.finish());
  find_duplicates(in_tree);
}

// Of tokens with the same bytes the tree holds one; the others are allowed whenever it is.
void TokTrie::find_duplicates(const TokenSet& in_tree) {
  for (TokenId id = 0; id < vocab_size_; id++) {
    if (in_tree.allows(id)) continue;
    std::string_view text = token(id);
    if (text.empty()) continue;
    if (std::optional<TokenId> same = token_id(text)) duplicates_.push_back({id, *same});
  }
}

std::string_view TokTrie::token(TokenId token) const {
  if (token >= vocab_size_) return {};
  uint32_t entry = offsets_[token];
  size_t offset = entry >> AICI_TOKEN_LEN_BITS, len = entry & 0xFF;
  return offset <= bytes_.size() ? bytes_.substr(offset, len) : std::string_view{};
}

Text TokTrie::decode(Tokens tokens) const {
  Text text;
  for (TokenId id : tokens) text << token(id);
  return text;
}

std::optional<TokenId> TokTrie::token_id(std::string_view bytes) const {
  const Node* node = nodes_;
  for (char c : bytes) {
    const Node* end = node + node->subtree_size();
    const Node* child = node + 1;
    while (child < end && child->byte() != static_cast<uint8_t>(c)) child += child->subtree_size();
    if (child >= end) return std::nullopt;
    node = child;
  }
  if (node->token() == AICI_NO_TOKEN) return std::nullopt;
  return node->token();
}

}  // namespace aici
