// The stacks of the general parser: all ways to read the text so far, as a graph (Tomita 1985). A node is an LR state on
// top of its parents, each of which is a way to read the text below. A stack is a set of nodes, at most one per state.
//
// Nodes never change: a node with more parents is another node. This needs a grammar without empty productions and
// without rules that derive themselves: then parents are always older than children, and the graph has no cycles.
#pragma once
#include "aici/grammar/stacks.hpp"
#include "aici/regex/intern.hpp"

namespace aici::grammar {

class GeneralStacks : public Stacks {
 public:
  GeneralStacks(const Grammar& grammar, LrTable table, TerminalSets& sets);

  void compact(std::span<StackId> live) override;
  bool is_crowded() const override { return nodes_.size() > node_crowd_ || Stacks::is_crowded(); }

 private:
  using NodeId = uint32_t;
  static constexpr size_t MAX_PARENTS = 1 << 21;
  struct Range {
    uint32_t first, num;
  };
  struct Node {
    LrState state;
    bool can_end;
    SetId viable;
    Range parents;  // in parents_, in order
  };

  void find_viable(StackId stack) override;
  StackId shift_new(StackId stack, SymbolId lexeme) override;
  void shift_terminal(StackId stack, SymbolId terminal, std::vector<NodeId>& tops);
  bool shift_alone(NodeId node, SymbolId terminal, std::vector<NodeId>& tops);
  bool is_contested(LrState state, SymbolId terminal) const;

  NodeId push(LrState state, std::span<const NodeId> parents);
  NodeId joined(LrState state, std::span<const NodeId> nodes);
  StackId stack_of(std::vector<NodeId>& tops);
  void reduce(NodeId node, const Reduction& reduction, std::vector<NodeId>& after);
  void find_node_viable(NodeId node);
  void set_node_viable(NodeId node);
  std::vector<NodeId> nodes_before(StackId stack, SymbolId terminal);

  std::span<const NodeId> tops(StackId stack) const { return {top_nodes_.data() + tops_[stack].first, tops_[stack].num}; }
  std::span<const NodeId> parents(NodeId node) const {
    return {parents_.data() + nodes_[node].parents.first, nodes_[node].parents.num};
  }

  std::vector<Node> nodes_;
  std::vector<NodeId> parents_;
  regex::InternTable node_table_;
  std::vector<Range> tops_;  // (stacks,) in top_nodes_
  std::vector<NodeId> top_nodes_;
  regex::InternTable stack_table_;
  size_t node_crowd_ = MIN_CROWD;

  // Scratch.
  std::vector<NodeId> level_, below_, after_;
  std::vector<uint32_t> seen_in_;  // (nodes,) as far as needed: the shift that last visited the node
  uint32_t last_shift_ = 0;
};

}  // namespace aici::grammar
