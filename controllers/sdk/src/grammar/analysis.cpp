#include "analysis.hpp"

#include "symbols.hpp"

namespace aici::grammar {
namespace {

std::vector<bool> reachable_symbols(const Grammar& grammar, const SymbolFacts& facts) {
  std::vector<bool> reached(grammar.num_symbols(), false);
  std::vector<SymbolId> stack{grammar.productions[0].head};
  reached[stack[0]] = true;
  while (!stack.empty()) {
    SymbolId head = stack.back();
    stack.pop_back();
    for (ProductionId p : facts.productions_of(head))
      for (SymbolId symbol : grammar.productions[p].body) {
        if (reached[symbol]) continue;
        reached[symbol] = true;
        if (!grammar.is_terminal(symbol)) stack.push_back(symbol);
      }
  }
  return reached;
}

}  // namespace

void check_rules(const Grammar& grammar, std::vector<Problem>& problems) {
  SymbolFacts facts(grammar);
  std::vector<bool> reached = reachable_symbols(grammar, facts);
  auto num_terminals = static_cast<SymbolId>(grammar.terminals.size());
  for (SymbolId symbol = num_terminals + 1; symbol < grammar.num_symbols(); symbol++) {
    const Nonterminal& rule = grammar.nonterminals[symbol - num_terminals];
    Text message("the rule ");
    if (facts.shortest_len(symbol) == SymbolFacts::NEVER) {
      add_error(problems, rule.place, message << rule.name << " can never end: every alternative needs a rule that never ends");
    } else if (!reached[symbol]) {
      add_warning(problems, rule.place, message << rule.name << " is never used: the start rule does not reach it");
    }
  }
  for (SymbolId symbol = 1; symbol < num_terminals; symbol++) {
    const Terminal& terminal = grammar.terminals[symbol];
    if (reached[symbol] || terminal.skip || terminal.never) continue;
    Text message(terminal.name);
    add_warning(problems, terminal.place,
                message << " is used in no rule that the start rule reaches, and the lexer still prefers it to others");
  }
}

}  // namespace aici::grammar
