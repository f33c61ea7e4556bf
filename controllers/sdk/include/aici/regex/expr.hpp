// Regular expressions over bytes, as numbered nodes: equal expressions have equal numbers (hash-consing), and the
// constructors simplify, so that derivatives of one expression stay few.
//
// Two facts hold by construction and the constraint relies on them: an expression that matches nothing IS `NOTHING`, and
// one that matches only the empty string IS `EMPTY`.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "aici/regex/byte_set.hpp"
#include "aici/regex/intern.hpp"

namespace aici::regex {

using ExprId = uint32_t;

inline constexpr ExprId NOTHING = 0;
inline constexpr ExprId EMPTY = 1;
inline constexpr uint32_t UNBOUNDED = UINT32_MAX;

class Exprs {
 public:
  Exprs();

  ExprId bytes(const ByteSet& set);
  ExprId concat(ExprId first, ExprId second);
  ExprId alt(std::vector<ExprId> members) { return alt(static_cast<std::vector<ExprId>&&>(members), 0); }
  ExprId repeat(ExprId body, uint32_t min, uint32_t max);  // max may be UNBOUNDED; min <= max

  bool nullable(ExprId e) const { return nodes_[e].nullable; }

  // What may follow after `byte` (Brzozowski 1964): the language { w : byte w in L(e) }.
  ExprId derive(ExprId e, uint8_t byte);

  // Bytes that no set of this arena tells apart get the same class number. Derivatives make no finer sets.
  std::vector<uint8_t> byte_classes() const;

  // An arena with no more than what `roots` consist of; `roots` become numbers in it.
  Exprs copy_of(std::span<ExprId> roots) const;

  size_t size() const { return nodes_.size(); }

  // Nodes and members of alternations: what grows while derivatives are taken.
  size_t weight() const { return nodes_.size() + members_.size() / 4; }

 private:
  enum class Kind : uint8_t { Nothing, Empty, Bytes, Concat, Alt, Repeat };

  // Bytes: a = set. Concat: a, b; a is no Concat. Alt: a = first of b members in members_. Repeat: a = body, b..c times.
  struct Node {
    Kind kind;
    bool nullable;
    uint32_t a, b, c;
  };

  // One member of an alternation, seen as a head and what follows it.
  struct Term {
    ExprId head, tail;
    bool operator==(const Term&) const = default;
  };

  ExprId add(const Node& node);
  ExprId alt(std::vector<ExprId> members, int depth);
  void flatten(ExprId e, std::vector<Term>& terms, bool& with_empty) const;
  void factor_heads(std::vector<Term>& terms, int depth);
  void merge_repeats(std::vector<Term>& terms);
  void merge_bytes(std::vector<Term>& terms);
  ExprId intern_alt(const std::vector<ExprId>& members);
  std::span<const ExprId> members(const Node& node) const { return {members_.data() + node.a, node.b}; }
  uint32_t hash(const Node& node) const;
  bool equal(const Node& x, const Node& y) const;

  ExprId derive_new(ExprId e, uint8_t byte);

  std::vector<Node> nodes_;
  std::vector<ByteSet> sets_;
  std::vector<ExprId> members_;
  InternTable node_table_, set_table_;

  // Results of the derivation under way: expressions share parts.
  std::vector<ExprId> memo_;
  std::vector<uint32_t> memo_round_;
  uint32_t round_ = 0;
};

}  // namespace aici::regex
