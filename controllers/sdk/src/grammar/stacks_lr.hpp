// The stacks of the LR parser as one tree: a stack is a node, and the rest below its top is the node's parent.
#pragma once
#include "aici/grammar/stacks.hpp"
#include "aici/regex/intern.hpp"

namespace aici::grammar {

class LrStacks : public Stacks {
 public:
  LrStacks(const Grammar& grammar, LrTable table, TerminalSets& sets);

  void compact(std::span<StackId> live) override;

 private:
  struct Node {
    StackId parent;
    LrState state;
  };

  void find_viable(StackId stack) override;
  StackId shift_new(StackId stack, SymbolId terminal) override;

  StackId push(StackId parent, LrState state);
  StackId reduce(StackId stack, SymbolId head, uint32_t length);
  void set_viable(StackId stack, const Row& row);
  static uint32_t hash(StackId parent, LrState state);

  std::vector<Node> nodes_;  // (stacks,)
  regex::InternTable node_table_;
};

}  // namespace aici::grammar
