// The entries of a JSON object, in any order and no key twice: what the expressions of aici/regex/expr.hpp know about
// them. The rest of an object depends on the keys that are written already, and there are far too many sets of keys to
// make an expression of each. So an expression is a list and a state, and only the states of the text are ever made.
#pragma once
#include <cstdint>
#include <vector>

#include "aici/regex/intern.hpp"
#include "aici/text.hpp"

namespace aici::regex {

using ExprId = uint32_t;

struct EntryList {
  struct Name {
    Text key;  // as written, with the closing quote
    ExprId value;
    bool required;
  };
  // All other keys; the languages of keys may overlap.
  struct Other {
    ExprId keys;  // between the quotes, in all spellings, no names
    ExprId value;
    bool wanted;
  };
  std::vector<Name> names{};  // by key
  std::vector<Other> others{};
  ExprId first, next;  // what comes before the first entry, and before each further entry
  ExprId colon, end;   // before each value, and behind the last entry
  uint32_t min = 0, max = UINT32_MAX;  // of entries
  bool is_value = false;  // one object, its keys in any order: finitely many texts, and no rules
};

struct EntryState {
  uint32_t list;
  uint32_t count = 0;               // of entries written; large counts are alike if there is no maximum
  bool wanted = false;            // an entry of a wanted `other` must come
  uint32_t num_due = 0;           // entries that must come: required names, and the wanted one
  ExprId said = 0;                // the other keys written
  uint32_t num_said = 0;
  std::vector<uint32_t> names{};  // bit i: names[i] is written
  bool operator==(const EntryState&) const = default;

  bool has(uint32_t name) const { return names[name / 32] >> (name % 32) & 1; }
  uint32_t hash() const {
    uint32_t hash = list;
    auto mix = [&hash](uint32_t word) { hash = (hash ^ word) * 0x9E3779B1u, hash ^= hash >> 15; };
    mix(count), mix(wanted), mix(said);
    for (uint32_t word : names) mix(word);
    return hash;
  }
};

}  // namespace aici::regex
