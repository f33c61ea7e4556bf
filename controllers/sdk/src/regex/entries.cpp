// The entries of objects. A derivative makes only what the text needs, so a set of keys costs nothing until the keys are
// written.
#include "aici/regex/entries.hpp"

#include <algorithm>

#include "aici/json_string.hpp"
#include "aici/regex/code_points.hpp"
#include "aici/regex/expr.hpp"
#include "aici/utf8.hpp"

namespace aici::regex {
namespace {

// Other keys of an object beyond this number may come again: the expression of the keys written has a limit.
constexpr uint32_t MAX_SAID = 500;
// Whether a finite language has more keys than this is not found out.
constexpr uint32_t MAX_COUNTED = 200;

}  // namespace

uint32_t Exprs::add_list(EntryList list) {
  if (list.names.size() > UINT16_MAX) fail("an object has more than 65535 properties");
  entry_lists_.push_back(static_cast<EntryList&&>(list));
  return static_cast<uint32_t>(entry_lists_.size() - 1);
}

ExprId Exprs::entries(uint32_t number, uint32_t count, bool wanted) {
  const EntryList& list = entry_lists_[number];
  EntryState state{.list = number, .count = count, .wanted = wanted};
  state.num_due = wanted + static_cast<uint32_t>(std::ranges::count_if(list.names, [](const EntryList::Name& n) { return n.required; }));
  state.names.resize((list.names.size() + 31) / 32);
  return fits(state) ? entries(static_cast<EntryState&&>(state)) : NOTHING;
}

ExprId Exprs::entries(EntryState state) {
  const EntryList& list = list_of(state);
  if (list.max == UNBOUNDED) state.count = std::min(state.count, std::max(list.min, 1u));
  return add_part(Kind::Entries, intern(state));
}

ExprId Exprs::add_part(Kind kind, uint32_t state, uint32_t b, uint32_t c) {
  return add({kind, false, !list_of(entry_states_[state]).is_value, state, b, c});
}

uint32_t Exprs::intern(const EntryState& state) {
  return entry_table_.find_or_add(
      state.hash(), [&](uint32_t number) { return entry_states_[number] == state; },
      [&] {
        entry_states_.push_back(state);
        return static_cast<uint32_t>(entry_states_.size() - 1);
      });
}

bool Exprs::has_other_keys() const {
  return std::ranges::any_of(entry_lists_, [](const EntryList& list) { return !list.others.empty(); });
}

// Room for an entry that need not come.
bool Exprs::has_room(const EntryState& state) const {
  uint32_t max = list_of(state).max;
  return max == UNBOUNDED || (max > state.count && max - state.count > state.num_due);
}

bool Exprs::may_write(const EntryState& state, uint32_t name) const {
  return !state.has(name) && (list_of(state).names[name].required || has_room(state));
}

bool Exprs::may_write_name(const EntryState& state) const {
  for (uint32_t name = 0; name < list_of(state).names.size(); name++)
    if (may_write(state, name)) return true;
  return false;
}

// The keys that may come next for entries of `other`.
ExprId Exprs::other_keys(const EntryState& state, uint32_t number) {
  const EntryList& list = list_of(state);
  const EntryList::Other& other = list.others[number];
  if (other.wanted ? !state.wanted : !has_room(state)) return NOTHING;
  auto not_said = [&](ExprId keys) { return state.said == NOTHING ? keys : both(keys, complement(state.said)); };
  ExprId keys = not_said(other.keys);
  if (keys == NOTHING || other.wanted || !state.wanted) return keys;
  // The last key that can be the wanted key is kept for it.
  std::vector<ExprId> wanted;
  for (const EntryList::Other& one : list.others)
    if (one.wanted) wanted.push_back(not_said(one.keys));
  ExprId left = alt(wanted);
  return count_keys(left, 2) == 1 ? both(keys, complement(left)) : keys;
}

EntryState Exprs::after_other(EntryState state, uint32_t other) const {
  state.count++;
  if (list_of(state).others[other].wanted) state.wanted = false, state.num_due--;
  return state;
}

ExprId Exprs::derive_entries(const Node& node, uint8_t byte) {
  EntryState state = entry_states_[node.a];
  const EntryList& list = list_of(state);
  std::vector<ExprId> ways;
  if (state.count >= list.min && state.num_due == 0) ways.push_back(derive_new(list.end, byte));
  bool goes_on = may_write_name(state);
  for (uint32_t i = 0; i < list.others.size() && !goes_on; i++) goes_on = other_keys(state, i) != NOTHING;
  if (goes_on) {
    ExprId before = state.count ? list.next : list.first;
    Node key{Kind::Key, false, node.has_rules, node.a, 0, 0};
    ways.push_back(concat(derive_new(before, byte), add(key)));
    if (nullable(before)) ways.push_back(derive_key(key, byte));
  }
  return alt(static_cast<std::vector<ExprId>&&>(ways));
}

ExprId Exprs::derive_key(const Node& node, uint8_t byte) {
  ByteSet quote = ByteSet::of('"');
  alike_ = alike_ & (byte == '"' ? quote : ~quote);
  if (byte != '"') return NOTHING;
  EntryState state = entry_states_[node.a];
  const EntryList& list = list_of(state);
  std::vector<ExprId> ways;
  if (may_write_name(state)) ways.push_back(add_part(Kind::Name, node.a, static_cast<uint32_t>(list.names.size())));
  for (uint32_t i = 0; i < list.others.size(); i++)
    if (ExprId keys = other_keys(state, i); keys != NOTHING)
      ways.push_back(concat(keys, concat(bytes(quote), add_part(Kind::Value, node.a, i))));
  return alt(static_cast<std::vector<ExprId>&&>(ways));
}

ExprId Exprs::derive_name(const Node& node, uint8_t byte) {
  EntryState state = entry_states_[node.a];
  const EntryList& list = list_of(state);
  uint32_t begin = node.b >> 16, end = node.b & UINT16_MAX, depth = node.c;
  auto byte_of = [&](uint32_t name) { return static_cast<uint8_t>(list.names[name].key.view()[depth]); };
  ByteSet inside;
  for (uint32_t name = begin; name < end; name++)
    if (may_write(state, name)) inside.add(byte_of(name));
  alike_ = alike_ & (inside.has(byte) ? ByteSet::of(byte) : ~inside);
  if (!inside.has(byte)) return NOTHING;
  while (byte_of(begin) != byte) begin++;
  while (byte_of(end - 1) != byte) end--;
  const EntryList::Name& name = list.names[begin];
  if (depth + 1 < name.key.size()) return add_part(Kind::Name, node.a, begin << 16 | end, depth + 1);
  state.names[begin / 32] |= 1u << (begin % 32);
  state.count++, state.num_due -= name.required;
  return concat(list.colon, concat(name.value, entries(static_cast<EntryState&&>(state))));
}

ExprId Exprs::derive_value(const Node& node, uint8_t byte) {
  EntryState state = entry_states_[node.a];
  const EntryList& list = list_of(state);
  ExprId colon = derive_new(list.colon, byte);
  return colon == NOTHING ? NOTHING : concat(colon, concat(list.others[node.b].value, entries(after_other(state, node.b))));
}

bool Exprs::awaits_key(ExprId e) const {
  const Node& node = nodes_[e];
  if (node.kind == Kind::Concat) return awaits_key(node.a);
  if (node.kind == Kind::Alt) return std::ranges::any_of(members(node), [this](ExprId member) { return awaits_key(member); });
  if (node.kind == Kind::And) return std::ranges::any_of(members(node), [this](ExprId member) { return awaits_key(member); });
  if (node.kind == Kind::Unique) return awaits_key(uniques_[node.a].rest);
  return node.kind == Kind::Value;
}

ExprId Exprs::with_key(ExprId e, std::string_view key) { return with_said(e, spelled(key)); }

ExprId Exprs::with_said(ExprId e, ExprId key) {
  Node node = nodes_[e];
  if (node.kind == Kind::Concat) return concat(with_said(node.a, key), node.b);
  if (node.kind == Kind::Alt || node.kind == Kind::And) {
    std::vector<ExprId> parts;
    for (uint32_t i = 0; i < node.b; i++) parts.push_back(with_said(members_[node.a + i], key));
    if (node.kind == Kind::And) return both(static_cast<std::vector<ExprId>&&>(parts));
    return alt(static_cast<std::vector<ExprId>&&>(parts));
  }
  if (node.kind == Kind::Unique) {
    Unique unique = uniques_[node.a];
    unique.rest = with_said(unique.rest, key);
    return unique.rest == NOTHING ? NOTHING : add_unique(unique);
  }
  if (node.kind != Kind::Value) return e;
  EntryState state = after_other(entry_states_[node.a], node.b);
  const EntryList& list = list_of(state);
  if (state.num_said < MAX_SAID) state.said = alt({state.said, key}), state.num_said++;
  return concat(list.colon, concat(list.others[node.b].value, entries(static_cast<EntryState&&>(state))));
}

// Keys are forgotten only where there are always others: an end of the object would come sooner otherwise.
ExprId Exprs::without_said(ExprId e) {
  Node node = nodes_[e];
  EntryState state = entry_states_[node.a];
  bool is_endless = std::ranges::none_of(list_of(state).others, [this](const auto& other) { return nodes_[other.keys].is_finite; });
  if (state.said == NOTHING || state.wanted || !is_endless) return e;
  state.said = NOTHING, state.num_said = 0;
  node.a = intern(state);
  return add(node);
}

// All spellings of a key, which is given in one of them, with its quotes.
ExprId Exprs::spelled(std::string_view key) {
  Text text;
  size_t at = 0;
  std::vector<uint32_t> code_points;
  if (json::read_string(key, at, text) || decode_utf8(text, code_points)) return NOTHING;
  ExprId e = EMPTY;
  for (size_t i = code_points.size(); i-- > 0;) {
    CodePoints one;
    one.add(code_points[i], code_points[i]);
    e = concat(one.to_expr(*this, Encoding::JsonString), e);
  }
  return e;
}

// The number of keys in a language, or `most`.
uint32_t Exprs::count_keys(ExprId keys, uint32_t most) {
  if (!nodes_[keys].is_finite) return most;
  for (uint32_t count = 0; count < most; count++) {
    if (keys == NOTHING || error_) return count;
    Text key("\"");
    for (ExprId rest = keys; !nullable(rest);)
      for (unsigned byte = 0; byte < 256; byte++)
        if (ExprId next = derive(rest, static_cast<uint8_t>(byte)); next != NOTHING) {
          key << static_cast<char>(byte);
          rest = next;
          break;
        }
    keys = both(keys, complement(spelled(key << '"')));
  }
  return most;
}

// Whether enough entries can come. Checked once: has_room() and other_keys() keep it so.
bool Exprs::fits(const EntryState& state) {
  const EntryList& list = list_of(state);
  if (list.max < state.count || list.max - state.count < state.num_due) return false;
  uint32_t num = state.count;
  bool has_wanted = false;
  for (const EntryList::Name& name : list.names) {
    if (name.value == NOTHING && name.required) return false;
    num += name.value != NOTHING;
  }
  for (const EntryList::Other& other : list.others) {
    has_wanted |= other.wanted;
    if (other.wanted || num >= list.min) continue;
    uint32_t needed = list.min - num, found = count_keys(other.keys, std::min(needed, MAX_COUNTED));
    num += found == MAX_COUNTED ? needed : found;
  }
  return num >= list.min && (has_wanted || !state.wanted);
}

// The same, when it is known which values have an end.
bool Exprs::ends(const EntryState& state, const std::vector<bool>& ends) const {
  const EntryList& list = list_of(state);
  uint32_t num = state.count;
  bool has_wanted = false;
  for (const EntryList::Name& name : list.names) {
    if (name.required && !ends[name.value]) return false;
    num += ends[name.value];
  }
  for (const EntryList::Other& other : list.others) {
    if (!ends[other.value]) continue;
    has_wanted |= other.wanted;
    num = std::max(num, list.min);
  }
  return num >= list.min && (has_wanted || !state.wanted);
}

void Exprs::settle(EntryList& list, const std::vector<ExprId>& moved) const {
  for (EntryList::Name& name : list.names) name.value = moved[name.value];
  for (EntryList::Other& other : list.others) other.value = moved[other.value];
  std::erase_if(list.names, [](const EntryList::Name& name) { return name.value == NOTHING; });
  std::erase_if(list.others, [](const EntryList::Other& other) { return other.value == NOTHING; });
}

std::vector<ExprId> Exprs::parts(const EntryState& state) const {
  const EntryList& list = list_of(state);
  std::vector<ExprId> parts{state.said, list.first, list.next, list.colon, list.end};
  for (const EntryList::Name& name : list.names) parts.push_back(name.value);
  for (const EntryList::Other& other : list.others) parts.push_back(other.keys), parts.push_back(other.value);
  return parts;
}

// A state of the arena `from`, of which this arena is a copy: the number here.
uint32_t Exprs::copied(EntryState state, const Exprs& from, const std::vector<ExprId>& moved, std::vector<uint32_t>& lists) {
  uint32_t& number = lists[state.list];
  if (number == UINT32_MAX) {
    EntryList list = from.list_of(state);
    for (ExprId* part : {&list.first, &list.next, &list.colon, &list.end}) *part = moved[*part];
    for (EntryList::Name& name : list.names) name.value = moved[name.value];
    for (EntryList::Other& other : list.others) other.keys = moved[other.keys], other.value = moved[other.value];
    number = add_list(static_cast<EntryList&&>(list));
  }
  state.list = number, state.said = moved[state.said];
  return intern(state);
}

}  // namespace aici::regex
