// Lists of different items. The automaton remembers the items said so far: as texts that the next item must not be.
#include <algorithm>

#include "aici/regex/expr.hpp"
#include "aici/sort.hpp"

namespace aici::regex {
namespace {

constexpr uint32_t MAX_WORD = 256, MAX_SAID = 1000;
constexpr int MAX_LAYERS = 64;  // bytes of a text
constexpr size_t MAX_STEPS = 5000;
constexpr size_t MAX_LAYER = 200;  // expressions after equally many bytes

// A shortest text of `e`; none if the search for it takes too long.
std::optional<Text> shortest_text(Exprs& exprs, ExprId e) {
  struct Place {
    ExprId e;
    Text text;
  };
  std::vector<Place> layer, next;
  layer.push_back({e, Text()});
  for (int len = 0; len < MAX_LAYERS && !layer.empty() && layer.size() < MAX_LAYER; len++) {
    for (Place& place : layer) {
      if (exprs.nullable(place.e)) return static_cast<Text&&>(place.text);
      ByteSet alike;
      for (ByteSet todo = ByteSet::all(); !todo.empty(); todo = todo & ~alike) {
        ExprId after = exprs.derive(place.e, todo.first(), alike);
        if (after != NOTHING && std::ranges::find(next, after, &Place::e) == next.end())
          next.push_back({after, Text(place.text.view()) << static_cast<char>(todo.first())});
      }
    }
    layer.swap(next), next.clear();
  }
  return std::nullopt;
}

}  // namespace

uint32_t Exprs::Unique::hash() const {
  uint32_t hash = items;
  for (uint32_t part : {rest, said, num_said, word, step}) hash = (hash ^ part) * 0x9E3779B1u, hash ^= hash >> 15;
  return hash;
}

bool Exprs::UniqueItems::may_come(const Way& way, uint32_t num_items) const {
  if (way.item == NOTHING || num_items > max) return false;
  uint32_t missing = repeats ? 1 : steps[way.next].missing;
  return missing == 0 || max == UNBOUNDED ? missing != UNBOUNDED : missing <= max - num_items;
}

ExprId Exprs::unique_items(UniqueItems items) {
  bool is_single = items.steps.size() == 1 && items.steps[0].ways.size() == 1 && !items.repeats;
  if (is_single && !nodes_[items.steps[0].ways[0].item].has_rules)
    items.max = std::min(items.max, num_texts(items.steps[0].ways[0].item, MAX_SAID));
  if (items.min > items.max || items.steps.size() > MAX_STEPS) return NOTHING;
  auto same = std::ranges::find(unique_items_, items);
  auto number = static_cast<uint32_t>(same - unique_items_.begin());
  if (same == unique_items_.end()) unique_items_.push_back(items);
  std::vector<ExprId> ways;
  for (const UniqueItems::Way& way : items.steps[0].ways)
    if (items.may_come(way, 1)) ways.push_back(add_unique({number, way.item, NOTHING, 0, NO_BYTES, way.next}));
  return alt(static_cast<std::vector<ExprId>&&>(ways));
}

ExprId Exprs::add_unique(const Unique& unique) {
  uint32_t number = unique_table_.find_or_add(
      unique.hash(), [&](uint32_t id) { return uniques_[id] == unique; },
      [&] {
        uniques_.push_back(unique);
        return static_cast<uint32_t>(uniques_.size() - 1);
      });
  bool has_rules = nodes_[unique.rest].has_rules;
  for (const UniqueItems::Step& step : unique_items_[unique.items].steps)
    for (const UniqueItems::Way& way : step.ways) has_rules |= nodes_[way.item].has_rules;
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

// The texts of a JSON value with its keys in any order and with all spaces that items may have.
ExprId Exprs::value_said(const UniqueItems& items, std::string_view text) {
  size_t at = 0;
  return value_said(items, text, at);
}

ExprId Exprs::value_said(const UniqueItems& items, std::string_view text, size_t& at) {
  auto literal = [this](std::string_view part) {
    ExprId e = EMPTY;
    for (size_t i = part.size(); i-- > 0;) e = concat(bytes(ByteSet::of(static_cast<uint8_t>(part[i]))), e);
    return e;
  };
  auto skip = [&](std::string_view bytes) {
    while (bytes.find(text[at]) != std::string_view::npos) at++;
  };
  auto skip_string = [&] {
    size_t begin = at;
    for (at++; text[at] != '"'; at++) at += text[at] == '\\';
    return text.substr(begin, ++at - begin);
  };
  size_t begin = at;
  if (text[at] == '"') return literal(skip_string());
  if (text[at] != '{' && text[at] != '[') {
    at = std::min(text.find_first_of(",]} \n\t", at), text.size());
    return literal(text.substr(begin, at - begin));
  }
  EntryList list{.first = items.space, .next = items.comma, .colon = items.colon, .is_value = true};
  list.end = concat(items.space, literal("}"));
  std::vector<ExprId> values;
  bool is_object = text[at++] == '{';
  for (skip(" \n\t"); text[at] != '}' && text[at] != ']'; skip(", \n\t")) {
    if (is_object) {
      Text key(skip_string().substr(1));
      skip(": \n\t");
      list.names.push_back({static_cast<Text&&>(key), value_said(items, text, at), true});
    } else {
      values.push_back(value_said(items, text, at));
    }
  }
  at++;
  ExprId e = concat(items.space, literal(is_object ? "}" : "]"));
  if (list.names.size() > 1) {
    sort(list.names, [](const EntryList::Name& x, const EntryList::Name& y) { return x.key.view() < y.key.view(); });
    e = entries(add_list(static_cast<EntryList&&>(list)), 0, false);
  } else if (is_object) {
    for (const EntryList::Name& one : list.names)
      e = concat(concat(items.space, literal("\"")), concat(concat(literal(one.key), items.colon), concat(one.value, e)));
  } else {
    for (size_t i = values.size(); i-- > 0;) e = concat(i ? items.comma : items.space, concat(values[i], e));
  }
  return concat(literal(is_object ? "{" : "["), e);
}

// The texts that begin with the next item, once this one is complete. None: no further item is allowed, or all are said.
std::vector<ExprId> Exprs::next_items(const Unique& unique) {
  const UniqueItems items = unique_items_[unique.items];
  uint32_t num_items = unique.num_said + 1;
  std::vector<ExprId> ways;
  if (num_items >= items.max) return ways;
  Unique next{unique.items, NOTHING, unique.said, num_items, NO_BYTES, 0};
  if (items.max == UNBOUNDED) next.num_said = std::min(num_items, std::max(items.min, MAX_SAID));
  if (unique.word != TOO_LONG && num_items <= MAX_SAID) {
    Text word;
    for (uint32_t at = unique.word; at != NO_BYTES; at = words_[at].before) word << static_cast<char>(words_[at].last);
    std::vector<char> text(word.view().rbegin(), word.view().rend());
    next.said = alt({next.said, value_said(items, {text.data(), text.size()})});
  }
  for (const UniqueItems::Way& way : items.steps[unique.step].ways) {
    if (!items.may_come(way, num_items + 1)) continue;
    next.rest = both(way.item, complement(next.said)), next.step = way.next;
    if (next.rest != NOTHING) ways.push_back(add_unique(next));
  }
  if (!items.repeats || next.said == NOTHING) return ways;
  // An item comes again: from here on all items may come.
  ExprId further = concat(items.comma, items.steps[0].ways[0].item);
  uint32_t written = num_items + 1, most = items.max == UNBOUNDED ? UNBOUNDED : items.max - written;
  ways.push_back(concat(next.said, concat(repeat(further, items.min > written ? items.min - written : 0, most), items.end)));
  return ways;
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
  if (may_end_after(unique, unique.num_said + 1)) ways.push_back(derive(items.end, byte, alike));
  if (ExprId comma = derive(items.comma, byte, alike); comma != NOTHING) ways.push_back(concat(comma, alt(next_items(unique))));
  return alt(ways);
}

bool Exprs::may_end_after(const Unique& unique, uint32_t num_items) const {
  const UniqueItems& items = unique_items_[unique.items];
  return num_items >= items.min && items.steps[unique.step].missing == 0 && !items.repeats;
}

// For masks: the same beginnings, without the memory, which would make every token a state of its own. After the item,
// a token goes no further than the comma and the first byte, behind which the items said so far count again.
ExprId Exprs::forgotten(const Unique& unique) {
  const UniqueItems items = unique_items_[unique.items];
  uint32_t num_items = unique.num_said + 1;
  std::vector<ExprId> further_items;
  for (const UniqueItems::Way& way : items.steps[unique.step].ways)
    if (items.may_come(way, num_items + 1)) further_items.push_back(way.item);
  bool is_open = !further_items.empty() || (items.repeats && num_items < items.max);
  if (is_open && unique.rest == EMPTY) {
    is_open = !next_items(unique).empty();
  } else if (is_open && num_items < MAX_SAID && !items.repeats) {
    // One of them may be the present item. Arrays and objects have several texts.
    auto has_two_values = [&](ExprId item) {
      ExprId left = both(item, complement(unique.said));
      if (num_texts(left, 2) != UNBOUNDED || !nodes_[left].has_rules) return num_texts(left, 2) == UNBOUNDED;
      std::optional<Text> one = shortest_text(*this, left);
      return !one || both(left, complement(value_said(items, *one))) != NOTHING;
    };
    is_open = std::ranges::any_of(further_items, has_two_values);
  }
  ExprId further = bytes(ByteSet::of(0xFF));  // never in UTF-8
  if (items.first) further = concat(bytes(ByteSet::of(items.first)), further);
  ExprId end = may_end_after(unique, num_items) ? items.end : NOTHING;
  return concat(unique.rest, alt({end, is_open ? concat(items.comma, further) : NOTHING}));
}

ExprId Exprs::copied_unique(const Exprs& from, Unique unique, const std::vector<ExprId>& moved) {
  UniqueItems items = from.unique_items_[unique.items];
  for (UniqueItems::Step& step : items.steps)
    for (UniqueItems::Way& way : step.ways) way.item = moved[way.item];
  for (ExprId* part : {&items.space, &items.comma, &items.colon, &items.end}) *part = moved[*part];
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
