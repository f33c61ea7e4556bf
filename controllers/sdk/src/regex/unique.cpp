// Lists of different items. The automaton remembers the items said so far: as texts that the next item must not be.
#include <algorithm>

#include "aici/regex/expr.hpp"

namespace aici::regex {
namespace {

constexpr uint32_t MAX_WORD = 256, MAX_SAID = 1000;
constexpr int MAX_LAYERS = 64;  // bytes of a text

}  // namespace

uint32_t Exprs::Unique::hash() const {
  uint32_t hash = items;
  for (uint32_t part : {rest, said, num_said, word}) hash = (hash ^ part) * 0x9E3779B1u, hash ^= hash >> 15;
  return hash;
}

ExprId Exprs::unique_items(UniqueItems items) {
  if (!nodes_[items.item].has_rules && items.prefix.empty()) items.max = std::min(items.max, num_texts(items.item, MAX_SAID));
  if (items.min > items.max || items.prefix.size() > MAX_SAID) return NOTHING;
  ExprId none = items.min == 0 ? items.end : NOTHING;
  if (items.max == 0 || items.at(0) == NOTHING) return none;
  auto same = std::ranges::find(unique_items_, items);
  auto number = static_cast<uint32_t>(same - unique_items_.begin());
  if (same == unique_items_.end()) unique_items_.push_back(items);
  return alt({none, add_unique({number, items.at(0), NOTHING, 0, NO_BYTES})});
}

ExprId Exprs::add_unique(const Unique& unique) {
  uint32_t number = unique_table_.find_or_add(
      unique.hash(), [&](uint32_t id) { return uniques_[id] == unique; },
      [&] {
        uniques_.push_back(unique);
        return static_cast<uint32_t>(uniques_.size() - 1);
      });
  const UniqueItems& items = unique_items_[unique.items];
  bool has_rules = nodes_[unique.rest].has_rules || nodes_[items.item].has_rules;
  for (ExprId item : items.prefix) has_rules |= nodes_[item].has_rules;
  return add({Kind::Unique, false, has_rules, number, 0, 0});
}

uint32_t Exprs::longer_word(uint32_t word, uint8_t byte) {
  if (word == TOO_LONG || words_[word].size == MAX_WORD) return TOO_LONG;
  Word longer{word, words_[word].size + 1, byte};
  return word_table_.find_or_add(
      (word * 256 + byte) * 0x9E3779B1u >> 7, [&](uint32_t id) { return words_[id] == longer; },
      [&] {
        words_.push_back(longer);
        return static_cast<uint32_t>(words_.size() - 1);
      });
}

// The next item, once this one is complete. None: no further item is allowed, or all are said.
std::optional<Exprs::Unique> Exprs::next_item(const Unique& unique) {
  const UniqueItems& items = unique_items_[unique.items];
  uint32_t num_items = unique.num_said + 1;
  if (num_items >= items.max) return std::nullopt;
  Unique next{unique.items, items.at(num_items), unique.said, num_items, NO_BYTES};
  if (items.max == UNBOUNDED) next.num_said = std::min(num_items, std::max(items.min, MAX_SAID));
  if (unique.word != TOO_LONG && num_items <= MAX_SAID) {
    ExprId word = EMPTY;
    for (uint32_t at = unique.word; at != NO_BYTES; at = words_[at].before) word = concat(bytes(ByteSet::of(words_[at].last)), word);
    next.said = alt({next.said, word});
  }
  next.rest = both(next.rest, complement(next.said));
  return next.rest == NOTHING ? std::nullopt : std::optional(next);
}

// Parts of `node` are older than the running derivation. What follows the item is new, and has a derivation of its own.
ExprId Exprs::derive_unique(const Node& node, uint8_t byte) {
  Unique unique = uniques_[node.a];
  alike_ = alike_ & ByteSet::of(byte);
  bool may_end = nullable(unique.rest);
  Unique next = unique;
  next.rest = derive_new(unique.rest, byte);
  next.word = next.rest == NOTHING ? NO_BYTES : longer_word(unique.word, byte);
  ExprId longer = next.rest == NOTHING ? NOTHING : add_unique(next);
  if (!may_end) return longer;
  UniqueItems items = unique_items_[unique.items];
  std::vector<ExprId> ways{longer};
  ByteSet alike;
  if (unique.num_said + 1 >= items.min) ways.push_back(derive(items.end, byte, alike));
  if (ExprId comma = derive(items.comma, byte, alike); comma != NOTHING)
    if (std::optional<Unique> item = next_item(unique)) ways.push_back(concat(comma, add_unique(*item)));
  return alt(ways);
}

// For masks: the same beginnings, without the memory, which would make every token a state of its own. After the item,
// a token goes no further than the comma and the first byte, behind which the items said so far count again.
ExprId Exprs::forgotten(const Unique& unique) {
  const UniqueItems items = unique_items_[unique.items];
  uint32_t num_items = unique.num_said + 1;
  bool is_open = num_items < items.max;
  if (is_open && unique.rest == EMPTY) {
    is_open = next_item(unique).has_value();
  } else if (is_open && num_items < MAX_SAID) {
    // One of them may be the present item.
    is_open = num_texts(both(items.at(num_items), complement(unique.said)), 2) == UNBOUNDED;
  }
  ExprId further = bytes(ByteSet::of(0xFF));  // never in UTF-8
  if (items.first) further = concat(bytes(ByteSet::of(items.first)), further);
  ExprId end = num_items >= items.min ? items.end : NOTHING;
  return concat(unique.rest, alt({end, is_open ? concat(items.comma, further) : NOTHING}));
}

ExprId Exprs::copied_unique(const Exprs& from, Unique unique, const std::vector<ExprId>& moved) {
  UniqueItems items = from.unique_items_[unique.items];
  for (ExprId& item : items.prefix) item = moved[item];
  items.item = moved[items.item], items.comma = moved[items.comma], items.end = moved[items.end];
  auto same = std::ranges::find(unique_items_, items);
  unique.items = static_cast<uint32_t>(same - unique_items_.begin());
  if (same == unique_items_.end()) unique_items_.push_back(items);
  unique.rest = moved[unique.rest], unique.said = moved[unique.said];
  if (unique.word != TOO_LONG) {
    std::vector<uint8_t> text;
    for (uint32_t at = unique.word; at != NO_BYTES; at = from.words_[at].before) text.push_back(from.words_[at].last);
    unique.word = NO_BYTES;
    for (size_t i = text.size(); i-- > 0;) unique.word = longer_word(unique.word, text[i]);
  }
  return add_unique(unique);
}

// Layer by layer: the expressions after each number of bytes, and how many beginnings lead there.
uint32_t Exprs::num_texts(ExprId e, uint32_t limit) {
  struct Place {
    ExprId e;
    uint64_t ways;
  };
  std::vector<Place> layer{{e, 1}};
  uint64_t num = 0;
  for (int len = 0; !layer.empty(); len++) {
    for (const Place& place : layer) num += nullable(place.e) ? place.ways : 0;
    if (num >= limit || len == MAX_LAYERS) return UNBOUNDED;
    std::vector<Place> next;
    for (const Place& place : layer) {
      ByteSet todo = ByteSet::all(), alike;
      while (!todo.empty()) {
        ExprId after = derive(place.e, todo.first(), alike);
        ByteSet same = todo & alike;
        todo = todo & ~alike;
        if (after == NOTHING) continue;
        uint64_t ways = 0;
        for (size_t i = 0; i < 8; i++) ways += static_cast<uint64_t>(__builtin_popcount(same.word(i)));
        ways = std::min<uint64_t>(ways * place.ways, limit);
        auto known = std::ranges::find(next, after, &Place::e);
        if (known == next.end()) {
          next.push_back({after, ways});
        } else {
          known->ways = std::min<uint64_t>(known->ways + ways, limit);
        }
      }
    }
    layer.swap(next);
    if (layer.size() > limit) return UNBOUNDED;
  }
  return static_cast<uint32_t>(num);
}

}  // namespace aici::regex
