// Input: a program for a stack machine that builds an expression, and words. For each word, the derivatives of the
// expression must agree with the plain definition of its parts.
#include "aici/regex/expr.hpp"

#include <map>
#include <memory>
#include <tuple>

#include "walk.hpp"

using namespace aici;
using namespace aici::regex;

namespace {

constexpr size_t MAX_WORD = 7;

struct Tree {
  enum Kind { Bytes, Concat, Alt, Repeat, Both, Complement, Multiple } kind;
  std::shared_ptr<Tree> a, b;
  ByteSet set{};
  uint32_t min = 0, max = 0;
  size_t size = 1;
  ExprId expr = NOTHING;
};
using Part = std::shared_ptr<Tree>;

// Does `tree` match word[from, to)? By definition, with a cache.
class Matcher {
 public:
  explicit Matcher(std::string_view word) : word_(word) {}

  bool matches(const Part& tree, size_t from, size_t to) {
    auto key = std::make_tuple(tree.get(), from, to, 0u, 0u);
    auto known = memo_.find(key);
    if (known != memo_.end()) return known->second;
    return memo_[key] = decide(tree, from, to);
  }

 private:
  bool decide(const Part& tree, size_t from, size_t to) {
    switch (tree->kind) {
      case Tree::Bytes:
        return to - from == 1 && tree->set.has(static_cast<uint8_t>(word_[from]));
      case Tree::Concat:
        for (size_t cut = from; cut <= to; cut++)
          if (matches(tree->a, from, cut) && matches(tree->b, cut, to)) return true;
        return false;
      case Tree::Alt:
        return matches(tree->a, from, to) || matches(tree->b, from, to);
      case Tree::Both:
        return matches(tree->a, from, to) && matches(tree->b, from, to);
      case Tree::Complement:
        return !matches(tree->a, from, to);
      case Tree::Repeat:
        return repeats(tree, from, to, tree->min, tree->max);
      case Tree::Multiple:
        break;
    }
    uint64_t value = 0;
    for (size_t i = from; i < to; i++) {
      if (word_[i] < '0' || word_[i] > '9') return false;
      value = value * 10 + static_cast<uint64_t>(word_[i] - '0');
    }
    return to > from && value % tree->min == 0;
  }

  // An iteration without a byte only helps to reach the minimum, and then all remaining iterations can do the same.
  bool repeats(const Part& tree, size_t from, size_t to, uint32_t min, uint32_t max) {
    if (min > to - from + 1 && matches(tree->a, from, from)) min = static_cast<uint32_t>(to - from + 1);
    if (min == 0 && from == to) return true;
    if (max == 0) return from == to;
    auto key = std::make_tuple(tree.get(), from, to, min + 1, max);
    auto known = memo_.find(key);
    if (known != memo_.end()) return known->second;
    bool found = min > 0 && matches(tree->a, from, from) && repeats(tree, from, to, min - 1, max == UNBOUNDED ? max : max - 1);
    for (size_t cut = from + 1; !found && cut <= to; cut++)
      found = matches(tree->a, from, cut) && repeats(tree, cut, to, min ? min - 1 : 0, max == UNBOUNDED ? max : max - 1);
    return memo_[key] = found;
  }

  std::string_view word_;
  std::map<std::tuple<Tree*, size_t, size_t, uint32_t, uint32_t>, bool> memo_;
};

class Machine {
 public:
  explicit Machine(native::Input& input) : input_(input) {}

  Part run(Exprs& exprs) {
    for (int steps = 0; steps < 24 && !input_.empty(); steps++) {
      uint8_t op = input_.byte();
      if (op == 0) break;
      step(exprs, op);
    }
    while (stack_.size() > 1) step(exprs, 6);
    return stack_.empty() ? nullptr : stack_.back();
  }

 private:
  void step(Exprs& exprs, uint8_t op) {
    auto made = std::make_shared<Tree>();
    if (stack_.size() >= 2 && op % 8 >= 4 && op % 8 <= 6) {
      made->b = pop(), made->a = pop();
      made->kind = op % 8 == 4 ? Tree::Both : op % 8 == 5 ? Tree::Alt : Tree::Concat;
      made->expr = made->kind == Tree::Both  ? exprs.both(made->a->expr, made->b->expr)
                   : made->kind == Tree::Alt ? exprs.alt({made->a->expr, made->b->expr})
                                             : exprs.concat(made->a->expr, made->b->expr);
    } else if (!stack_.empty() && op % 8 == 3) {
      made->a = pop();
      made->kind = Tree::Repeat;
      made->min = input_.byte() % 5;
      uint8_t more = input_.byte();
      made->max = more % 6 == 5 ? UNBOUNDED : made->min + more % 6;
      made->expr = exprs.repeat(made->a->expr, made->min, made->max);
    } else if (!stack_.empty() && op % 8 == 2) {
      made->a = pop();
      made->kind = Tree::Complement;
      made->expr = exprs.complement(made->a->expr);
    } else if (op % 8 == 7) {
      made->kind = Tree::Multiple;
      made->min = 1 + input_.byte() % 31;
      made->expr = exprs.digits_multiple_of(made->min);
    } else {
      made->kind = Tree::Bytes;
      uint8_t low = input_.byte(), high = input_.byte();
      for (int byte = low; byte <= low + high % 4 && byte < 256; byte++) made->set.add(static_cast<uint8_t>(byte));
      made->expr = exprs.bytes(made->set);
    }
    stack_.push_back(made);
  }
  Part pop() {
    Part top = stack_.back();
    stack_.pop_back();
    return top;
  }

  native::Input& input_;
  std::vector<Part> stack_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  native::Input input(data, size);
  Exprs exprs;
  Part tree = Machine(input).run(exprs);
  if (!tree || exprs.error()) return 0;
  for (int words = 0; words < 4; words++) {
    std::string_view word = input.text();
    if (word.size() > MAX_WORD) word = word.substr(0, MAX_WORD);
    Matcher matcher(word);
    ExprId expr = tree->expr;
    for (size_t end = 0;; end++) {
      bool right = matcher.matches(tree, 0, end);
      native::require(exprs.nullable(expr) == right, "derivatives match what the definition matches");
      native::require(expr != NOTHING || !right, "what matches nothing is NOTHING");
      if (end == word.size()) break;
      ByteSet alike;
      ExprId next = exprs.derive(expr, static_cast<uint8_t>(word[end]), alike);
      if (exprs.error()) return 0;
      native::require(alike.has(static_cast<uint8_t>(word[end])), "a byte is alike itself");
      for (int byte = 0; byte < 256; byte += 7)
        if (alike.has(static_cast<uint8_t>(byte)))
          native::require(exprs.derive(expr, static_cast<uint8_t>(byte)) == next, "bytes that are alike have one derivative");
      if (exprs.error()) return 0;
      expr = next;
    }
  }
  return 0;
}
