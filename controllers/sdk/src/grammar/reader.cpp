// Resolve the names of a parsed grammar.
#include "aici/grammar/reader.hpp"

#include "aici/regex/intern.hpp"
#include "aici/utf8.hpp"
#include "analysis.hpp"
#include "syntax.hpp"
#include "terminals.hpp"

namespace aici::grammar {
namespace {

constexpr std::string_view SKIP = "SKIP", NEVER = "NEVER";  // rules addressed to the lexer
constexpr uint32_t NONE = UINT32_MAX;

// The meaning of a name or a quoted text.
struct Entry {
  Word word;
  const WrittenRule* rule = nullptr;
  uint32_t nonterminal = NONE;  // an index, not yet a symbol
  uint32_t terminal = NONE;
  const Word* declared = nullptr;    // under %token
  const Word* alias = nullptr;       // the text of a declared token, if not its name
  const Word* precedence_at = nullptr;
  Precedence precedence{};
  uint32_t preference = 0;
  bool no_text = false;  // the second or third name under %indentation
  bool prec_used = false;
  bool reported = false;
};

bool is_lexical(const WrittenRule& rule) { return rule.name.text == SKIP || rule.name.text == NEVER; }

char folded(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

// Keywords that differ only in case are equal if case does not matter.
struct WordIdentity {
  bool caseless;

  bool folds(const Word& word) const { return caseless && word.quoted && !word.json && !is_quoted_regex(word.text); }
  bool same(const Word& x, const Word& y) const {
    if (x.quoted != y.quoted || x.json != y.json || x.text.size() != y.text.size()) return false;
    if (!folds(x) || !folds(y)) return x.text == y.text;
    for (size_t i = 0; i < x.text.size(); i++)
      if (folded(x.text[i]) != folded(y.text[i])) return false;
    return true;
  }
  uint32_t hash(const Word& word) const {
    uint32_t hash = word.quoted + word.json;
    for (char c : word.text) hash = (hash ^ static_cast<uint8_t>(folds(word) ? folded(c) : c)) * 0x01000193u, hash ^= hash >> 15;
    return hash;
  }
};

class Resolver {
 public:
  Resolver(const WrittenGrammar& written, std::vector<Problem>& problems) : written_(written), problems_(problems) {}

  Grammar resolve() {
    declare_rules();
    declare_tokens();
    declare_indentation();
    declare_precedences();
    declare_preferences();
    grammar_.ambiguous = written_.ambiguous;
    grammar_.contextual = written_.contextual || written_.ambiguous;
    grammar_.general = written_.general || written_.ambiguous;
    grammar_.expected_conflicts = written_.expected_conflicts;
    grammar_.scannerless = written_.scannerless;
    grammar_.terminals.push_back({});
    grammar_.terminals[END].name = Text("end of input");
    add_start();
    for (const WrittenRule& rule : written_.rules) {
      if (is_lexical(rule)) {
        add_lexical(rule);
      } else {
        add_rule(rule);
      }
    }
    add_indentation();
    warn_of_unused_declarations();
    // Terminals come first among the symbols, and their number is known only now.
    auto num_terminals = static_cast<SymbolId>(grammar_.terminals.size());
    for (Production& production : grammar_.productions) {
      production.head += num_terminals;
      for (SymbolId& symbol : production.body) symbol = symbol & RULE ? (symbol & ~RULE) + num_terminals : symbol;
    }
    return static_cast<Grammar&&>(grammar_);
  }

 private:
  static constexpr SymbolId RULE = 1u << 31;  // marks the index of a nonterminal in a body, until terminals are counted

  Entry& entry(const Word& word) {
    uint32_t id = table_.find_or_add(
        identity_.hash(word), [&](uint32_t n) { return identity_.same(entries_[n].word, word); },
        [&] {
          entries_.push_back({word});
          return static_cast<uint32_t>(entries_.size() - 1);
        });
    return entries_[id];
  }
  // A declared token is the keyword of its alias, or of its own name.
  Entry& terminal_entry(const Word& word) {
    if (word.quoted || !entry(word).declared) return entry(word);
    const Word* alias = entry(word).alias;
    return entry({alias ? alias->text : word.text, true, word.place});
  }

  template <typename... Parts>
  void error(Place place, Parts... parts) {
    Text message;
    (message << ... << parts);
    add_error(problems_, place, message);
  }

  void declare_rules() {
    for (const WrittenRule& rule : written_.rules) {
      Entry& known = entry(rule.name);
      if (known.rule) {
        error(rule.name.place, "the rule ", rule.name.text, " is defined a second time; the first is in line ",
              known.rule->name.place.line, ": join them with |");
        continue;
      }
      known.rule = &rule;
    }
  }

  void declare_tokens() {
    for (const Word& token : written_.tokens) {
      Entry& known = entry(token);
      if (known.rule) {
        error(token.place, token.text, " is declared with %token and is also a rule: remove the one or the other");
      } else if (known.declared) {
        error(token.place, token.text, " is declared with %token a second time");
      } else {
        known.declared = &token;
      }
    }
    for (const WrittenGrammar::Alias& alias : written_.aliases) entry(alias.name).alias = &alias.text;
  }

  void declare_indentation() {
    for (size_t i = 0; i < written_.indentation.size(); i++) {
      const Word& word = written_.indentation[i];
      Entry& known = entry(word);
      if (i == 0) continue;
      if (word.quoted || known.rule || known.declared)
        error(word.place, word.text, " stands for a change of the indentation, which has no text: give it a name that nothing else has");
      known.no_text = true;
    }
  }

  // A terminal without text; the same one each time.
  SymbolId change_of_indentation(Entry& known) {
    if (known.terminal == NONE) {
      known.terminal = static_cast<uint32_t>(grammar_.terminals.size());
      grammar_.terminals.push_back({.name = Text(known.word.text), .place = known.word.place});
    }
    return known.terminal;
  }

  void add_indentation() {
    if (written_.indentation.empty()) {
      if (!written_.brackets.empty()) error(written_.brackets[0].place, "%brackets says nothing without %indentation");
      return;
    }
    const Word& newline = written_.indentation[0];
    Indentation& out = grammar_.indentation;
    const WrittenRule* rule = newline.quoted ? nullptr : entry(newline).rule;
    bool single = rule && rule->alternatives.size() == 1 && rule->alternatives[0].symbols.size() == 1 && rule->alternatives[0].symbols[0].quoted;
    if (!newline.quoted && !single) return error(newline.place, "%indentation ", newline.text, ": the newline is one terminal, a rule that is one quoted regex");
    if (grammar_.scannerless) return error(newline.place, "a scannerless grammar has no %indentation: no lexer finds the lines");
    out.newline = terminal(newline.quoted ? newline : rule->alternatives[0].symbols[0]);
    out.indent = change_of_indentation(entry(written_.indentation[1]));
    out.dedent = change_of_indentation(entry(written_.indentation[2]));
    for (size_t i = 0; i < written_.brackets.size(); i++) (i % 2 ? out.closing : out.opening).push_back(terminal(written_.brackets[i]));
    out.final_newline = written_.final_newline;
  }

  void declare_precedences() {
    uint32_t level = 0;
    for (const WrittenGrammar::Level& line : written_.levels) {
      level++;
      for (const Word& word : line.words) {
        Entry& known = terminal_entry(word);
        if (known.rule) {
          error(word.place, word.text, " is a rule: precedence belongs to terminals, name the quoted text itself");
        } else if (known.precedence_at) {
          error(word.place, word.text, " has a precedence already, from line ", known.precedence_at->place.line);
        } else {
          known.precedence_at = &word;
          known.precedence = {level, line.assoc};
        }
      }
    }
  }

  void declare_preferences() {
    uint32_t level = 0;
    for (const std::vector<Word>& line : written_.preferences) {
      level++;
      for (const Word& word : line) {
        Entry& known = terminal_entry(word);
        if (known.rule || !known.word.quoted) {
          error(word.place, "%prefer ", word.text, ": name the quoted text itself, or a terminal declared with %token");
        } else if (known.preference) {
          error(word.place, word.text, " stands under %prefer a second time");
        }
        known.preference = level;
      }
    }
  }

  void add_start() {
    grammar_.nonterminals.push_back({Text("$start"), {}});
    const WrittenRule* start = nullptr;
    for (const WrittenRule& rule : written_.rules)
      if (!is_lexical(rule) && !start) start = &rule;
    Place place = start ? start->name.place : Place{};
    if (written_.start) {
      place = written_.start->place;
      start = entry(*written_.start).rule;
      if (!start || is_lexical(*start)) undefined(*written_.start, "the rule of %start, ", ", is not defined");
    }
    if (!start) {
      if (!has_errors(problems_)) error(place, "the grammar has no rule but those of the lexer, SKIP and NEVER");
      return;
    }
    grammar_.productions.push_back({0, {nonterminal(entry(start->name))}, {}, place});
  }

  SymbolId nonterminal(Entry& known) {
    if (known.nonterminal == NONE) {
      known.nonterminal = static_cast<uint32_t>(grammar_.nonterminals.size());
      grammar_.nonterminals.push_back({Text(known.word.text), known.rule->name.place});
      check_count();
    }
    return known.nonterminal | RULE;
  }

  SymbolId terminal(const Word& word) {
    Entry& known = terminal_entry(word);
    if (known.terminal == NONE) {
      known.terminal = static_cast<uint32_t>(grammar_.terminals.size());
      grammar_.terminals.push_back(known.word.json ? json_terminal(known.word.text, word.place)
                                                   : make_terminal(known.word.text, word.place, known.precedence, problems_));
      Terminal& added = grammar_.terminals.back();
      added.preference = known.preference;
      added.caseless = written_.caseless && added.kind == Terminal::Kind::Keyword;
      check_count();
    }
    return known.terminal;
  }

  SymbolId symbol(const Word& word) {
    if (word.quoted || entry(word).declared) return terminal(word);
    Entry& known = entry(word);
    if (known.no_text) return change_of_indentation(known);
    if (known.rule && is_lexical(*known.rule)) {
      error(word.place, word.text, " cannot be used in a rule: what it lists is ",
            word.text == SKIP ? "skipped everywhere" : "refused everywhere");
    } else if (known.rule) {
      return nonterminal(known);
    } else if (!known.reported) {
      undefined(word, "", " is neither a rule nor declared with %token");
      known.reported = true;
    }
    return END;
  }

  void undefined(const Word& word, std::string_view before, std::string_view after) {
    std::vector<std::string_view> names;
    for (const WrittenRule& rule : written_.rules)
      if (!is_lexical(rule)) names.push_back(rule.name.text);
    for (const Word& token : written_.tokens) names.push_back(token.text);
    std::string_view near = nearest(word.text, names);
    if (near.empty()) {
      error(word.place, before, word.text, after);
    } else {
      error(word.place, before, word.text, after, ": did you mean ", near, "?");
    }
  }

  void add_rule(const WrittenRule& rule) {
    if (entry(rule.name).rule != &rule) return;  // reported
    SymbolId head = nonterminal(entry(rule.name)) & ~RULE;
    bool only_terminals = true;
    for (const WrittenAlternative& alternative : rule.alternatives) {
      if (recovers(alternative)) continue;
      Production production{head, {}, {}, alternative.place};
      for (const Word& word : alternative.symbols) {
        SymbolId id = symbol(word);
        production.body.push_back(id);
        if (!(id & RULE)) production.precedence = grammar_.terminals[id].precedence;
      }
      if (alternative.prec) production.precedence = precedence(*alternative.prec);
      only_terminals = only_terminals && production.body.size() == 1 && !(production.body[0] & RULE);
      grammar_.productions.push_back(static_cast<Production&&>(production));
    }
    if (grammar_.productions.size() > MAX_PRODUCTIONS && !too_large_) {
      error(rule.name.place, "the grammar has more than ", MAX_PRODUCTIONS, " alternatives");
      too_large_ = true;
    }
    if (only_terminals && is_capital(rule.name.text)) name_terminals(rule, head);
  }

  // yacc's `error` stands for text that a program skips after a mistake, which generated text does not make.
  bool recovers(const WrittenAlternative& alternative) {
    for (const Word& word : alternative.symbols) {
      if (word.quoted || word.text != "error" || entry(word).rule || entry(word).declared) continue;
      if (!entry(word).reported) add_warning(problems_, word.place, "alternatives with error are left out: they recover from mistakes");
      return entry(word).reported = true;
    }
    return false;
  }

  Precedence precedence(const Word& word) {
    Entry& known = terminal_entry(word);
    known.prec_used = true;
    if (!known.precedence_at)
      error(word.place, "%prec ", word.text, ": ", word.text, " has no precedence; declare it with %left, %right or %nonassoc");
    return known.precedence;
  }

  static bool is_capital(std::string_view name) {
    for (char c : name)
      if (c >= 'a' && c <= 'z') return false;
    return true;
  }

  // IDENTIFIER : "/[a-z]+/" ; gives the regex a name. The best name of a keyword is the keyword itself.
  void name_terminals(const WrittenRule& rule, SymbolId head) {
    for (size_t p = grammar_.productions.size(); p-- > 0 && grammar_.productions[p].head == head;) {
      Terminal& terminal = grammar_.terminals[grammar_.productions[p].body[0]];
      if (terminal.kind == Terminal::Kind::Regex && terminal.name.view().front() == '/') terminal.name = Text(rule.name.text);
    }
  }

  void add_lexical(const WrittenRule& rule) {
    if (entry(rule.name).rule != &rule) return;
    if (grammar_.scannerless) error(rule.name.place, "a scannerless grammar has no ", rule.name.text, ": nothing is skipped, no lexer reads ahead");
    for (const WrittenAlternative& alternative : rule.alternatives) {
      bool single = alternative.symbols.size() == 1 && (alternative.symbols[0].quoted || entry(alternative.symbols[0]).declared);
      if (!single || alternative.prec) {
        error(alternative.place, "each alternative of ", rule.name.text, " is one quoted text, and nothing else");
      } else {
        Terminal& listed = grammar_.terminals[terminal(alternative.symbols[0])];
        (rule.name.text == SKIP ? listed.skip : listed.never) = true;
      }
    }
  }

  void warn_of_unused_declarations() {
    for (size_t i = 0, n = entries_.size(); i < n; i++) {
      Entry known = entries_[i];  // a copy: looking up may move the entries
      const Word* declared = known.declared ? known.declared : known.precedence_at;
      bool used = known.declared ? terminal_entry(known.word).terminal != NONE : known.terminal != NONE || known.prec_used;
      if (!declared || used || (known.word.quoted && entry({known.word.text, false, {}}).declared)) continue;
      Text message;
      message << declared->text << " is declared and never used: it is left out";
      add_warning(problems_, declared->place, message);
    }
  }

  void check_count() {
    if (grammar_.terminals.size() + grammar_.nonterminals.size() <= MAX_SYMBOLS || too_large_) return;
    error({}, "the grammar has more than ", MAX_SYMBOLS, " rules and terminals");
    too_large_ = true;
  }

  const WrittenGrammar& written_;
  WordIdentity identity_{written_.caseless};
  std::vector<Problem>& problems_;
  std::vector<Entry> entries_;
  regex::InternTable table_;
  Grammar grammar_;
  bool too_large_ = false;
};

}  // namespace

std::optional<Grammar> read_grammar(std::string_view text, std::vector<Problem>& problems) {
  if (text.size() > MAX_GRAMMAR_BYTES) {
    add_error(problems, {}, "the grammar is larger than 1 MiB");
    return std::nullopt;
  }
  std::vector<uint32_t> code_points;
  if (std::optional<size_t> bad = decode_utf8(text, code_points)) {
    Place place{1, 1};
    for (uint32_t c : code_points) c == '\n' ? (place.line++, place.column = 1) : place.column++;
    add_error(problems, place, "the grammar is not UTF-8");
    return std::nullopt;
  }
  WrittenGrammar written = parse_syntax(text, problems);
  Grammar grammar = Resolver(written, problems).resolve();
  if (has_errors(problems)) return std::nullopt;
  check_terminals(grammar, problems);
  check_rules(grammar, problems);
  if (has_errors(problems)) return std::nullopt;
  return grammar;
}

Text describe(const Problem& problem) {
  Text out;
  if (problem.place.line) out << "line " << problem.place.line << ", column " << problem.place.column << ": ";
  out << problem.message;
  if (!problem.example.empty()) out << "\n  example: " << problem.example;
  return out;
}

}  // namespace aici::grammar
