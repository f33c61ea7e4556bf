#include "aici/grammar/tables.hpp"

#include <algorithm>
#include <memory>

#include "aici/sort.hpp"
#include "automaton.hpp"
#include "conflicts.hpp"
#include "empty_free.hpp"
#include "sure_lookaheads.hpp"

namespace aici::grammar {
namespace {

using ActionKind = Action::Kind;

// Fills the rows of a table from the states of an automaton.
class TableFiller {
 public:
  explicit TableFiller(TableParts parts) : parts_(parts), num_words_(parts.facts.num_words()) {}

  LrTable fill() {
    table_.num_states = static_cast<uint32_t>(parts_.automaton.num_states());
    table_.num_terminals = static_cast<uint32_t>(parts_.grammar.terminals.size());
    table_.num_nonterminals = static_cast<uint32_t>(parts_.grammar.nonterminals.size());
    table_.actions.resize(table_.num_states * table_.num_terminals);
    table_.gotos.assign(table_.num_states * table_.num_nonterminals, LrTable::NO_STATE);
    for (StateId state = 0; state < table_.num_states; state++) {
      add_edges(state);
      find_reductions(state);
      add_reductions(state);
    }
    table_.num_settled = num_settled_;
    return static_cast<LrTable&&>(table_);
  }

  const std::vector<Conflict>& conflicts() const { return conflicts_; }

  // Was a shift given up for a reduction that can be ruled out for some texts that lead to the state? Or is there a
  // conflict that can be ruled out in the same way? Then the canonical tables can be better than these tables.
  bool may_be_better() {
    if (num_settled_ == 0) return false;
    if (!conflicts_.empty()) return true;
    if (given_up_.empty()) return false;
    SureLookaheads sure(parts_.facts, parts_.items, parts_.automaton);
    for (const GivenUp& one : given_up_)
      if (!has(sure.of(one.state, one.production), one.terminal)) return true;
    return false;
  }

 private:
  struct Reduction {
    ProductionId production;
    const SetWord* set;
  };

  Action& action(StateId state, SymbolId terminal) { return table_.actions[state * table_.num_terminals + terminal]; }

  void add_edges(StateId state) {
    for (const Automaton::Edge& edge : parts_.automaton.edges(state)) {
      auto to = static_cast<LrState>(edge.to);
      if (edge.symbol < table_.num_terminals) {
        action(state, edge.symbol) = {ActionKind::Shift, to};
      } else {
        table_.gotos[state * table_.num_nonterminals + (edge.symbol - table_.num_terminals)] = to;
      }
    }
  }

  void find_reductions(StateId state) {
    reductions_.clear();
    std::span<const ItemId> kernel = parts_.automaton.kernel(state);
    for (size_t i = 0; i < kernel.size(); i++)
      if (parts_.items.next(kernel[i]) == Items::AT_END)
        reductions_.push_back({parts_.items.production(kernel[i]), parts_.automaton.lookahead(state, i)});
    Automaton::Closure closure = parts_.automaton.closure(state);
    for (SymbolId head : closure.nonterminals)
      for (ProductionId p : parts_.facts.productions_of(head))
        if (parts_.grammar.productions[p].body.empty()) reductions_.push_back({p, closure.follow(head)});
    sort(reductions_, [](const Reduction& x, const Reduction& y) { return x.production < y.production; });
  }

  void add_reductions(StateId state) {
    std::vector<SetWord> contested(num_words_);
    for (const Reduction& reduction : reductions_)
      for (size_t word = 0; word < num_words_; word++)
        for (SetWord bits = reduction.set[word]; bits; bits &= bits - 1) {
          auto terminal = static_cast<SymbolId>(word * 64 + static_cast<size_t>(__builtin_ctzll(bits)));
          Action& known = action(state, terminal);
          if (known.kind == ActionKind::Error) {
            known = reduce(reduction.production);
          } else {
            add(contested.data(), terminal);
          }
        }
    for (SymbolId terminal = 0; terminal < table_.num_terminals; terminal++)
      if (has(contested.data(), terminal)) settle(state, terminal);
  }

  static Action reduce(ProductionId p) {
    return p == 0 ? Action{ActionKind::Accept, 0} : Action{ActionKind::Reduce, static_cast<uint16_t>(p)};
  }

  // As in yacc and Bison: reductions in the order of the file, each against the shift, if the shift is still left.
  void settle(StateId state, SymbolId terminal) {
    Action shift{};
    for (const Automaton::Edge& edge : parts_.automaton.edges(state))
      if (edge.symbol == terminal) shift = {ActionKind::Shift, static_cast<uint16_t>(edge.to)};
    bool refused = false;
    std::vector<ProductionId> left;
    for (const Reduction& reduction : reductions_) {
      if (!has(reduction.set, terminal)) continue;
      Precedence of_rule = parts_.grammar.productions[reduction.production].precedence;
      Precedence of_terminal = parts_.grammar.terminals[terminal].precedence;
      if (shift.kind == ActionKind::Shift && of_rule.level && of_terminal.level) {
        num_settled_++;
        bool same = of_rule.level == of_terminal.level;
        if (same && of_rule.assoc == Assoc::None) {  // %precedence: a conflict within the level is left
          num_settled_--;
          left.push_back(reduction.production);
          continue;
        }
        if (of_rule.level < of_terminal.level || (same && of_rule.assoc == Assoc::Right)) continue;
        shift = {};
        given_up_.push_back({state, terminal, reduction.production});
        if (same && of_rule.assoc == Assoc::NonAssoc) {
          refused = true;
          continue;
        }
      }
      left.push_back(reduction.production);
    }
    bool shifts = shift.kind == ActionKind::Shift;
    action(state, terminal) = refused ? Action{} : shifts ? shift : reduce(left[0]);
    if (!refused && left.size() + shifts > 1)
      conflicts_.push_back({state, terminal, shifts, static_cast<std::vector<ProductionId>&&>(left)});
  }

  struct GivenUp {
    StateId state;
    SymbolId terminal;
    ProductionId production;
  };

  TableParts parts_;
  size_t num_words_;
  LrTable table_;
  uint32_t num_settled_ = 0;
  std::vector<GivenUp> given_up_;  // shifts
  std::vector<Reduction> reductions_;  // of the state at work, in the order of the file
  std::vector<Conflict> conflicts_;
};

}  // namespace

std::optional<LrTable> build_canonical_table(const Grammar& grammar, size_t max_states) {
  SymbolFacts facts(grammar);
  Items items(grammar, facts);
  Automaton automaton(grammar, facts, items, true);
  if (!automaton.build(std::min(max_states, MAX_ACTIONS / grammar.num_symbols()))) return std::nullopt;
  return TableFiller({grammar, facts, items, automaton}).fill();
}

namespace {

class TableBuilder {
 public:
  TableBuilder(const Grammar& grammar, std::vector<Problem>& problems)
      : grammar_(grammar), problems_(problems), facts_(grammar), items_(grammar, facts_) {}

  // The automaton is minimal; with precedence, canonical if that may be better.
  LrTable build() {
    size_t max_states = std::min(MAX_LR_STATES, MAX_ACTIONS / grammar_.num_symbols());
    automaton_ = std::make_unique<Automaton>(grammar_, facts_, items_, false);
    if (grammar_.productions.size() > UINT16_MAX || !automaton_->build(max_states)) {
      Text message("the grammar is too large: its tables have more than ");
      add_error(problems_, {}, message << max_states << " states");
      return {};
    }
    TableFiller filler(parts());
    LrTable table = filler.fill();
    conflicts_ = filler.conflicts();
    if (!filler.may_be_better()) return table;
    auto canonical = std::make_unique<Automaton>(grammar_, facts_, items_, true);
    if (!canonical->build(max_states)) {
      add_warning(problems_, {}, "precedence gives up shifts that canonical tables would keep, but those would be too large");
      return table;
    }
    automaton_ = static_cast<std::unique_ptr<Automaton>&&>(canonical);
    TableFiller better(parts());
    table = better.fill();
    conflicts_ = better.conflicts();
    return table;
  }

  // Of the last table.
  const std::vector<Conflict>& conflicts() const { return conflicts_; }
  void report(Outcome outcome) { report_conflicts(parts(), conflicts_, outcome, problems_); }

 private:
  TableParts parts() { return {grammar_, facts_, items_, *automaton_}; }

  const Grammar& grammar_;
  std::vector<Problem>& problems_;
  SymbolFacts facts_;
  Items items_;
  std::unique_ptr<Automaton> automaton_;
  std::vector<Conflict> conflicts_;
};

// yacc shifts; which of two reductions is meant, no rule of thumb says.
bool can_shift_all(const std::vector<Conflict>& conflicts) {
  return std::all_of(conflicts.begin(), conflicts.end(), [](const Conflict& c) { return c.shift && c.reductions.size() == 1; });
}

LrTable build_general_table(Grammar& grammar, std::vector<Problem>& problems) {
  bool empty_sentence = remove_empty_productions(grammar);
  TableBuilder builder(grammar, problems);
  LrTable table = builder.build();
  if (table.actions.empty()) return table;
  table.general = true;
  table.num_followed = static_cast<uint32_t>(builder.conflicts().size());
  if (empty_sentence) table.actions[END] = {ActionKind::Accept, 0};
  for (const Conflict& conflict : builder.conflicts())
    for (ProductionId p : conflict.reductions)
      if (conflict.shift || p != conflict.reductions[0])
        table.extra.push_back({static_cast<LrState>(conflict.state), conflict.terminal, p});
  return table;
}

}  // namespace

LrTable build_table(Grammar& grammar, std::vector<Problem>& problems, bool explain) {
  LrTable table;
  if (grammar.general) {
    Grammar written = grammar;
    table = build_general_table(grammar, problems);
    if (table.num_followed || grammar.ambiguous || has_errors(problems)) return table;
    grammar = static_cast<Grammar&&>(written);
  }
  {
    TableBuilder builder(grammar, problems);
    table = builder.build();
    bool shift = !grammar.general && can_shift_all(builder.conflicts());
    auto num_conflicts = static_cast<uint32_t>(builder.conflicts().size());
    if (explain && !grammar.general && !(shift && num_conflicts <= grammar.expected_conflicts))
      builder.report(shift ? Outcome::Shifted : Outcome::Followed);
    table.num_shifted = num_conflicts;
    if (shift || (num_conflicts == 0 && !grammar.ambiguous) || has_errors(problems)) return table;
  }
  return build_general_table(grammar, problems);
}

}  // namespace aici::grammar
