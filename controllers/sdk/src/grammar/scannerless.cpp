#include "aici/grammar/scannerless.hpp"

#include <algorithm>
#include <utility>

#include "aici/grammar/reader.hpp"
#include "aici/host.hpp"
#include "aici/json.hpp"
#include "components.hpp"
#include "terminals.hpp"

namespace aici::grammar {
namespace {

using regex::EMPTY, regex::ExprId, regex::Exprs, regex::NOTHING, regex::UNBOUNDED;

// Rules of expressions do not match the empty string and do not begin with themselves. So each rule of the grammar is
// built without its empty text, and rules that begin with each other are solved as equations.
class Builder {
 public:
  Builder(const Grammar& grammar, Exprs& exprs, regex::Encoding encoding = regex::Encoding::Utf8)
      : grammar_(grammar), exprs_(exprs), encoding_(encoding), num_terminals_(static_cast<SymbolId>(grammar.terminals.size())) {}

  ExprId build() {
    some_.assign(grammar_.num_symbols(), NOTHING);
    nullable_.assign(grammar_.num_symbols(), false);
    for (SymbolId t = 1; t < num_terminals_; t++) {
      ExprId expr = terminal_expr(grammar_.terminals[t], exprs_, encoding_);
      nullable_[t] = exprs_.nullable(expr);
      some_[t] = nullable_[t] ? without_empty(expr) : expr;
    }
    find_nullable();
    productions_.resize(grammar_.nonterminals.size());
    for (const Production& production : grammar_.productions) productions_[production.head - num_terminals_].push_back(&production);
    for (const std::vector<uint32_t>& rules : components(references(false))) build_component(rules);
    return whole(grammar_.productions[0].head);
  }

 private:
  // A first symbol that is not empty, and the rest.
  struct Way {
    SymbolId first;
    ExprId rest;
  };

  ExprId without_empty(ExprId e) {
    std::optional<Exprs::Counted> counted = exprs_.as_counted(e);
    if (counted && counted->tail == EMPTY && !exprs_.nullable(counted->body)) return exprs_.repeat(counted->body, 1, counted->max);
    return exprs_.both(e, exprs_.complement(EMPTY));
  }

  ExprId whole(SymbolId symbol) { return nullable_[symbol] ? exprs_.alt({EMPTY, some_[symbol]}) : some_[symbol]; }

  void find_nullable() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Production& production : grammar_.productions) {
        if (nullable_[production.head]) continue;
        bool all = std::ranges::all_of(production.body, [this](SymbolId symbol) { return nullable_[symbol]; });
        if (all) nullable_[production.head] = changed = true;
      }
    }
  }

  // The rules that each rule refers to: anywhere, or at its beginning.
  std::vector<std::vector<uint32_t>> references(bool at_beginning) {
    std::vector<std::vector<uint32_t>> out(grammar_.nonterminals.size());
    for (const Production& production : grammar_.productions)
      for (SymbolId symbol : production.body) {
        if (!grammar_.is_terminal(symbol)) out[production.head - num_terminals_].push_back(symbol - num_terminals_);
        if (at_beginning && !nullable_[symbol]) break;
      }
    return out;
  }

  std::vector<Way> ways(uint32_t rule) {
    std::vector<Way> out;
    for (const Production* production : productions_[rule]) {
      const std::vector<SymbolId>& body = production->body;
      size_t last = 0;  // the last symbol that may come first
      while (last + 1 < body.size() && nullable_[body[last]]) last++;
      ExprId rest = EMPTY;
      for (size_t i = body.size(); i-- > 0;) {
        if (i <= last) out.push_back({body[i], rest});
        rest = exprs_.concat(whole(body[i]), rest);
      }
    }
    return out;
  }

  // Rules that refer to each other; what else they refer to is built.
  void build_component(const std::vector<uint32_t>& rules) {
    if (begins_.empty()) begins_ = references(true);
    if (rules.size() == 1 && !refers_to_itself(rules[0])) {
      std::vector<ExprId> all;
      for (Way way : ways(rules[0])) all.push_back(exprs_.concat(some_[way.first], way.rest));
      some_[rules[0] + num_terminals_] = exprs_.alt(all);
      return;
    }
    for (uint32_t rule : rules) some_[rule + num_terminals_] = exprs_.rule();
    std::vector<std::vector<uint32_t>> inside(begins_.size());
    for (uint32_t rule : rules)
      for (uint32_t other : begins_[rule])
        if (std::ranges::find(rules, other) != rules.end()) inside[rule].push_back(other);
    for (const std::vector<uint32_t>& equations : components(inside, rules)) solve(equations);
  }

  bool refers_to_itself(uint32_t rule) const {
    for (const Production* production : productions_[rule])
      if (std::ranges::find(production->body, rule + num_terminals_) != production->body.end()) return true;
    return false;
  }

  // A_i = sum over j of A_j R_ij + B_i. By Arden's lemma A = A R + B is A = B R*, so one rule after the other is
  // replaced in the equations of all others.
  void solve(const std::vector<uint32_t>& rules) {
    size_t n = rules.size();
    std::vector<ExprId> b(n, NOTHING), r(n * n, NOTHING);
    for (size_t i = 0; i < n; i++)
      for (Way way : ways(rules[i])) {
        auto at = std::ranges::find(rules, way.first - num_terminals_);
        bool is_begun = !grammar_.is_terminal(way.first) && at != rules.end();
        ExprId& part = is_begun ? r[i * n + static_cast<size_t>(at - rules.begin())] : b[i];
        part = exprs_.alt({part, is_begun ? way.rest : exprs_.concat(some_[way.first], way.rest)});
      }
    for (size_t p = 0; p < n; p++) {
      ExprId star = exprs_.repeat(std::exchange(r[p * n + p], NOTHING), 0, UNBOUNDED);
      b[p] = exprs_.concat(b[p], star);
      for (size_t j = 0; j < n; j++) r[p * n + j] = exprs_.concat(r[p * n + j], star);
      for (size_t i = 0; i < n; i++) {
        ExprId through = std::exchange(r[i * n + p], NOTHING);
        if (through == NOTHING) continue;
        b[i] = exprs_.alt({b[i], exprs_.concat(b[p], through)});
        for (size_t j = 0; j < n; j++)
          if (r[p * n + j] != NOTHING) r[i * n + j] = exprs_.alt({r[i * n + j], exprs_.concat(r[p * n + j], through)});
      }
    }
    for (size_t i = 0; i < n; i++) exprs_.define(some_[rules[i] + num_terminals_], b[i]);
  }

  const Grammar& grammar_;
  Exprs& exprs_;
  regex::Encoding encoding_;
  SymbolId num_terminals_;
  std::vector<bool> nullable_;  // (symbols,)
  std::vector<ExprId> some_;    // (symbols,) the texts of the symbol that are not empty
  std::vector<std::vector<const Production*>> productions_;  // (nonterminals,)
  std::vector<std::vector<uint32_t>> begins_;
};

Text char_range(uint8_t first, uint8_t last) {
  Text out;
  auto put = [&](uint8_t c) {
    constexpr char DIGITS[] = "0123456789abcdef";
    if (c == '\n') out << "\\n";
    else if (c < 0x20 || c == 0x7F) out << "\\x" << DIGITS[c >> 4] << DIGITS[c & 15];
    else out << static_cast<char>(c);
  };
  put(first);
  if (last > first) out << (last > first + 1 ? "-" : ""), put(last);
  return out;
}

}  // namespace

std::optional<regex::Dfa> build_scannerless(const Grammar& grammar, std::vector<Problem>& problems) {
  Exprs exprs;
  ExprId root = exprs.settle(Builder(grammar, exprs).build());
  Place start = grammar.productions[0].place;
  if (exprs.error()) {
    add_error(problems, start, exprs.error());
  } else if (root == NOTHING) {
    add_error(problems, start, "no text is a sentence of this grammar");
  } else if (!regex::Dfa::fits(exprs, root)) {
    add_error(problems, start, "the grammar is too large: the automaton would outgrow its bounds");
  } else {
    return regex::Dfa(static_cast<Exprs&&>(exprs), root);
  }
  return std::nullopt;
}

regex::ExprId read_string_grammar(std::string_view text, regex::Exprs& exprs, Text& why) {
  std::vector<Problem> problems;
  std::optional<Grammar> grammar = read_grammar(text, problems);
  for (const Problem& problem : problems)
    if (problem.severity == Severity::Error && why.empty()) why << describe(problem);
  if (!why.empty() || !grammar) return NOTHING;
  if (!grammar->scannerless) return why << "a grammar in a string has no lexer: %option scannerless", NOTHING;
  for (const Terminal& terminal : grammar->terminals)
    if (terminal.kind == Terminal::Kind::Json) return why << "a grammar in a string holds no %json", NOTHING;
  ExprId expr = Builder(*grammar, exprs, regex::Encoding::JsonString).build();
  if (expr == NOTHING) why << "no text is a sentence of this grammar";
  return expr;
}

Text scannerless_answer(regex::Dfa& dfa, std::string_view input) {
  regex::StateId state = dfa.start();
  size_t at = 0;
  for (; at < input.size(); at++) {
    regex::StateId next = dfa.next(state, static_cast<uint8_t>(input[at]));
    if (next == regex::Dfa::DEAD) break;
    state = next;
    if (dfa.is_crowded()) dfa.compact({&state, 1});
  }
  Place place{1, 1};
  for (char c : input.substr(0, at)) {
    if (c == '\n') place = {place.line + 1, 1};
    else place.column += (c & 0xC0) != 0x80;
  }
  bool complete = dfa.accepts(state);
  Text out("{\"accepted\":");
  out << (complete && at == input.size() ? "true" : "false") << ",\"at\":" << at << ",\"line\":" << place.line
      << ",\"column\":" << place.column << ",\"expected\":[";
  std::string_view comma;
  for (int c = 0; c < 256; c++) {
    auto allowed = [&](int byte) { return byte < 256 && dfa.next(state, static_cast<uint8_t>(byte)) != regex::Dfa::DEAD; };
    if (!allowed(c)) continue;
    int last = c;
    while (last < 255 && (last >= 0x80 || last + 1 < 0x80) && allowed(last + 1)) last++;
    if (c >= 0x80) last = 255;  // what may follow above ASCII is told in one word
    Text range = c < 0x80 ? char_range(static_cast<uint8_t>(c), static_cast<uint8_t>(last)) : Text("a character above ASCII");
    out << comma << json::quoted(range.view());
    comma = ",", c = last;
  }
  if (complete) out << comma << "\"end of input\"";
  if (const char* error = dfa.error()) {
    Text why("line ");
    why << place.line << ", column " << place.column << ": " << error;
    return Text("{\"problem\":") << json::quoted(why) << '}';
  }
  return out << "],\"complete\":" << (complete ? "true" : "false") << '}';
}

}  // namespace aici::grammar
