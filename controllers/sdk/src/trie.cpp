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
  check_nodes();
  find_duplicates();
  code_points_.resize(vocab_size_ + 8);
  for (const TextClass& text : TEXT_CLASSES) slices_.push_back(slice_of(text));
}

// The walks rely on these checks: tokens lie in the vocabulary, and each step stays within the nodes. No branches,
// because the start of a guest waits for this.
void TokTrie::check_nodes() {
  uint32_t num_wrong = nodes_[0].subtree_size() != num_nodes_;
  uint32_t left = num_nodes_;
  for (const Node* node = nodes_; left > 0; node++, left--) {
    uint32_t has_token = node->token() != AICI_NO_TOKEN;
    num_wrong += has_token & (node->token() >= vocab_size_);
    num_wrong += node->subtree_size() - 1 >= left;
    num_wrong += (node->parents() == 0) & (left != num_nodes_);
    num_tokens_in_tree_ += has_token;
  }
  if (num_wrong) fail("the host's token trie has a wrong node");
  for (uint32_t child = 1; child < num_nodes_; child += nodes_[child].subtree_size()) children_of_root_[nodes_[child].byte()] = child;
}

// Of tokens with the same bytes the tree holds one; the other tokens are allowed whenever this token is.
void TokTrie::find_duplicates() {
  uint32_t num_texts = 0;
  for (TokenId id = 0; id < vocab_size_; id++) {
    uint32_t len = offsets_[id] & 0xFF;
    num_texts += len != 0;
    if (len > max_token_len_) max_token_len_ = len;
  }
  if (num_texts == num_tokens_in_tree_) return;
  TokenSet in_tree = empty_set();
  for (uint32_t i = 0; i < num_nodes_; i++) in_tree.allow_or_spare(nodes_[i].token());
  for (TokenId id = 0; id < vocab_size_; id++) {
    if (in_tree.allows(id) || token(id).empty()) continue;
    if (std::optional<TokenId> same = token_id(token(id))) duplicates_.push_back({id, *same});
  }
}

Slice TokTrie::slice_of(const TextClass& text) {
  // By depth: the path to the current node.
  constexpr size_t MAX_DEPTH = 256;
  TextClass::State states[MAX_DEPTH] = {TextClass::START};
  uint32_t nodes[MAX_DEPTH], entries[MAX_DEPTH];
  uint8_t lengths[MAX_DEPTH] = {};  // code points begun
  uint32_t num_open = 0;  // number of nodes of the path that are entries
  Slice slice{&text, empty_set()};
  auto push = [&slice](uint32_t node, uint32_t depth, bool outside) {
    auto next = static_cast<uint32_t>(slice.rest.size() + 1);
    slice.rest.push_back({node << 8 | depth, next << 1 | (outside ? 1u : 0u)});
    return next - 1;
  };
  auto close = [&](uint32_t depth) {
    for (; num_open >= depth; num_open--) slice.rest[entries[num_open]].skip_outside = static_cast<uint32_t>(slice.rest.size()) << 1;
  };
  uint32_t depth = 1;
  for (uint32_t i = 1; i < num_nodes_;) {
    const Node& node = nodes_[i];
    if (depth - 1 > AICI_MAX_TOKEN_LEN) fail("the host's token trie has a wrong node");  // 0 wraps around
    if (num_open >= depth) close(depth);
    TextClass::State state = text.next(states[depth - 1], node.byte());
    states[depth] = state, nodes[depth] = i;
    if (state != TextClass::DEAD) {
      slice.inside.allow_or_spare(node.token());
      lengths[depth] = static_cast<uint8_t>(lengths[depth - 1] + (states[depth - 1] == TextClass::START));
      code_points_[node.token() < vocab_size_ ? node.token() : vocab_size_] = lengths[depth];
      depth += node.subtree_size() == 1 ? 1 - node.parents() : 1;
      i++;
      continue;
    }
    while (num_open + 1 < depth) num_open++, entries[num_open] = push(nodes[num_open], num_open, false);
    push(i, depth, true);
    depth += 1 - node.parents();
    i += node.subtree_size();
  }
  close(1);
  slice.inside.clear_spare();
  code_points_[vocab_size_] = 0;
  return slice;
}

void TokTrie::allow_up_to(uint32_t count, const Slice& slice, TokenSet& mask) const {
  mask.allow_all_of(slice.inside);
  if (count >= max_token_len_) return;
  // Eight lengths at a time: the highest bit of each byte says that its length may exceed the count.
  constexpr uint64_t ONES = 0x0101010101010101, HIGHEST = 0x8080808080808080;
  uint64_t lift = count < 127 ? (127 - count) * ONES : 0;
  for (uint32_t i = 0; i < vocab_size_; i += 8) {
    uint64_t lengths;
    memcpy(&lengths, &code_points_[i], 8);
    if (!(((lengths & ~HIGHEST) + lift) & HIGHEST) && !(lengths & HIGHEST)) continue;
    for (uint32_t token = i; token < i + 8; token++)
      if (code_points_[token] > count) mask.disallow(token);
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

uint32_t TokTrie::find(std::string_view bytes) const {
  uint32_t number = 0;
  for (char c : bytes) {
    uint32_t end = number + nodes_[number].subtree_size();
    uint32_t child = number == 0 ? children_of_root_[static_cast<uint8_t>(c)] : number + 1;
    if (child == 0) return 0;
    while (child < end && nodes_[child].byte() != static_cast<uint8_t>(c)) child += nodes_[child].subtree_size();
    if (child >= end) return 0;
    number = child;
  }
  return number;
}

std::optional<TokenId> TokTrie::token_id(std::string_view bytes) const {
  uint32_t number = find(bytes);
  if (number == 0 || nodes_[number].token() == AICI_NO_TOKEN) return std::nullopt;
  return nodes_[number].token();
}

}  // namespace aici
