// Stacks of a parser of lines (%indentation): a stack of the parser within, the columns at which the open indentations
// begin, and the number of open brackets.
//
// A newline between brackets changes nothing. Elsewhere it is the terminal `newline`, then `indent` or as many `dedent`
// as its column says. At the start of the input stands a newline that the grammar need not take.
#pragma once
#include "aici/grammar/column.hpp"
#include "aici/grammar/stacks.hpp"
#include "aici/regex/intern.hpp"

namespace aici::grammar {

class IndentedStacks : public Stacks {
 public:
  IndentedStacks(const Grammar& grammar, std::unique_ptr<Stacks> parser, TerminalSets& sets);

  void compact(std::span<StackId> live) override;
  bool is_crowded() const override { return parser_->is_crowded() || Stacks::is_crowded(); }

 private:
  static constexpr StackId REFUSED = 1;  // after a newline whose column does not fit: nothing can follow

  struct Place {
    StackId parser;
    uint32_t level;  // in levels_
    uint32_t depth;  // open brackets
    bool operator==(const Place&) const = default;
  };
  struct Level {
    uint32_t outer;
    Column column;
    bool operator==(const Level&) const = default;
  };

  void find_viable(StackId stack) override;
  StackId shift_new(StackId stack, SymbolId lexeme) override;
  bool shift_newline(Place& at, Column column);
  bool shift_alone(Place& at, SymbolId terminal);
  bool is_end(Place at);
  SetId lexemes_after(const Place& at);
  StackId stack_of(const Place& place);
  void reset();
  uint32_t level_of(Level level);

  const Indentation rules_;
  std::unique_ptr<Stacks> parser_;
  SetId nothing_;
  std::vector<Place> places_;  // (stacks,)
  regex::InternTable table_of_places_;
  std::vector<Level> levels_;  // [0]: no indentation
  regex::InternTable table_of_levels_;
};

}  // namespace aici::grammar
