#include "aici/grammar/masks.hpp"

#include <algorithm>

namespace aici::grammar {
namespace {

constexpr uint32_t NEW = UINT32_MAX;
constexpr uint32_t PART_MIN_NODES = 64;   // smaller subtrees are walked each time
constexpr uint32_t SPLIT_MIN_NODES = 2048;  // larger subtrees behind a blank are parted, so that some can be left out
constexpr uint32_t FEW = 32;              // a set of tokens is as large as a list of 1/32 of the vocabulary
constexpr size_t MAX_SLICE_STATES = 32;
constexpr size_t BUFFER = 2048;            // tokens of a walk that are sorted at once
constexpr uint32_t PENDING = 1u << 31;    // records of pending lexemes, in keys: the state instead of a group

uint64_t key_of(uint64_t part, Lexer::State state, Lexer::State start) { return part << 32 | uint64_t{state} << 16 | start; }

}  // namespace

uint32_t Masks::Keys::find_or_add(uint64_t key) {
  auto hash = [](uint64_t key) { return static_cast<uint32_t>((key * 0x9E3779B97F4A7C15u) >> 32); };
  return table.find_or_add(
      hash(key), [&](uint32_t id) { return keys[id] == key; },
      [&] {
        keys.push_back(key);
        return static_cast<uint32_t>(keys.size() - 1);
      });
}

void Masks::forget() {
  record_keys_ = {}, part_keys_ = {};
  records_.clear(), parts_.clear(), groups_.clear(), group_nodes_.clear();
  group_table_ = {};
  size_bytes_ = 0;
}

void Masks::allow(const TokTrie& trie, Lexer& lexer, TerminalSets& sets, Stacks& stacks, Lexer::State state,
                  StackId stack, TokenSet& mask) {
  if (size_bytes_ > MAX_BYTES) forget();
  Context at{trie, lexer, sets, stacks, stacks.viable(stack)};
  if (draft_nodes_.empty()) draft_nodes_.resize(at.lexer.num_terminals());
  state = lexer.capped(state, static_cast<uint32_t>(trie.max_token_len()));
  todo_.assign(1, {&record_from(at, state, lexer.start(at.viable)), stack});
  while (!todo_.empty() && !stacks.error() && !lexer.error()) {
    auto [record, here] = todo_.back();
    todo_.pop_back();
    SetId viable = stacks.viable(here);
    for (const Tokens& tokens : record->tokens) {
      if (sets.meets(tokens.reach, viable)) tokens.allow_in(mask);
    }
    for (const Crossing& crossing : record->crossings) {
      if (!sets.takes(viable, crossing.lexeme)) continue;
      StackId after = stacks.shift(here, crossing.lexeme);
      at.viable = stacks.viable(after);
      todo_.push_back({&record_of(at, crossing.group, lexer.start(at.viable)), after});
    }
    if (record->rest_reach != TerminalSets::UNKNOWN && sets.meets(record->rest_reach, viable))
      todo_.push_back({&rest_of(at, *record, lexer.start(viable)), here});
  }
}

// The whole tree, entered with a pending lexeme. If its first byte ends the lexeme, many other bytes do as well.
Masks::Record& Masks::record_from(Context& at, State state, State start) {
  uint64_t key = key_of(PENDING, state, start);
  uint32_t id = record_keys_.find_or_add(key);
  if (id < records_.size()) return *records_[id];
  if (const Slice* slice = slice_for(at, state)) {
    add_slice(at, *slice, state, start);
  } else {
    for (NodeId node = 1; node < at.trie.num_nodes(); node += at.trie.node(node).subtree_size()) add_node(at, node, state, start);
  }
  records_.push_back(keep(at));
  return *records_.back();
}

// A slice whose tokens, or those of its tokens that continue the lexeme, all end in lexemes that can become the same
// terminals; the tokens are added. The empty text is no token.
const Slice* Masks::slice_for(Context& at, State state) {
  for (const Slice& slice : at.trie.slices()) {
    SetId reach = TerminalSets::UNKNOWN;
    std::vector<std::pair<TextClass::State, State>> seen{{TextClass::START, state}};
    bool fits = true;
    for (size_t i = 0; i < seen.size() && fits; i++) {
      for (unsigned byte = 0; byte < 256 && fits; byte++) {
        TextClass::State text = slice.text->next(seen[i].first, static_cast<uint8_t>(byte));
        if (text == TextClass::DEAD) continue;
        State to = at.lexer.next(seen[i].second, static_cast<uint8_t>(byte));
        if (reach == TerminalSets::UNKNOWN) reach = at.lexer.reach(to);
        fits = to != Lexer::DEAD && at.lexer.reach(to) == reach && seen.size() < MAX_SLICE_STATES;
        std::pair next{text, to};
        if (std::ranges::find(seen, next) == seen.end()) seen.push_back(next);
      }
    }
    if (fits) {
      draft_.of(reach).slice = &slice.inside;
      return &slice;
    }
    if (uint32_t count = at.lexer.num_allowed(state, *slice.text)) {
      Tokens& tokens = draft_.of(at.lexer.reach(state));
      tokens.use_set(at.trie.vocab_size());
      at.trie.allow_up_to(count, slice, *tokens.many);
      return &slice;
    }
  }
  return nullptr;
}

void Masks::add_slice(Context& at, const Slice& slice, State state, State start) {
  State path[256];
  path[0] = state;
  for (const Slice::Entry& entry : slice.rest) {
    State above = path[entry.depth() - 1];
    if (entry.is_outside()) add_node(at, entry.node(), above, start);
    else path[entry.depth()] = at.lexer.next(above, at.trie.node(entry.node()).byte());
  }
}

// A node, entered with `state` before its byte, and its subtree.
void Masks::add_node(Context& at, NodeId node, State state, State start) {
  uint8_t byte = at.trie.node(node).byte();
  State to = at.lexer.next(state, byte);
  if (to == Lexer::DEAD) {
    SymbolId winner = at.lexer.winner(state);
    if (winner == Lexer::NONE) return;
    if (!at.lexer.is_skip(winner)) return add_crossing(winner, node);
    to = at.lexer.next(start, byte);
  }
  if (to != Lexer::DEAD) add_subtree(at, node, to, start);
}

Masks::Record& Masks::record_of(Context& at, GroupId group, State start) {
  uint64_t key = key_of(group, 0, start);
  uint32_t id = record_keys_.find_or_add(key);
  if (id < records_.size()) return *records_[id];
  for (uint32_t i = 0; i < groups_[group].num; i++) {
    NodeId node = group_nodes_[groups_[group].first + i];
    State state = at.lexer.next(start, at.trie.node(node).byte());
    if (state != Lexer::DEAD) add_subtree(at, node, state, start);
  }
  records_.push_back(keep(at));
  return *records_.back();
}

// What was left out of a record, as a record of its own.
Masks::Record& Masks::rest_of(Context& at, Record& record, State start) {
  if (record.rest) return *record.rest;
  at.viable = TerminalSets::UNKNOWN;
  for (auto [node, state] : record.left_out) add_subtree(at, node, state, start);
  record.left_out = {};
  record.rest = keep(at);
  return *record.rest;
}

void Masks::add_crossing(SymbolId lexeme, NodeId node) {
  if (lexeme >= draft_nodes_.size()) draft_nodes_.resize(lexeme + 1);
  draft_nodes_[lexeme].push_back(node);
}

void Masks::add_subtree(Context& at, NodeId node, State state, State start) {
  uint32_t size = at.trie.node(node).subtree_size();
  if (size < PART_MIN_NODES) {
    walk(at, node, state, start, draft_);
    for (auto [lexeme, crossing] : crossed_) add_crossing(lexeme, crossing);
    return;
  }
  if (at.viable != TerminalSets::UNKNOWN) {
    if (!at.sets.meets(at.lexer.reach(state), at.viable)) return left_out_.push_back({node, state});
    SymbolId winner = at.lexer.winner(state);
    if (size >= SPLIT_MIN_NODES && winner != Lexer::NONE && at.lexer.is_skip(winner)) {
      if (TokenId token = at.trie.node(node).token(); token < at.trie.vocab_size())
        draft_.of(at.lexer.reach(state)).add({&token, 1}, at.trie.vocab_size());
      for (NodeId child = node + 1; child < node + size; child += at.trie.node(child).subtree_size()) add_node(at, child, state, start);
      return;
    }
  }
  const Part& part = part_of(at, node, state, start);
  for (const Tokens& tokens : part.tokens) draft_.of(tokens.reach).add(tokens, at.trie.vocab_size());
  for (auto [lexeme, crossing] : part.crossings) add_crossing(lexeme, crossing);
}

const Masks::Part& Masks::part_of(Context& at, NodeId node, State state, State start) {
  uint32_t id = part_keys_.find_or_add(key_of(node, state, start));
  if (id < parts_.size()) return *parts_[id];
  walk(at, node, state, start, part_draft_);
  parts_.push_back(std::make_unique<Part>(part_draft_.take(), crossed_));
  for (const Tokens& tokens : parts_.back()->tokens) size_bytes_ += tokens.size_bytes();
  size_bytes_ += sizeof(Part) + crossed_.size() * sizeof(crossed_[0]);
  return *parts_.back();
}

// The tokens at `node` and below, entered with `state` after the node's byte, go to `buckets`; crossings go to
// crossed_.
void Masks::walk(Context& at, NodeId node, State state, State start, Buckets& buckets) {
  tokens_.resize(BUFFER + 1);
  ends_.resize(BUFFER + 1);
  num_found_ = 0;
  crossed_.clear();
  find(at, node, state, buckets);
  walk_below(at, node + 1, node + at.trie.node(node).subtree_size(), state, start, buckets);
  flush(at, buckets);
}

// The nodes [first, last), whose parent was left in `state`. Below a name, nearly every byte keeps the state: then the
// nodes below stand in one row with their neighbours, and no state is kept for each level.
void Masks::walk_below(Context& at, NodeId first, NodeId last, State state, State start, Buckets& buckets) {
  SymbolId winner = at.lexer.winner(state);
  bool is_skipped = winner != Lexer::NONE && at.lexer.is_skip(winner);
  for (NodeId number = first; number < last;) {
    const TokTrie::Node& node = at.trie.node(number);
    State to = at.lexer.next(state, node.byte());
    if (to == Lexer::DEAD) {
      if (is_skipped) to = at.lexer.next(start, node.byte());
      else if (winner != Lexer::NONE) crossed_.push_back({winner, number});
      if (to == Lexer::DEAD) {
        number += node.subtree_size();
        continue;
      }
    }
    find(at, number, to, buckets);
    NodeId end = number + node.subtree_size();
    number++;
    if (to == state || number == end) continue;
    walk_below(at, number, end, to, start, buckets);
    number = end;
  }
}

// Whether a node has a token is a coin toss to the branch predictor, so store unconditionally.
void Masks::find(Context& at, NodeId node, State reached, Buckets& buckets) {
  TokenId token = at.trie.node(node).token();
  tokens_[num_found_] = token, ends_[num_found_] = reached;
  num_found_ += token < at.trie.vocab_size();
  if (num_found_ == BUFFER) flush(at, buckets);
}

// Neighbours usually end in the same state, or in states that can become the same.
void Masks::flush(Context& at, Buckets& buckets) {
  for (size_t first = 0, last; first < num_found_; first = last) {
    SetId reach = at.lexer.reach(ends_[first]);
    for (last = first + 1; last < num_found_ && (ends_[last] == ends_[last - 1] || at.lexer.reach(ends_[last]) == reach);) last++;
    buckets.of(reach).add({&tokens_[first], last - first}, at.trie.vocab_size());
  }
  num_found_ = 0;
}

// Finish the draft.
std::unique_ptr<Masks::Record> Masks::keep(Context& at) {
  auto record = std::make_unique<Record>();
  record->tokens = draft_.take();
  for (const Tokens& tokens : record->tokens) size_bytes_ += tokens.size_bytes();
  for (SymbolId lexeme = 0; lexeme < draft_nodes_.size(); lexeme++) {
    std::vector<NodeId>& nodes = draft_nodes_[lexeme];
    if (nodes.empty()) continue;
    record->crossings.push_back({lexeme, group_of(nodes)});
    nodes.clear();
  }
  record->rest_reach = TerminalSets::UNKNOWN;
  if (!left_out_.empty()) {
    TerminalSet reach(at.lexer.num_terminals());
    for (const Entered& entered : left_out_) at.sets.add_to(reach, at.lexer.reach(entered.state));
    record->rest_reach = at.sets.id_of(reach);
    record->left_out.swap(left_out_);
  }
  size_bytes_ += sizeof(Record) + record->crossings.size() * sizeof(Crossing) + record->left_out.size() * sizeof(Entered);
  return record;
}

Masks::GroupId Masks::group_of(const std::vector<NodeId>& nodes) {
  auto hash = [](std::span<const NodeId> nodes) {
    uint32_t hash = 0;
    for (NodeId node : nodes) hash = (hash ^ node) * 0x9E3779B1u, hash ^= hash >> 15;
    return hash;
  };
  auto members = [this](GroupId id) { return std::span(&group_nodes_[groups_[id].first], groups_[id].num); };
  return group_table_.find_or_add(
      hash(nodes), [&](uint32_t id) { return std::ranges::equal(members(id), nodes); },
      [&] {
        groups_.push_back({static_cast<uint32_t>(group_nodes_.size()), static_cast<uint32_t>(nodes.size())});
        group_nodes_.insert(group_nodes_.end(), nodes.begin(), nodes.end());
        size_bytes_ += nodes.size() * sizeof(NodeId);
        return static_cast<uint32_t>(groups_.size() - 1);
      });
}

void Masks::Tokens::add(std::span<const TokenId> tokens, uint32_t vocab_size) {
  if (!many && few.size() + tokens.size() > vocab_size / FEW) use_set(vocab_size);
  if (many) {
    for (TokenId token : tokens) many->allow(token);
  } else {
    few.insert(few.end(), tokens.begin(), tokens.end());
  }
}

void Masks::Tokens::add(const Tokens& other, uint32_t vocab_size) {
  add(other.few, vocab_size);
  if (!other.many) return;
  use_set(vocab_size);
  many->allow_all_of(*other.many);
}

void Masks::Tokens::use_set(uint32_t vocab_size) {
  if (many) return;
  many = std::make_unique<TokenSet>(vocab_size);
  for (TokenId token : few) many->allow(token);
  few = {};
}

void Masks::Tokens::allow_in(TokenSet& mask) const {
  if (slice) mask.allow_all_of(*slice);
  if (many) mask.allow_all_of(*many);
  for (TokenId token : few) mask.allow(token);
}

size_t Masks::Tokens::size_bytes() const {
  return sizeof(Tokens) + few.capacity() * sizeof(TokenId) + (many ? many->size_bytes() : 0);
}

Masks::Tokens& Masks::Buckets::of(SetId reach) {
  if (reach >= slots_.size()) slots_.resize(reach + 1, NEW);
  uint32_t& slot = slots_[reach];
  if (slot == NEW) {
    slot = static_cast<uint32_t>(tokens_.size());
    tokens_.push_back({reach});
  }
  return tokens_[slot];
}

std::vector<Masks::Tokens> Masks::Buckets::take() {
  std::vector<Tokens> taken;
  taken.swap(tokens_);
  for (const Tokens& tokens : taken) slots_[tokens.reach] = NEW;
  return taken;
}

}  // namespace aici::grammar
