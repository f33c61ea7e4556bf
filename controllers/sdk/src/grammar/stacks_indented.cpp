#include "stacks_indented.hpp"

#include <algorithm>

namespace aici::grammar {
namespace {

uint32_t hash_of(std::initializer_list<uint32_t> words) {
  uint32_t hash = 0;
  for (uint32_t word : words) hash = (hash ^ word) * 0x9E3779B1u, hash ^= hash >> 15;
  return hash;
}

}  // namespace

IndentedStacks::IndentedStacks(const Grammar& grammar, std::unique_ptr<Stacks> parser, TerminalSets& sets)
    : Stacks(sets), rules_(grammar.indentation), parser_(static_cast<std::unique_ptr<Stacks>&&>(parser)) {
  table_.num_terminals = static_cast<uint32_t>(grammar.terminals.size());
  nothing_ = sets.id_of(TerminalSet(table_.num_terminals));
  level_of({0, {}});
  reset();
}

// EMPTY and REFUSED.
void IndentedStacks::reset() {
  places_.clear(), facts_.clear();
  table_of_places_ = {};
  stack_of({EMPTY, 0, 0});
  stack_of({EMPTY, 0, UINT32_MAX});
  facts_[REFUSED].viable = nothing_;
}

StackId IndentedStacks::stack_of(const Place& place) {
  if (places_.size() >= MAX_STACKS) return error_ = TOO_MANY, EMPTY;
  return table_of_places_.find_or_add(
      hash_of({place.parser, place.level, place.depth}), [&](uint32_t id) { return places_[id] == place; },
      [&] {
        places_.push_back(place);
        return add_stack();
      });
}

uint32_t IndentedStacks::level_of(Level level) {
  return table_of_levels_.find_or_add(
      hash_of({level.outer, level.column.code()}), [&](uint32_t id) { return levels_[id] == level; },
      [&] {
        levels_.push_back(level);
        return static_cast<uint32_t>(levels_.size() - 1);
      });
}

// What the lexer can find next.
SetId IndentedStacks::lexemes_after(const Place& at) {
  TerminalSet set(table_.num_terminals);
  sets_->add_to(set, parser_->viable(at.parser));
  for (SymbolId terminal : {rules_.indent, rules_.dedent, END}) set.remove(terminal);
  if (at.depth || at.parser == EMPTY) set.add(rules_.newline);
  return sets_->id_of(set);
}

void IndentedStacks::find_viable(StackId stack) {
  Place at = places_[stack];
  TerminalSet set(table_.num_terminals);
  sets_->add_to(set, lexemes_after(at));
  set.add(END);
  bool can_end = at.depth == 0 && is_end(at);
  if (!can_end && at.depth == 0 && rules_.final_newline) can_end = shift_alone(at, rules_.newline) && is_end(at);
  if (!error_) error_ = parser_->error();
  facts_[stack].can_end = can_end;
  facts_[stack].viable = sets_->id_of(set);
}

// Can the input end here, once all indentations have ended?
bool IndentedStacks::is_end(Place at) {
  for (; at.level; at.level = levels_[at.level].outer)
    if (!shift_alone(at, rules_.dedent)) return false;
  return parser_->can_end(at.parser);
}

// False, and nothing is changed, if the parser cannot take the terminal.
bool IndentedStacks::shift_alone(Place& at, SymbolId terminal) {
  if (!sets_->has(parser_->viable(at.parser), terminal)) return false;
  at.parser = parser_->shift(at.parser, terminal);
  return true;
}

// False if the column does not fit.
bool IndentedStacks::shift_newline(Place& at, Column column) {
  if (at.depth) return true;
  if (!shift_alone(at, rules_.newline)) return at.parser == EMPTY && column == Column{};
  if (column.wide == Column::MAX) return false;
  Column here = levels_[at.level].column;
  if (column.wide > here.wide) {
    at.level = level_of({at.level, column});
    return column.narrow > here.narrow && shift_alone(at, rules_.indent);
  }
  for (; column.wide < levels_[at.level].column.wide; at.level = levels_[at.level].outer)
    if (!shift_alone(at, rules_.dedent)) return false;
  return levels_[at.level].column == column;
}

StackId IndentedStacks::shift_new(StackId stack, SymbolId lexeme) {
  Place at = places_[stack];
  uint32_t column = sets_->column(lexeme);
  if (column != TerminalSets::NO_COLUMN) {  // some text follows
    if (!shift_newline(at, Column::of(column)) || lexemes_after(at) == nothing_) return REFUSED;
  } else if (lexeme == rules_.newline) {  // the last one
    if (!shift_newline(at, {})) return REFUSED;
  } else {
    at.parser = parser_->shift(at.parser, lexeme);
    if (std::ranges::find(rules_.opening, lexeme) != rules_.opening.end()) at.depth++;
    else if (at.depth && std::ranges::find(rules_.closing, lexeme) != rules_.closing.end()) at.depth--;
  }
  if (!error_) error_ = parser_->error();
  return error_ ? EMPTY : stack_of(at);
}

void IndentedStacks::compact(std::span<StackId> live) {
  std::vector<StackId> parsers;
  std::vector<Place> places;
  for (StackId stack : live) places.push_back(places_[stack]), parsers.push_back(places_[stack].parser);
  parser_->compact(parsers);
  reset();
  for (size_t i = 0; i < live.size(); i++) live[i] = stack_of({parsers[i], places[i].level, places[i].depth});
  forget_shifts();
}

}  // namespace aici::grammar
