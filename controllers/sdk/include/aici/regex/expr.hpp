// Regular expressions over bytes, as numbered nodes. Equal expressions have equal numbers (hash-consing), and the
// constructors simplify, so an expression has few derivatives. Intersections, complements and recursive rules are
// ordinary expressions. With rules the language is context-free, and a derivative is a stack that reads `head . tail .
// tail`.
//
// Constraints rely on two facts that hold by construction: an expression that matches nothing IS `NOTHING`, and an
// expression that matches only the empty string IS `EMPTY`. Rules are the exception until `settle`.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "aici/regex/byte_set.hpp"
#include "aici/regex/entries.hpp"
#include "aici/regex/intern.hpp"

namespace aici::regex {

inline constexpr ExprId NOTHING = 0;
inline constexpr ExprId EMPTY = 1;
inline constexpr uint32_t UNBOUNDED = UINT32_MAX;

class Exprs {
 public:
  // The greatest divisor of digits_multiple_of: ten times a remainder must fit into 64 bits.
  static constexpr uint64_t MAX_DIVISOR = 1'000'000'000'000'000'000;

  Exprs();

  ExprId bytes(const ByteSet& set);
  ExprId concat(ExprId first, ExprId second);
  ExprId alt(std::vector<ExprId> members) { return alt(static_cast<std::vector<ExprId>&&>(members), 0); }
  ExprId repeat(ExprId body, uint32_t min, uint32_t max);  // max may be UNBOUNDED; min <= max

  // The texts matched by all members, which may hold no rules, except beside complements of finitely many texts, when
  // all rules are defined. Whether any text is left is decided here, by searching
  // for one; if the search takes too much work, error() is set.
  ExprId both(std::vector<ExprId> members);
  ExprId both(ExprId a, ExprId b) { return both(std::vector<ExprId>{a, b}); }
  // All byte strings, UTF-8 or not, not matched by `e`: intersect the result with all text. `e` may hold no rules.
  ExprId complement(ExprId e);
  ExprId all() const { return all_; }

  // Decimal digits, at least one, leading zeros allowed, whose value is a multiple of n / 10^places;
  // 1 <= n <= MAX_DIVISOR, places <= 18. With places, a point and digits may follow.
  ExprId digits_multiple_of(uint64_t n, uint32_t places = 0);

  // Different JSON values, with `comma` between them, and `end`: at least `min` items and at most `max`. Items are JSON,
  // where strings and numbers have one spelling; keys come in any order, with spaces as said below. Items tell their own
  // end: no text of an item that is followed by a beginning of `comma` or `end` begins a longer item. Items of more than
  // 256 bytes, and items after the first 1,000, are not remembered.
  struct UniqueItems {
    // An item, and the step behind the item.
    struct Way {
      ExprId item;
      uint32_t next;
      bool operator==(const Way&) const = default;
    };
    // `missing`: so many items must still come.
    struct Step {
      std::vector<Way> ways;
      uint32_t missing = 0;
      bool operator==(const Step&) const = default;
    };
    std::vector<Step> steps;  // the first is the start
    ExprId space = 0, comma = 0, colon = 0, end = 0;  // inside of brackets, between items, behind keys; behind the items
    uint32_t min = 0, max = UNBOUNDED;
    uint8_t first = 0;     // the first byte of every item behind the first; 0 if there are several
    bool repeats = false;  // the opposite: some item comes twice. One step with one way
    bool operator==(const UniqueItems&) const = default;
    bool may_come(const Way& way, uint32_t num_items) const;  // the last of `num_items`
  };
  ExprId unique_items(UniqueItems items);
  // The number of texts of `e`; UNBOUNDED if there are `limit` or more, or a very long one. All rules are defined.
  uint32_t num_texts(ExprId e, uint32_t limit);

  // A name for an expression that is defined later and may contain the name. The expression must not match the empty
  // string (settle() checks) and must not begin with the rule itself (derive() checks, see error()).
  ExprId rule();
  void define(ExprId rule, ExprId body);
  // Call after all rules are defined and before derivatives are taken (Dfa does): returns `root` without the rules that
  // can never end, which become NOTHING. Other expressions must not be used afterwards.
  ExprId settle(ExprId root);

  // The rest of an object, with its end, after `count` entries other than those of the list; `wanted`: an entry that is
  // wanted must come. NOTHING if the list cannot satisfy its counts. Each key comes once; see with_key().
  uint32_t add_list(EntryList list);
  ExprId entries(uint32_t list, uint32_t count, bool wanted);
  // An expression does not hold the text of another key while the key is being written: a list of keys is not regular.
  // So the key may come again, unless with_key() is told the key, with its quotes, directly behind the key.
  bool has_other_keys() const;
  bool awaits_key(ExprId e) const;
  ExprId with_key(ExprId e, std::string_view key);

  bool nullable(ExprId e) const { return nodes_[e].nullable; }

  // An expression that reads body{min,max} tail; tail may be EMPTY.
  struct Counted {
    ExprId body, tail;
    uint32_t min, max;
  };
  std::optional<Counted> as_counted(ExprId e) const;

  // An expression that reads head tail, where the head is small, may be empty, and is likely to stand before other
  // tails.
  struct Split {
    ExprId head, tail;
  };
  std::optional<Split> split(ExprId e);

  // For e = x & ~y with finitely many texts in y, perhaps before a tail or beside alternatives: x. If all texts of an
  // unbounded number may begin a text of x, then they may begin a text of e: some of their endings are not in y.
  // NOTHING if e has another form.
  ExprId without_exceptions(ExprId e) const { return without_exceptions(e, 0); }

  // The text that may follow after `byte` (Brzozowski 1964): the language { w : byte w in L(e) }.
  ExprId derive(ExprId e, uint8_t byte) {
    ByteSet alike;
    return derive(e, byte, alike);
  }
  // The same; `alike` becomes a set of bytes, including `byte`, that all have this derivative.
  ExprId derive(ExprId e, uint8_t byte, ByteSet& alike);

  // An expression that allows the same beginnings of up to `longest` bytes. Larger counts become unbounded, so facts
  // found out about the result hold for many counts. Keys and items written may be forgotten; then more beginnings are
  // allowed of those that hold a whole key after a comma.
  enum class Written : uint8_t { Kept, Forgotten };
  ExprId capped(ExprId e, uint32_t longest, Written written);

  // Bytes not distinguished by any set of this arena get the same class number. Derivatives make no finer sets.
  std::vector<uint8_t> byte_classes() const;

  // An arena with only the nodes of `roots`; `roots` become numbers in the new arena.
  Exprs copy_of(std::span<ExprId> roots) const;

  // Set once a request was invalid or took too much work; from then on results are meaningless.
  const char* error() const { return error_; }

  // A measure of the work done so far, about 0.1 µs each.
  uint64_t work() const { return alt_terms_ + nodes_.size(); }

  size_t size() const { return nodes_.size(); }
  // Reserve room for this many nodes, a power of two, so that growth does not fall into the time of a mask.
  void reserve(size_t num);

  // Nodes, members of alternations, states of entries: the part that grows while derivatives are taken.
  size_t weight() const { return nodes_.size() + members_.size() / 4 + 2 * entry_states_.size(); }

 private:
  enum class Kind : uint8_t {
    Nothing, Empty, Bytes, Concat, Alt, Repeat, And, Not, Digits, Unique, Rule, Entries, Key, Name, Value
  };

  // Bytes: a = set. Concat: a, b; a is no Concat. Alt, And: a = first of b members in members_. Repeat: a = body, b..c
  // times. Not: a = body. Digits: a = number in digits_. Unique: a = number in uniques_. Rule: a = number in bodies_.
  // Entries and its parts (entries.cpp): a = number in entry_states_. Key: before a key. Name: b = range of names, c =
  // bytes read. Value: b = number of other.
  struct Node {
    Kind kind;
    bool nullable;
    bool has_rules;
    uint32_t a, b, c;
    bool is_finite = false;  // known to match finitely many texts
  };

  // One member of an alternation, split into a head and the rest.
  struct Term {
    ExprId head, tail;
    bool operator==(const Term&) const = default;
  };

  // Digits of which some were read: their value so far, modulo n. `begun`: at least one digit was read, since the point
  // if `in_fraction`. `places`: digits after the point that still count; only zeros may follow these digits.
  struct Digits {
    uint64_t n, remainder;
    uint32_t places;
    bool in_fraction, begun;
    bool operator==(const Digits&) const = default;
    uint32_t hash() const;
    bool matches() const;                      // the digits read so far are a multiple
    bool can_match() const;                    // further digits can make them a multiple
    std::optional<Digits> after(uint8_t byte) const;
  };

  // A list of different items, inside an item. The item so far is `word`; `rest` completes it to an item not yet said.
  // Before the first item `num_said` is 0 and nothing is said. `step`: behind the item.
  struct Unique {
    uint32_t items;  // number in unique_items_
    ExprId rest, said;
    uint32_t num_said, word, step;
    bool operator==(const Unique&) const = default;
    uint32_t hash() const;
  };
  // A list of bytes that shares its beginning with other lists.
  struct Word {
    uint32_t before, size;
    uint8_t last;
    bool operator==(const Word&) const = default;
  };
  static constexpr uint32_t NO_BYTES = 0, TOO_LONG = UINT32_MAX;

  // Facts about And and Not; all other expressions match something.
  enum class Emptiness : uint8_t { Unknown, NotEmpty, Empty };

  ExprId add(const Node& node);
  ExprId alt(std::vector<ExprId> members, int depth);
  void flatten(ExprId e, std::vector<Term>& terms, bool& with_empty) const;
  void factor_heads(std::vector<Term>& terms, int depth);
  void merge_repeats(std::vector<Term>& terms);
  void merge_bytes(std::vector<Term>& terms);
  ExprId intern_members(Kind kind, const std::vector<ExprId>& members);
  std::span<const ExprId> members(const Node& node) const { return {members_.data() + node.a, node.b}; }
  bool has_members(const Node& node) const { return node.kind == Kind::Alt || node.kind == Kind::And; }
  uint32_t hash(const Node& node) const;
  bool equal(const Node& x, const Node& y) const;

  ExprId capped(ExprId e, uint32_t longest, Written written, int depth);
  ExprId without_exceptions(ExprId e, int depth) const;
  bool is_finite(const Node& node) const;
  bool is_small(ExprId e, uint32_t& budget, int depth) const;
  ExprId ways_apart(ExprId e);
  bool begins_with_option(ExprId e) const;
  void add_ways(ExprId e, std::vector<ExprId>& ways);
  ExprId derive_new(ExprId e, uint8_t byte);
  ExprId derive_concat(ExprId e, uint8_t byte);
  ExprId derive_digits(const Node& node, uint8_t byte);
  ExprId derive_rule(const Node& node, uint8_t byte);
  ExprId add_digits(const Digits& digits);

  ExprId add_unique(const Unique& unique);
  ExprId derive_unique(const Node& node, uint8_t byte);
  std::vector<ExprId> next_items(const Unique& unique);
  ExprId value_said(const UniqueItems& items, std::string_view text);
  ExprId value_said(const UniqueItems& items, std::string_view text, size_t& at);
  bool may_end_after(const Unique& unique, uint32_t num_items) const;
  ExprId forgotten(const Unique& unique);
  uint32_t longer_word(uint32_t word, uint8_t byte);
  ExprId copied_unique(const Exprs& from, Unique unique, const std::vector<ExprId>& moved);

  ExprId entries(EntryState state);
  uint32_t intern(const EntryState& state);
  bool is_part_of_entries(Kind kind) const { return kind >= Kind::Entries; }
  bool is_value(const Node& node) const { return is_part_of_entries(node.kind) && list_of(entry_states_[node.a]).is_value; }
  ExprId add_part(Kind kind, uint32_t state, uint32_t b = 0, uint32_t c = 0);
  const EntryList& list_of(const EntryState& state) const { return entry_lists_[state.list]; }
  ExprId derive_entries(const Node& node, uint8_t byte);
  ExprId derive_key(const Node& node, uint8_t byte);
  ExprId derive_name(const Node& node, uint8_t byte);
  ExprId derive_value(const Node& node, uint8_t byte);
  bool has_room(const EntryState& state) const;
  bool may_write(const EntryState& state, uint32_t name) const;
  bool may_write_name(const EntryState& state) const;
  ExprId other_keys(const EntryState& state, uint32_t other);
  EntryState after_other(EntryState state, uint32_t other) const;
  bool fits(const EntryState& state);
  bool ends(const EntryState& state, const std::vector<bool>& ends) const;
  void settle(EntryList& list, const std::vector<ExprId>& moved) const;
  std::vector<ExprId> parts(const EntryState& state) const;
  uint32_t copied(EntryState state, const Exprs& from, const std::vector<ExprId>& moved, std::vector<uint32_t>& lists);
  uint32_t count_keys(ExprId keys, uint32_t most);
  ExprId with_said(ExprId e, ExprId key);
  ExprId without_said(ExprId e);
  ExprId spelled(std::string_view key);

  ExprId meet(std::vector<ExprId> members);
  ExprId negation(ExprId e);
  ExprId if_not_empty(ExprId e);
  void search(ExprId start);
  bool is_empty_uncounted(ExprId e);
  ExprId derive_undecided(ExprId e, uint8_t byte, ByteSet& alike);
  bool strip_common_byte(std::vector<ExprId>& members, std::vector<ExprId>& prefix);
  bool is_decided(ExprId e) const;
  Emptiness& emptiness(ExprId e);

  std::vector<bool> in_use(std::span<const ExprId> roots) const;
  std::vector<bool> ending(const std::vector<bool>& used) const;
  ExprId rebuilt(ExprId e, const std::vector<ExprId>& moved);
  void fail(const char* why) {
    if (!error_) error_ = why;
  }

  std::vector<Node> nodes_;
  std::vector<ByteSet> sets_;
  std::vector<ExprId> members_;
  std::vector<Digits> digits_;
  std::vector<UniqueItems> unique_items_;
  std::vector<Unique> uniques_;
  std::vector<Word> words_{{0, 0, 0}};
  std::vector<ExprId> bodies_;  // of rules
  std::vector<EntryList> entry_lists_;
  std::vector<EntryState> entry_states_;
  InternTable node_table_, set_table_, digits_table_, unique_table_, word_table_, entry_table_;
  std::vector<Emptiness> emptiness_;  // (nodes,) as far as needed
  std::vector<ExprId> apart_;         // (nodes,) as far as needed: see ways_apart; NOTHING if unknown
  std::vector<uint32_t> seen_in_;     // (nodes,) as far as needed: the search that last visited the node
  uint32_t last_search_ = 0;
  uint64_t alt_terms_ = 0;  // sorted so far: the cost of derivatives
  ExprId all_;
  const char* error_ = nullptr;

  // The running derivation. Expressions share parts, so results are kept. Deciding an intersection takes derivatives in
  // the middle of a derivation: every derivation has its own number.
  std::vector<ExprId> memo_;
  std::vector<uint32_t> memo_round_;
  uint64_t last_term_ = 0;  // more members of alternations are too many for one derivation
  std::vector<uint8_t> rule_open_;  // (rules,) a derivation has begun and not ended
  ByteSet alike_;
  uint32_t round_ = 0, last_round_ = 0;
  uint32_t depth_ = 0;
};

}  // namespace aici::regex
