// The stacks of the parser, numbered: equal stacks have equal numbers, so facts about a stack hold wherever the text
// returns to the stack. LrStacks and GeneralStacks keep them; IndentedStacks adds the indentation.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "aici/grammar/lr_table.hpp"
#include "aici/grammar/terminal_sets.hpp"

namespace aici::grammar {

using StackId = uint32_t;

class Stacks {
 public:
  static constexpr StackId EMPTY = 0;  // holds only the start state
  static constexpr size_t MAX_STACKS = 1 << 18;

  // The stacks that the table needs. The owner of the TerminalSets must keep them at their address.
  static std::unique_ptr<Stacks> make(const Grammar& grammar, LrTable table, TerminalSets& sets);
  virtual ~Stacks() = default;

  // The terminals that can be shifted, after the required reductions. END stands for SKIP and is always included.
  SetId viable(StackId stack) {
    if (facts_[stack].viable == TerminalSets::UNKNOWN) find_viable(stack);
    return facts_[stack].viable;
  }
  // May the input end here?
  bool can_end(StackId stack) { return viable(stack) != TerminalSets::UNKNOWN && facts_[stack].can_end; }
  // `lexeme` must be viable. Several terminals at once, which only the general parser takes, become all ways to go on.
  StackId shift(StackId stack, SymbolId lexeme) {
    Shifted& memo = shifted_[(stack * 31 + lexeme) % SHIFT_MEMO];
    if (memo.from == stack && memo.lexeme == lexeme) return memo.to;
    StackId to = shift_new(stack, lexeme);
    if (!error_) memo = {stack, lexeme, to};
    return to;
  }

  // Forget all stacks but EMPTY and `live`, which get new numbers. Worthwhile if is_crowded().
  virtual void compact(std::span<StackId> live) = 0;
  virtual bool is_crowded() const { return facts_.size() > crowd_; }

  // Set once the stacks have exceeded their limits; later results are safe to use but meaningless.
  const char* error() const { return error_; }
  size_t size() const { return facts_.size(); }

 protected:
  static constexpr size_t MIN_CROWD = 1 << 15;
  static constexpr const char* TOO_MANY = "the text is nested too deeply for the parser: its stacks have outgrown their bounds";

  struct Fact {
    SetId viable = TerminalSets::UNKNOWN;
    bool can_end = false;
  };
  struct Reduction {
    SymbolId head;
    uint32_t length;
    SetId lookaheads;  // END means the end of the input
  };
  // The actions of an LR state for all terminals at once.
  struct Row {
    SetId shifts;
    uint32_t first_reduction, num_reductions;
    bool accepts;
  };

  Stacks(const Grammar& grammar, LrTable table, TerminalSets& sets);
  explicit Stacks(TerminalSets& sets) : sets_(&sets), shifted_(SHIFT_MEMO) {}

  virtual void find_viable(StackId stack) = 0;
  virtual StackId shift_new(StackId stack, SymbolId lexeme) = 0;

  std::span<const Reduction> reductions(const Row& row) const { return {reductions_.data() + row.first_reduction, row.num_reductions}; }
  // A stack about which nothing is known yet.
  StackId add_stack() {
    facts_.push_back({});
    return static_cast<StackId>(facts_.size() - 1);
  }
  // After the stacks were renumbered.
  void forget_shifts();

  LrTable table_;
  TerminalSets* sets_;
  std::vector<std::pair<SymbolId, uint32_t>> productions_;  // head, length of the body
  std::vector<Row> rows_;                                   // (LR states,)
  std::vector<Fact> facts_;                                 // (stacks,)
  const char* error_ = nullptr;

 private:
  static constexpr size_t SHIFT_MEMO = 1 << 12;
  struct Shifted {
    StackId from = UINT32_MAX;
    SymbolId lexeme = 0;
    StackId to = 0;
  };

  std::vector<Reduction> reductions_;
  std::vector<Shifted> shifted_;  // the newest shift for each hash
  size_t crowd_ = MIN_CROWD;
};

}  // namespace aici::grammar
