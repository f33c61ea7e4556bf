#include "aici/regex/dfa.hpp"

namespace aici::regex {
namespace {

constexpr size_t FEW_EXPRS = 8192;  // enough for most texts
constexpr size_t FEW_STATES = 256;  // enough for most patterns: a script may hold many

}  // namespace

Dfa::Dfa(Exprs exprs, ExprId start) : exprs_(static_cast<Exprs&&>(exprs)) {
  start = exprs_.settle(start);
  rows_.reserve(FEW_STATES * 256), states_.reserve(FEW_EXPRS);
  exprs_.reserve(FEW_EXPRS);
  add_dead_state();
  start_ = state_of(start);
}

bool Dfa::fits(Exprs& exprs, ExprId& start) {
  if (exprs.weight() <= MAX_EXPRS / 2) return true;
  if (exprs.weight() > 2 * MAX_EXPRS) return false;  // and no memory for a copy
  std::vector<ExprId> roots{start};
  exprs = exprs.copy_of(roots);
  start = roots[0];
  return exprs.weight() <= MAX_EXPRS / 2;
}

void Dfa::add_dead_state() {
  state_of(NOTHING);
  for (StateId& to : rows_) to = DEAD;
}

void Dfa::compact(std::span<StateId> live) {
  std::vector<ExprId> roots{state_exprs_[start_]};
  for (StateId state : live) roots.push_back(state_exprs_[state]);
  exprs_ = exprs_.copy_of(roots);
  state_exprs_.clear(), capped_.clear(), bodies_.clear(), states_.clear(), rows_.clear();
  add_dead_state();
  start_ = state_of(roots[0]);
  for (size_t i = 0; i < live.size(); i++) live[i] = state_of(roots[i + 1]);
  num_compactions_++;
}

StateId Dfa::state_of(ExprId expr) {
  if (states_.size() <= expr) states_.resize(exprs_.size(), UNKNOWN);
  if (states_[expr] != UNKNOWN) return states_[expr];
  if (state_exprs_.size() >= MAX_STATES || exprs_.weight() > MAX_EXPRS) {
    error_ = "the regex is too complex: its automaton has outgrown its bounds";
    return DEAD;
  }
  states_[expr] = static_cast<StateId>(state_exprs_.size());
  state_exprs_.push_back(expr);
  // Reserve for all at once: this takes address space, not memory, since untouched pages cost nothing.
  if (rows_.size() == rows_.capacity()) rows_.reserve(MAX_STATES * 256);
  rows_.resize(rows_.size() + 256, UNKNOWN);
  return states_[expr];
}

StateId Dfa::capped(StateId state, uint32_t longest) {
  if (capped_.size() <= state) capped_.resize(num_states(), UNKNOWN);
  if (capped_[state] == UNKNOWN) {
    ExprId expr = state_exprs_[state], same = exprs_.capped(expr, longest, Exprs::Written::Forgotten);
    StateId to = same == expr ? state : state_of(same);
    capped_[state] = error_ ? state : to;
  }
  return capped_[state];
}

std::optional<Dfa::Split> Dfa::split(StateId state) {
  std::optional<Exprs::Split> parts = exprs_.split(state_exprs_[state]);
  if (!parts) return std::nullopt;
  Split split{state_of(parts->head), state_of(parts->tail)};
  return error_ ? std::nullopt : std::optional(split);
}

StateId Dfa::with_key(StateId state, std::string_view key) {
  if (error_) return DEAD;
  StateId to = state_of(exprs_.with_key(state_exprs_[state], key));
  if (exprs_.error()) error_ = exprs_.error();
  return error_ ? DEAD : to;
}

StateId Dfa::explore(StateId state, uint8_t byte) {
  if (error_) return DEAD;
  ByteSet alike;
  StateId to = state_of(exprs_.derive(state_exprs_[state], byte, alike));
  if (exprs_.error()) error_ = exprs_.error();
  if (error_) return DEAD;
  StateId* row = &rows_[state * 256u];
  for (unsigned i = 0; i < 8; i++)
    for (uint32_t bits = alike.word(i); bits; bits &= bits - 1) row[i * 32 + static_cast<unsigned>(__builtin_ctz(bits))] = to;
  return to;
}

}  // namespace aici::regex
