#include "aici/grammar/lexer.hpp"

#include <algorithm>

#include "aici/grammar/column.hpp"
#include "aici/sort.hpp"
#include "aici/text_walk.hpp"
#include "terminals.hpp"

namespace aici::grammar {

using regex::ExprId, regex::NOTHING;

namespace {

constexpr size_t FEW_STATES = 256;  // see regex::Dfa

}  // namespace

Lexer::Lexer(const Grammar& grammar, TerminalSets& sets) : sets_(&sets), contextual_(grammar.contextual), ambiguous_(grammar.ambiguous), newline_(grammar.indentation.newline) {
  const std::vector<Terminal>& terminals = grammar.terminals;
  for (SymbolId id = 0; id < terminals.size(); id++) {
    skip_.push_back(terminals[id].skip);
    everywhere_.push_back(terminals[id].skip || terminals[id].never);
    if (terminals[id].kind != Terminal::Kind::End) order_.push_back(id);
  }
  sort(order_, [&](SymbolId x, SymbolId y) { return wins_over(grammar, x, y); });
  class_of_ = classes_of(grammar, order_);
  for (SymbolId id : order_) exprs_of_.push_back(terminal_expr(terminals[id], exprs_));
  hints_.resize(order_.size());
  has_json_ = std::ranges::any_of(grammar.terminals, [](const Terminal& terminal) { return terminal.kind == Terminal::Kind::Json; });
  if (newline_ != END)
    for (char blank : {'\n', ' ', '\t', '\f'}) exprs_.bytes(regex::ByteSet::of(static_cast<uint8_t>(blank)));  // classes of their own
  classes_ = exprs_.byte_classes();
  for (unsigned byte = 0; byte < 256; byte++)
    if (classes_[byte] >= class_bytes_.size()) class_bytes_.resize(classes_[byte] + 1u, static_cast<uint8_t>(byte));
  for (unsigned byte = 0; byte < 256; byte++) class_bytes_[classes_[byte]] = static_cast<uint8_t>(byte);
  class_first_.resize(class_bytes_.size() + 1);
  for (uint8_t number : classes_) class_first_[number + 1u]++;
  for (size_t i = 1; i < class_first_.size(); i++) class_first_[i] += class_first_[i - 1];
  std::vector<uint32_t> end = class_first_;
  by_class_.resize(256);
  for (unsigned byte = 0; byte < 256; byte++) by_class_[end[classes_[byte]]++] = static_cast<uint8_t>(byte);
  rows_.reserve(FEW_STATES * 256);
  reset_states();
}

void Lexer::reset_states() {
  derived_.assign(size_t{1} << DERIVED_BITS, {});
  members_.clear(), states_.clear(), rows_.clear(), reach_.clear(), capped_.clear(), starts_.clear();
  table_ = {};
  state_of({});
  for (State& to : rows_) to = DEAD;
  if (contextual_) return;
  std::vector<Member> all;
  for (uint32_t rank = 0; rank < order_.size(); rank++) all.push_back({rank, exprs_of_[rank]});
  start_ = add_state(all, true);
}

Lexer::State Lexer::add_start(SetId viable) {
  if (viable >= starts_.size()) starts_.resize(sets_->size(), UNKNOWN);
  std::vector<Member> some;
  for (uint32_t rank = 0; rank < order_.size(); rank++)
    if (everywhere_[order_[rank]] || sets_->has(viable, order_[rank])) some.push_back({rank, exprs_of_[rank]});
  return starts_[viable] = add_state(some, true);
}

Lexer::State Lexer::initial(SetId viable) {
  if (newline_ != END) return next(start(viable), '\n');
  std::vector<Member> some;
  for (const Member& member : members(start(viable))) some.push_back(member);
  for (Member& member : some)
    if (skip_[order_[member.rank]] && !ambiguous_) member.rest = exprs_.alt({member.rest, exprs_.derive(member.rest, '\n')});
  return add_state(some, true);
}

uint32_t Lexer::hash(std::span<const Member> members) {
  uint32_t hash = 0;
  auto mix = [&hash](uint32_t word) { hash = (hash ^ word) * 0x9E3779B1u, hash ^= hash >> 15; };
  for (const Member& member : members) mix(member.rank), mix(member.rest);
  return hash;
}

Lexer::State Lexer::state_of(const std::vector<Member>& wanted) {
  return static_cast<State>(table_.find_or_add(
      hash(wanted), [&](uint32_t id) { return std::ranges::equal(members(static_cast<State>(id)), wanted); },
      [&] { return add_state(wanted, false); }));
}

Lexer::State Lexer::add_state(const std::vector<Member>& wanted, bool fresh) {
  if (states_.size() >= MAX_STATES || exprs_.weight() > MAX_EXPRS) {
    error_ = "the grammar is too complex: its lexer has outgrown its bounds";
    return DEAD;
  }
  SymbolId winner = find_winner(wanted);
  states_.push_back({static_cast<uint32_t>(members_.size()), static_cast<uint32_t>(wanted.size()), winner, fresh});
  members_.insert(members_.end(), wanted.begin(), wanted.end());
  // Reserve for all at once: this takes address space, not memory, since untouched pages cost nothing.
  if (rows_.size() == rows_.capacity()) rows_.reserve(MAX_STATES * 256);
  rows_.resize(rows_.size() + 256, UNKNOWN);
  row_data_ = rows_.data();
  reach_.push_back(TerminalSets::UNKNOWN);
  return static_cast<State>(states_.size() - 1);
}

// The best terminal that matches; of an ambiguous grammar, all that are as good, of which one SKIP stands for all SKIPs.
SymbolId Lexer::find_winner(const std::vector<Member>& members) const {
  auto matches = [&](const Member& member) { return !is_column(member) && exprs_.nullable(member.rest); };
  auto best = std::ranges::find_if(members, matches);
  if (best == members.end()) return NONE;
  SymbolId winner = order_[best->rank];
  if (is_column(members.back())) {
    TerminalSet newline(skip_.size());
    newline.add(newline_);
    return sets_->lexeme_of(sets_->id_of(newline), members.back().rest);
  }
  if (!ambiguous_) return winner;
  TerminalSet all(skip_.size());
  SymbolId named = NONE;
  bool is_several = false;
  for (auto member = best; member != members.end(); ++member) {
    SymbolId terminal = order_[member->rank], name = skip_[terminal] ? END : terminal;
    if (class_of_[member->rank] != class_of_[best->rank] || !matches(*member)) continue;
    is_several |= named != NONE && named != name;
    named = name;
    all.add(name);
  }
  return is_several ? sets_->lexeme_of(sets_->id_of(all)) : winner;
}

Lexer::State Lexer::explore(State state, uint8_t byte) {
  if (error_) return DEAD;
  rest_.clear();
  for (uint32_t i = 0; i < states_[state].num; i++) {
    Member member = members_[states_[state].first + i];
    if (is_column(member)) continue;
    member.rest = derive(member.rest, byte);
    if (member.rest != NOTHING) rest_.push_back(member);
  }
  if (newline_ != END) add_column(state, byte, rest_);
  State to = rest_.empty() ? DEAD : state_of(rest_);
  if (error_) return DEAD;
  State* row = &rows_[state * 256u];
  for (uint32_t i = class_first_[classes_[byte]]; i < class_first_[classes_[byte] + 1u]; i++) row[by_class_[i]] = to;
  return to;
}

// The column is known from the start of a line to its first text, while the lexeme can be a newline.
void Lexer::add_column(State from, uint8_t byte, std::vector<Member>& rest) const {
  if (std::ranges::none_of(rest, [&](const Member& member) { return order_[member.rank] == newline_; })) return;
  auto rank = static_cast<uint32_t>(order_.size());
  std::span<const Member> before = members(from);
  if (byte == '\n') rest.push_back({rank, Column{}.code()});
  else if ((byte == ' ' || byte == '\t' || byte == '\f') && !before.empty() && is_column(before.back()))
    rest.push_back({rank, Column::of(before.back().rest).after(byte).code()});
}

// Where several terminals compete, the exact counts say which of them can still win.
Lexer::State Lexer::capped(State state, uint32_t longest) {
  if (is_fresh(state) || states_[state].num != 1) return state;
  if (capped_.size() <= state) capped_.resize(states_.size(), UNKNOWN);
  if (capped_[state] == UNKNOWN) {
    Member member = members_[states_[state].first];
    member.rest = exprs_.capped(member.rest, longest, regex::Exprs::Written::Kept);
    State to = state_of({member});
    capped_[state] = error_ ? state : to;
  }
  return capped_[state];
}

// One code point is one turn of the count; see regex::Dfa::num_allowed.
uint32_t Lexer::num_allowed(State state, const TextClass& text) {
  if (is_fresh(state) || states_[state].num != 1) return 0;
  Member member = members_[states_[state].first];
  std::optional<regex::Exprs::Counted> counted = exprs_.as_counted(member.rest);
  if (!counted || counted->max == regex::UNBOUNDED || exprs_.nullable(counted->tail)) return 0;
  State tail = state_of({{member.rank, counted->tail}}), body = state_of({{member.rank, counted->body}});
  for (unsigned byte = 0; byte < 256; byte++)
    if (text.next(TextClass::START, static_cast<uint8_t>(byte)) != TextClass::DEAD && next(tail, static_cast<uint8_t>(byte)) != DEAD) return 0;
  bool is_code_point = stays_alive<State>(
      body, text, [this](State at, uint8_t byte) { return next(at, byte); },
      [this](State to, TextClass::State at) -> std::optional<bool> {
        if (at == TextClass::START) return members(to)[0].rest == regex::EMPTY ? std::optional(false) : std::nullopt;
        return winner(to) == NONE ? std::optional(true) : std::nullopt;
      });
  return is_code_point && !error_ ? counted->max : 0;
}

// Most states hold the rest of a name beside the rest of a keyword, so the same derivatives recur.
ExprId Lexer::derive(ExprId expr, uint8_t byte) {
  Derived& memo = derived_[(expr * 0x9E3779B1u + classes_[byte] * 0x85EBCA6Bu) >> (32 - DERIVED_BITS)];
  if (memo.from != expr || memo.byte_class != classes_[byte]) memo = {expr, classes_[byte], exprs_.derive(expr, byte)};
  return memo.to;
}

SetId Lexer::find_reach(State state) {
  TerminalSet found(skip_.size());
  for (uint32_t i = 0; i < states_[state].num; i++) {
    uint32_t rank = members_[states_[state].first + i].rank;
    if (rank == order_.size()) continue;
    SymbolId terminal = order_[rank];
    if (can_win(state, rank)) found.add(skip_[terminal] ? END : terminal);
  }
  return reach_[state] = sets_->id_of(found);
}

// Is there a text after which the terminal wins? Certainly if the terminal matches where no better terminal does, or if
// no better terminal is left, because its rest is never nothing.
bool Lexer::wins_soon(State state, uint32_t rank) const {
  std::span<const Member> here = members(state);
  if (here.empty()) return false;
  if (here[0].rank == rank || states_[state].winner == order_[rank]) return true;
  if (!ambiguous_) return false;
  auto member = std::ranges::find(here, rank, &Member::rank);
  auto best = std::ranges::find_if(here, [&](const Member& m) { return !is_column(m) && exprs_.nullable(m.rest); });
  if (member == here.end()) return false;
  return class_of_[here[0].rank] == class_of_[rank] ||
         (best != here.end() && class_of_[best->rank] == class_of_[rank] && exprs_.nullable(member->rest));
}

bool Lexer::can_win(State from, uint32_t rank) {
  if (wins_soon(from, rank)) return true;
  return ambiguous_ || has_json_ ? finds_win(from, rank) : exceeds_better(from, rank);
}

// Some text of the terminal's rest is no text of a better terminal's rest.
bool Lexer::exceeds_better(State state, uint32_t rank) {
  std::vector<ExprId> better;
  for (const Member& member : members(state)) {
    if (member.rank == rank) {
      bool exceeds = exprs_.both(member.rest, exprs_.complement(exprs_.alt(better))) != NOTHING;
      if (exprs_.error()) error_ = exprs_.error();
      return exceeds;
    }
    better.push_back(member.rest);
  }
  return false;
}

// Search the states that still hold the terminal, the nearest first; try first the byte that succeeded last time, usually
// the next letter of a name.
bool Lexer::finds_win(State from, uint32_t rank) {
  if (wins_soon(next(from, hints_[rank]), rank)) return true;
  struct Found {
    State state;
    uint8_t first_byte;
  };
  std::vector<bool> seen(states_.size());
  std::vector<Found> queue{{from, 0}};
  for (size_t at = 0; at < queue.size(); at++) {
    auto [state, first_byte] = queue[at];
    const ExprId rest = std::ranges::find(members(state), rank, &Member::rank)->rest;
    for (uint8_t byte : class_bytes_) {
      if (derive(rest, byte) == NOTHING) continue;
      State to = next(state, byte);
      if (to >= seen.size()) seen.resize(to + 1u);
      if (seen[to]) continue;
      seen[to] = true;
      if (at == 0) first_byte = byte;
      bool known = reach_[to] != TerminalSets::UNKNOWN && !skip_[order_[rank]];
      if (known ? sets_->has(reach_[to], order_[rank]) : wins_soon(to, rank)) {
        hints_[rank] = first_byte;
        return true;
      }
      if (!known && to != DEAD) queue.push_back({to, first_byte});
    }
  }
  return false;
}

void Lexer::compact(std::span<State> live) {
  std::vector<ExprId> roots(exprs_of_);
  std::vector<std::vector<Member>> kept;
  std::vector<bool> fresh;
  for (State state : live) {
    kept.emplace_back(members(state).begin(), members(state).end());
    fresh.push_back(is_fresh(state));
    for (const Member& member : kept.back())
      if (!is_column(member)) roots.push_back(member.rest);
  }
  exprs_ = exprs_.copy_of(roots);
  exprs_of_.assign(roots.begin(), roots.begin() + static_cast<ptrdiff_t>(exprs_of_.size()));
  reset_states();
  const ExprId* moved = roots.data() + exprs_of_.size();
  for (size_t i = 0; i < live.size(); i++) {
    for (Member& member : kept[i])
      if (!is_column(member)) member.rest = *moved++;
    live[i] = fresh[i] ? add_state(kept[i], true) : state_of(kept[i]);
  }
}

}  // namespace aici::grammar
