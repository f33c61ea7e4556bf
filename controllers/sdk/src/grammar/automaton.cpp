#include "automaton.hpp"

#include <algorithm>

#include "aici/sort.hpp"

namespace aici::grammar {

Items::Items(const Grammar& grammar, const SymbolFacts& facts) : num_words_(facts.num_words()) {
  for (ProductionId p = 0; p < grammar.productions.size(); p++) {
    const std::vector<SymbolId>& body = grammar.productions[p].body;
    auto start = static_cast<ItemId>(next_.size());
    starts_.push_back(start);
    next_.insert(next_.end(), body.begin(), body.end());
    next_.push_back(AT_END);
    productions_.insert(productions_.end(), body.size() + 1, p);
    rest_first_.resize(next_.size() * num_words_);
    rest_nullable_.resize(next_.size(), true);
    for (size_t i = body.size(); i-- > 1;) {  // the rest behind symbol i - 1 begins with symbol i
      SetWord* rest = &rest_first_[(start + i - 1) * num_words_];
      unite(rest, facts.first(body[i]), num_words_);
      if (facts.nullable(body[i])) unite(rest, &rest_first_[(start + i) * num_words_], num_words_);
      rest_nullable_[start + i - 1] = facts.nullable(body[i]) && rest_nullable_[start + i];
    }
  }
}

Automaton::Automaton(const Grammar& grammar, const SymbolFacts& facts, const Items& items, bool canonical)
    : facts_(facts),
      items_(items),
      canonical_(canonical),
      num_terminals_(static_cast<SymbolId>(grammar.terminals.size())),
      num_words_(facts.num_words()),
      closure_sets_(grammar.nonterminals.size() * num_words_),
      in_closure_(grammar.nonterminals.size(), false),
      waiting_(grammar.nonterminals.size(), false),
      step_heads_(grammar.num_symbols(), NONE) {
  for (const Production& production : grammar.productions) heads_.push_back(production.head);
}

bool Automaton::build(size_t max_states) {
  kernel_items_ = {items_.first_of(0)};
  kernel_sets_.assign(num_words_, 0);
  add(kernel_sets_.data(), END);
  add_state(core_of_kernel());
  for (size_t at = 0; at < queue_.size(); at++) {
    if (states_.size() > max_states) return false;
    states_[queue_[at]].queued = false;
    expand(queue_[at]);
  }
  drop_unreachable();
  return true;
}

// Add the follow set of an item to the nonterminal behind its dot.
bool Automaton::follow(ItemId item, const SetWord* set) {
  SymbolId symbol = items_.next(item);
  if (symbol == Items::AT_END || symbol < num_terminals_) return false;
  SetWord* of_symbol = closure_set(symbol);
  size_t n = symbol - num_terminals_;
  bool changed = !in_closure_[n];
  if (changed) {
    in_closure_[n] = true;
    closure_list_.push_back(symbol);
    std::fill(of_symbol, of_symbol + num_words_, 0);
  }
  changed |= unite(of_symbol, items_.rest_first(item), num_words_);
  if (items_.rest_nullable(item)) changed |= unite(of_symbol, set, num_words_);
  if (changed && !waiting_[n]) waiting_[n] = true, worklist_.push_back(symbol);
  return changed;
}

Automaton::Closure Automaton::closure(StateId state, const SetWord* kernel_sets) {
  for (SymbolId symbol : closure_list_) in_closure_[symbol - num_terminals_] = false;
  closure_list_.clear();
  std::span<const ItemId> items = kernel(state);
  for (size_t i = 0; i < items.size(); i++) follow(items[i], kernel_sets + i * num_words_);
  for (size_t at = 0; at < worklist_.size(); at++) {
    SymbolId symbol = worklist_[at];
    waiting_[symbol - num_terminals_] = false;
    for (ProductionId p : facts_.productions_of(symbol)) follow(items_.first_of(p), closure_set(symbol));
  }
  worklist_.clear();
  return {closure_list_, *this};
}

void Automaton::add_step(SymbolId symbol, ItemId item, const SetWord* set) {
  if (step_heads_[symbol] == NONE) step_symbols_.push_back(symbol);
  steps_.push_back({item, set, step_heads_[symbol]});
  step_heads_[symbol] = static_cast<uint32_t>(steps_.size() - 1);
}

// Find the states that follow `state`; make missing states.
void Automaton::expand(StateId state) {
  closure(state);
  std::span<const ItemId> items = kernel(state);
  std::vector<SetWord> own(lookahead(state, 0), lookahead(state, 0) + items.size() * num_words_);  // sets_ will move
  for (size_t i = 0; i < items.size(); i++)
    if (items_.next(items[i]) != Items::AT_END) add_step(items_.next(items[i]), items[i] + 1, &own[i * num_words_]);
  for (SymbolId head : closure_list_)
    for (ProductionId p : facts_.productions_of(head)) {
      ItemId item = items_.first_of(p);
      if (items_.next(item) != Items::AT_END) add_step(items_.next(item), item + 1, closure_set(head));
    }
  std::vector<Edge> edges;
  edges.reserve(step_symbols_.size());
  for (SymbolId symbol : step_symbols_) {
    take_kernel(symbol);
    edges.push_back({symbol, target(state, symbol)});
    step_heads_[symbol] = NONE;
  }
  step_symbols_.clear(), steps_.clear();
  states_[state].edges = static_cast<std::vector<Edge>&&>(edges);
}

// Sorted, so that equal cores look equal. Kernels are short, except for large alternations.
void Automaton::take_kernel(SymbolId symbol) {
  kernel_items_.clear();
  std::vector<const Step*> sorted;
  for (uint32_t at = step_heads_[symbol]; at != NONE; at = steps_[at].next) sorted.push_back(&steps_[at]);
  sort(sorted, [](const Step* x, const Step* y) { return x->item < y->item; });
  kernel_sets_.resize(sorted.size() * num_words_);
  for (const Step* step : sorted) {
    std::copy(step->set, step->set + num_words_, &kernel_sets_[kernel_items_.size() * num_words_]);
    kernel_items_.push_back(step->item);
  }
}

uint32_t Automaton::core_of_kernel() {
  auto hash = [](const ItemId* items, size_t size) {
    uint32_t value = static_cast<uint32_t>(size);
    for (size_t i = 0; i < size; i++) value = (value ^ items[i]) * 0x9E3779B1u, value ^= value >> 15;
    return value;
  };
  return core_table_.find_or_add(
      hash(kernel_items_.data(), kernel_items_.size()),
      [&](uint32_t core) {
        return cores_[core].size == kernel_items_.size() &&
               std::equal(kernel_items_.begin(), kernel_items_.end(), core_items_.begin() + cores_[core].first);
      },
      [&] {
        cores_.push_back({static_cast<uint32_t>(core_items_.size()), static_cast<uint32_t>(kernel_items_.size()), NONE});
        core_items_.insert(core_items_.end(), kernel_items_.begin(), kernel_items_.end());
        return static_cast<uint32_t>(cores_.size() - 1);
      });
}

StateId Automaton::target(StateId from, SymbolId symbol) {
  uint32_t core = core_of_kernel();
  for (StateId state = cores_[core].newest; state != NONE; state = states_[state].same_core)
    if (contains(states_[state]) && (!canonical_ || compatible(states_[state]))) return state;
  // The previous target of the edge is the first choice, so that a state does not drift between targets.
  for (const Edge& edge : states_[from].edges)
    if (edge.symbol == symbol && compatible(states_[edge.to])) return merge(edge.to), edge.to;
  for (StateId state = cores_[core].newest; state != NONE; state = states_[state].same_core)
    if (compatible(states_[state])) return merge(state), state;
  return add_state(core);
}

bool Automaton::contains(const State& state) const {
  for (size_t i = 0; i < kernel_sets_.size(); i++)
    if (kernel_sets_[i] & ~sets_[state.sets + i]) return false;
  return true;
}

// May the current kernel and the state be merged?
bool Automaton::compatible(const State& state) const {
  const SetWord *x = kernel_sets_.data(), *y = &sets_[state.sets];
  if (canonical_) return std::equal(x, x + kernel_sets_.size(), y);
  size_t size = kernel_items_.size(), w = num_words_;
  for (size_t i = 0; i < size; i++)
    for (size_t j = i + 1; j < size; j++) {
      bool crossed = meets(x + i * w, y + j * w, w) || meets(x + j * w, y + i * w, w);
      if (crossed && !meets(x + i * w, x + j * w, w) && !meets(y + i * w, y + j * w, w)) return false;
    }
  return true;
}

void Automaton::merge(StateId state) {
  bool changed = unite(&sets_[states_[state].sets], kernel_sets_.data(), kernel_sets_.size());
  if (!changed || states_[state].queued) return;
  states_[state].queued = true;
  queue_.push_back(state);
}

StateId Automaton::add_state(uint32_t core) {
  auto state = static_cast<StateId>(states_.size());
  states_.push_back({core, static_cast<uint32_t>(sets_.size()), cores_[core].newest, true, {}});
  sets_.insert(sets_.end(), kernel_sets_.begin(), kernel_sets_.end());
  cores_[core].newest = state;
  queue_.push_back(state);
  return state;
}

// Remove states that lost their last edge while others grew. The rest keeps its order; 0 stays the start.
void Automaton::drop_unreachable() {
  std::vector<StateId> number(states_.size(), NONE), stack{0};
  number[0] = 0;
  while (!stack.empty()) {
    StateId state = stack.back();
    stack.pop_back();
    for (const Edge& edge : states_[state].edges)
      if (number[edge.to] == NONE) number[edge.to] = 0, stack.push_back(edge.to);
  }
  StateId used = 0;
  for (StateId state = 0; state < states_.size(); state++)
    if (number[state] != NONE) number[state] = used++;
  for (StateId state = 0; state < number.size(); state++) {
    if (number[state] == NONE) continue;
    for (Edge& edge : states_[state].edges) edge.to = number[edge.to];
    if (number[state] != state) states_[number[state]] = static_cast<State&&>(states_[state]);
  }
  states_.resize(used);
}

}  // namespace aici::grammar
