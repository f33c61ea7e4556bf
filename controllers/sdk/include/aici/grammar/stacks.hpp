// The stacks of the LR parser as one tree: a stack is a node, and the rest below its top is the node's parent. Equal
// stacks are the same node, so facts about a stack hold wherever the text returns to the stack.
#pragma once
#include <cstdint>
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
  static constexpr size_t MAX_STACKS = 1 << 19;  // 16 bytes each

  // The owner of the TerminalSets must keep them at their address.
  Stacks(const Grammar& grammar, LrTable table, TerminalSets& sets);

  // The terminals that can be shifted, after the required reductions. END stands for SKIP and is always included.
  SetId viable(StackId stack) {
    if (viable_[stack] == TerminalSets::UNKNOWN) find_viable(stack);
    return viable_[stack];
  }
  // May the input end here?
  bool can_end(StackId stack) { return viable(stack) != TerminalSets::UNKNOWN && nodes_[stack].can_end; }
  // `terminal` must be viable.
  StackId shift(StackId stack, SymbolId terminal);

  // Forget all stacks but EMPTY and `live`, which get new numbers. Worthwhile if is_crowded().
  void compact(std::span<StackId> live);
  bool is_crowded() const { return nodes_.size() > crowd_; }

  // Set once the stacks have exceeded their limits; later results are safe to use but meaningless.
  const char* error() const { return error_; }
  size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    StackId parent;
    LrState state;
    bool can_end;
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

  StackId push(StackId parent, LrState state);
  StackId reduce(StackId stack, SymbolId head, uint32_t length);
  void find_viable(StackId stack);
  void set_viable(StackId stack, const Row& row);
  static uint32_t hash(StackId parent, LrState state);

  LrTable table_;
  TerminalSets* sets_;
  std::vector<std::pair<SymbolId, uint32_t>> productions_;  // head, length of the body
  std::vector<Row> rows_;                                   // (LR states,)
  std::vector<Reduction> reductions_;
  std::vector<Node> nodes_;
  std::vector<SetId> viable_;  // (nodes,)
  regex::InternTable node_table_;
  struct Shifted {
    StackId from = UINT32_MAX;
    SymbolId terminal = 0;
    StackId to = 0;
  };
  std::vector<Shifted> shifted_;  // the newest shift for each hash
  size_t crowd_;
  const char* error_ = nullptr;
};

}  // namespace aici::grammar
