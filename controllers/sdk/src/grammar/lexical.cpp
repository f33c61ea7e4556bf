#include "lexical.hpp"

#include <algorithm>
#include <memory>

#include "lex_graph.hpp"
#include "sample.hpp"

namespace aici::grammar {
namespace {

constexpr size_t MAX_STATES = 20000;  // of all graphs together

using TerminalSet = std::vector<SetWord>;

// The lexer in which certain terminals compete, and its reactions to the byte after a lexeme.
struct Context {
  struct End {
    uint32_t state;
    ClassSet by;
  };
  TerminalSet competing;
  std::unique_ptr<LexGraph> graph;
  std::vector<TerminalSet> begins;  // (classes,) terminals that can come next if this byte is the first after a lexeme
  std::vector<std::vector<End>> ends;  // (terminals,)
};

class LexicalCheck {
 public:
  LexicalCheck(const Grammar& grammar, const LrTable& table, std::vector<Problem>& problems)
      : grammar_(grammar), table_(table), problems_(problems), terminals_(grammar), num_words_((grammar.terminals.size() + 63) / 64) {}

  void run() {
    // A schema has as many lexer states as its values are deep.
    for (const Terminal& terminal : grammar_.terminals)
      if (terminal.kind == Terminal::Kind::Json) return;
    find_lexing_states();
    make_contexts();
    if (!complete_) return add_warning(problems_, {}, "the lexer is too large to check whether terminals can be told apart");
    reported_ = find_losers();
    checked_.resize(grammar_.terminals.size());
    for (LrState state = 0; state < table_.num_states; state++) {
      for (SymbolId t = 1; t < table_.num_terminals; t++) {
        if (grammar_.terminals[t].skip && lexing_[state]) check_after(context_of_[state], t, state);
        Action action = table_.action(state, t);
        // If a single lexer serves all states, the choice of the state that reads the terminal does not matter.
        if (action.kind == Action::Kind::Shift && (lexing_[state] || !grammar_.contextual))
          check_after(context_of_[state], t, action.target);
      }
    }
  }

 private:
  const Terminal& terminal_of_rank(uint32_t rank) const { return grammar_.terminals[terminals_.order()[rank]]; }

  // The states in which a lexeme begins: the start, and the states after a terminal.
  void find_lexing_states() {
    lexing_.assign(table_.num_states, false);
    lexing_[0] = true;
    for (const Action& action : table_.actions)
      if (action.kind == Action::Kind::Shift) lexing_[action.target] = true;
  }

  void make_contexts() {
    TerminalSet always(num_words_), all(num_words_);
    for (SymbolId t = 1; t < grammar_.terminals.size(); t++) {
      add(all.data(), t);
      if (grammar_.terminals[t].skip || grammar_.terminals[t].never) add(always.data(), t);
    }
    for (uint32_t state = 0; state < table_.num_states; state++) {
      TerminalSet viable(num_words_);
      for (SymbolId t = 0; t < table_.num_terminals; t++)
        if (table_.action(static_cast<LrState>(state), t).kind != Action::Kind::Error) add(viable.data(), t);
      auto known = std::find(viable_sets_.begin(), viable_sets_.end(), viable);
      viable_of_.push_back(static_cast<uint32_t>(known - viable_sets_.begin()));
      if (known == viable_sets_.end()) viable_sets_.push_back(viable);
      if (grammar_.contextual && !lexing_[state]) {
        context_of_.push_back(UINT32_MAX);
        continue;
      }
      TerminalSet competing = grammar_.contextual ? viable : all;
      competing[0] &= ~SetWord{1};  // END has no text
      unite(competing.data(), always.data(), num_words_);
      context_of_.push_back(context_with(competing));
      if (!complete_) return;
    }
  }

  uint32_t context_with(const TerminalSet& competing) {
    for (uint32_t i = 0; i < contexts_.size(); i++)
      if (contexts_[i].competing == competing) return i;
    Context context{competing, std::make_unique<LexGraph>(terminals_, competing, MAX_STATES - num_lex_states_), {}, {}};
    num_lex_states_ += context.graph->num_states();
    complete_ = context.graph->is_complete() && num_lex_states_ < MAX_STATES;
    if (complete_) find_begins(context), find_ends(context);
    contexts_.push_back(static_cast<Context&&>(context));
    return static_cast<uint32_t>(contexts_.size() - 1);
  }

  // The terminals that can come after a lexeme, given the next byte: terminals that begin with the byte; after skipped
  // text, terminals that begin with a byte that ends the skipped text.
  void find_begins(Context& context) {
    size_t num_classes = terminals_.num_classes();
    std::vector<ClassSet> bytes(num_classes);
    context.begins.assign(num_classes, TerminalSet(num_words_));
    for (size_t c = 0; c < num_classes; c++) bytes[c].add(c);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t c = 0; c < num_classes; c++) {
        uint32_t state = context.graph->next(0, c);
        if (state == LexGraph::DEAD) continue;
        for (const LexGraph::Member& member : context.graph->members(state)) {
          SymbolId t = terminals_.order()[member.rank];
          if (!grammar_.terminals[t].skip) {
            if (member.wins) add(context.begins[c].data(), t);
            continue;
          }
          for (size_t after = 0; after < num_classes; after++)
            if (member.ended_by.has(after)) changed |= bytes[c].unite(bytes[after]);
        }
      }
    }
    std::vector<TerminalSet> direct = context.begins;
    for (size_t c = 0; c < num_classes; c++)
      for (size_t other = 0; other < num_classes; other++)
        if (bytes[c].has(other)) unite(context.begins[c].data(), direct[other].data(), num_words_);
  }

  // A lexeme of the terminal so far, and the bytes that can end it: each different set once, at the shortest text.
  void find_ends(Context& context) {
    context.ends.resize(grammar_.terminals.size());
    for (uint32_t state = 1; state < context.graph->num_states(); state++)
      for (const LexGraph::Member& member : context.graph->members(state)) {
        std::vector<Context::End>& ends = context.ends[terminals_.order()[member.rank]];
        auto same = [&](const Context::End& end) { return std::equal(end.by.words, end.by.words + 4, member.ended_by.words); };
        if (member.wins && std::none_of(ends.begin(), ends.end(), same)) ends.push_back({state, member.ended_by});
      }
  }

  void report(Severity severity, Place place, const Text& message, const Text& example) {
    problems_.push_back({severity, place, message, example});
  }

  // Terminals that lose every word to other terminals wherever they compete.
  std::vector<bool> find_losers() {
    std::vector<bool> lost(grammar_.terminals.size(), false);
    for (uint32_t rank = 0; rank < terminals_.order().size(); rank++) {
      SymbolId t = terminals_.order()[rank];
      bool competes = false, wins = false;
      for (const Context& context : contexts_) {
        if (!has(context.competing.data(), t)) continue;
        competes = true;
        for (const LexGraph::Member& member : context.graph->members(0)) wins = wins || (member.rank == rank && member.wins);
      }
      lost[t] = competes && !wins && is_viable(t);
      if (lost[t]) report_loser(rank);
    }
    return lost;
  }

  bool is_viable(SymbolId t) const {
    for (const TerminalSet& viable : viable_sets_)
      if (has(viable.data(), t)) return true;
    return grammar_.terminals[t].skip;
  }

  void report_loser(uint32_t rank) {
    for (const Context& context : contexts_)
      for (uint32_t state = 0; state < context.graph->num_states(); state++)
        for (const LexGraph::Member& member : context.graph->members(state)) {
          if (member.rank != rank || !terminals_.nullable(member.rest)) continue;
          const Terminal& loser = terminal_of_rank(rank);
          Text message(loser.name);
          message << " can never be read: all its texts are also " << terminal_of_rank(context.graph->winner(state)).name
                  << ", or of terminals before it, and keywords win over regexes, longer patterns over shorter ones";
          return report(grammar_.ambiguous ? Severity::Warning : Severity::Error, loser.place, message, context.graph->text_to(state));
        }
  }

  // Is there a way on from every text that can become terminal `t`, with the parser in `state` afterwards?
  void check_after(uint32_t here, SymbolId t, LrState state) {
    Checked check{here, viable_of_[state], context_of_[state]};
    const TerminalSet& viable = viable_sets_[check.viable];
    if (reported_[t] || has(viable.data(), END)) return;
    if (std::find(checked_[t].begin(), checked_[t].end(), check) != checked_[t].end()) return;
    checked_[t].push_back(check);
    for (const Context::End& end : contexts_[here].ends[t]) {
      if (can_go_on(end.by, viable, contexts_[check.after])) continue;
      reported_[t] = true;
      return report_stuck(t, viable, contexts_[here].graph->text_to(end.state));
    }
  }

  bool can_go_on(const ClassSet& ended_by, const TerminalSet& viable, const Context& after) const {
    for (size_t c = 0; c < terminals_.num_classes(); c++)
      if (ended_by.has(c) && meets(after.begins[c].data(), viable.data(), num_words_)) return true;
    return false;
  }

  void report_stuck(SymbolId t, const TerminalSet& viable, const Text& example) {
    const Terminal& terminal = grammar_.terminals[t];
    Text message("nothing can end ");
    message << terminal.name << " where ";
    size_t listed = 0;
    for (SymbolId u = 1; u < grammar_.terminals.size(); u++) {
      if (!has(viable.data(), u)) continue;
      if (listed++ < 4) message << (listed > 1 ? " or " : "") << grammar_.terminals[u].name;
    }
    if (listed > 4) message << " or " << listed - 4 << " others";
    message << " must follow: what they begin with would continue it; let SKIP match something that cannot, or change the patterns";
    // Another way to read the text may go on.
    report(table_.general || grammar_.ambiguous ? Severity::Warning : Severity::Error, terminal.place, message, example);
  }

  struct Checked {
    uint32_t here, viable, after;
    bool operator==(const Checked&) const = default;
  };

  const Grammar& grammar_;
  const LrTable& table_;
  std::vector<Problem>& problems_;
  LexTerminals terminals_;
  size_t num_words_;
  std::vector<Context> contexts_;
  std::vector<bool> lexing_;                      // (states,)
  std::vector<uint32_t> context_of_, viable_of_;  // (states,)
  std::vector<TerminalSet> viable_sets_;
  std::vector<std::vector<Checked>> checked_;  // (terminals,)
  std::vector<bool> reported_;  // (terminals,)
  size_t num_lex_states_ = 0;
  bool complete_ = true;
};

}  // namespace

void check_lexical(const Grammar& grammar, const LrTable& table, std::vector<Problem>& problems) {
  LexicalCheck(grammar, table, problems).run();
}

}  // namespace aici::grammar
