#include "aici/grammar/recognizer.hpp"

namespace aici::grammar {

GrammarRecognizer::Parts::Parts(const Grammar& grammar, LrTable table)
    : sets(grammar.terminals.size()), lexer(grammar, sets), stacks(Stacks::make(grammar, static_cast<LrTable&&>(table), sets)) {}

GrammarRecognizer::GrammarRecognizer(const Grammar& grammar, LrTable table)
    : parts_(std::make_unique<Parts>(grammar, static_cast<LrTable&&>(table))) {
  SetId viable = parts_->stacks->viable(Stacks::EMPTY);
  path_.push_back({parts_->lexer.initial(viable), Stacks::EMPTY});
}

bool GrammarRecognizer::step(Position from, uint8_t byte, Position& to) {
  auto& [sets, lexer, stacks, masks] = *parts_;
  to = {lexer.next(from.lexer, byte), from.stack};
  if (to.lexer == Lexer::DEAD) {
    SymbolId winner = lexer.winner(from.lexer);
    if (winner == Lexer::NONE) return false;
    if (!lexer.is_skip(winner)) {
      if (!sets.takes(stacks->viable(from.stack), winner)) return false;
      to.stack = stacks->shift(from.stack, winner);
    }
    to.lexer = lexer.next(lexer.start(stacks->viable(to.stack)), byte);
    if (to.lexer == Lexer::DEAD) return false;
  }
  return sets.meets(lexer.reach(to.lexer), stacks->viable(to.stack)) && !error();
}

bool GrammarRecognizer::try_push_byte(uint8_t byte) {
  Position next;
  if (!step(path_.back(), byte, next)) return false;
  path_.push_back(next);
  return true;
}

bool GrammarRecognizer::special_allowed(SpecialToken special) {
  auto& [sets, lexer, stacks, masks] = *parts_;
  auto [state, stack] = path_.back();
  if (special != SpecialToken::EndOfSequence || error()) return false;
  SymbolId winner = lexer.winner(state);
  if (winner != Lexer::NONE && sets.column(winner) != TerminalSets::NO_COLUMN) winner = lexer.newline();  // no text follows
  if (lexer.is_fresh(state) || (winner != Lexer::NONE && lexer.is_skip(winner))) return stacks->can_end(stack);
  return winner != Lexer::NONE && sets.takes(stacks->viable(stack), winner) && stacks->can_end(stacks->shift(stack, winner));
}

void GrammarRecognizer::allow_tokens(const TokTrie& trie, TokenSet& mask) {
  auto& [sets, lexer, stacks, masks] = *parts_;
  masks.allow(trie, lexer, sets, *stacks, path_.back().lexer, path_.back().stack, mask);
}

void GrammarRecognizer::trie_finished() {
  auto& [sets, lexer, stacks, masks] = *parts_;
  if (stacks->is_crowded()) {
    std::vector<StackId> live;
    for (Position position : path_) live.push_back(position.stack);
    stacks->compact(live);
    for (size_t i = 0; i < path_.size(); i++) path_[i].stack = live[i];
  }
  if (lexer.is_crowded()) {
    std::vector<Lexer::State> live;
    for (Position position : path_) live.push_back(position.lexer);
    lexer.compact(live);
    for (size_t i = 0; i < path_.size(); i++) path_[i].lexer = live[i];
    masks.forget();
  }
}

std::vector<SymbolId> GrammarRecognizer::expected() {
  auto& [sets, lexer, stacks, masks] = *parts_;
  auto [state, stack] = path_.back();
  SymbolId winner = lexer.winner(state);
  bool pending = !lexer.is_fresh(state);
  std::vector<SymbolId> found;
  auto add = [&](SetId wanted, SetId among) {
    for (SymbolId terminal = 1; terminal < lexer.num_terminals(); terminal++)
      if (sets.has(wanted, terminal) && sets.has(among, terminal)) found.push_back(terminal);
  };
  if (pending && winner != Lexer::NONE && !lexer.is_skip(winner) && sets.takes(stacks->viable(stack), winner))
    stack = stacks->shift(stack, winner), pending = false;
  if (pending && (winner == Lexer::NONE || !lexer.is_skip(winner))) {
    add(lexer.reach(state), stacks->viable(stack));
  } else {
    add(stacks->viable(stack), stacks->viable(stack));
    if (stacks->can_end(stack)) found.push_back(END);
  }
  return found;
}

}  // namespace aici::grammar
