#include "conflicts.hpp"

#include <algorithm>

#include "sample.hpp"

namespace aici::grammar {
namespace {

constexpr size_t MAX_REPORTED = 10;
constexpr size_t MAX_EXAMPLE = 60;  // terminals

// Find the shortest way from the start to an item of a state before a terminal that can really come there. The way is a
// walk over (state, item, ready), where ready says that, on this walk, the terminal may follow the production of the
// item. Reading a symbol costs one, entering a rule costs nothing.
class WayFinder {
 public:
  WayFinder(const TableParts& parts, SymbolId terminal) : parts_(parts), terminal_(terminal) {}

  // The symbols read; nullopt if there is no such way, which cannot happen for a reduction with this lookahead.
  std::vector<SymbolId> find(StateId state, ItemId item) {
    visit({0, parts_.items.first_of(0), terminal_ == END}, NONE, true);
    for (size_t level = 0; !levels_[level].empty(); level ^= 1) {
      std::vector<uint32_t>& now = levels_[level];
      for (size_t i = 0; i < now.size(); i++) {  // grows while rules are entered
        Node node = nodes_[now[i]].node;
        if (node.state == state && node.item == item && node.ready) return symbols_to(now[i]);
        expand(node, now[i], now, levels_[level ^ 1]);
      }
      now.clear();
    }
    return {};
  }

 private:
  static constexpr uint32_t NONE = UINT32_MAX;
  struct Node {
    StateId state;
    ItemId item;
    bool ready;
    bool operator==(const Node&) const = default;
  };
  struct Visited {
    Node node;
    uint32_t from;
    bool read;  // reached by reading a symbol
  };

  static uint32_t hash(const Node& node) {
    uint32_t value = (node.state * 0x9E3779B1u ^ node.item) * 0x85EBCA6Bu ^ node.ready;
    return value ^ value >> 15;
  }

  void visit(Node node, uint32_t from, bool read) { visit(node, from, read, levels_[0]); }
  void visit(Node node, uint32_t from, bool read, std::vector<uint32_t>& list) {
    table_.find_or_add(
        hash(node), [&](uint32_t n) { return nodes_[n].node == node; },
        [&] {
          nodes_.push_back({node, from, read});
          list.push_back(static_cast<uint32_t>(nodes_.size() - 1));
          return static_cast<uint32_t>(nodes_.size() - 1);
        });
  }

  void expand(Node node, uint32_t from, std::vector<uint32_t>& now, std::vector<uint32_t>& later) {
    SymbolId next = parts_.items.next(node.item);
    if (next == Items::AT_END) return;
    for (const Automaton::Edge& edge : parts_.automaton.edges(node.state))
      if (edge.symbol == next) visit({edge.to, node.item + 1, node.ready}, from, true, later);
    if (parts_.grammar.is_terminal(next)) return;
    bool ready = has(parts_.items.rest_first(node.item), terminal_) || (node.ready && parts_.items.rest_nullable(node.item));
    for (ProductionId p : parts_.facts.productions_of(next)) visit({node.state, parts_.items.first_of(p), ready}, from, false, now);
  }

  std::vector<SymbolId> symbols_to(uint32_t at) const {
    std::vector<SymbolId> out;
    for (; nodes_[at].from != NONE; at = nodes_[at].from)
      if (nodes_[at].read) out.push_back(parts_.items.next(nodes_[at].node.item - 1));
    std::reverse(out.begin(), out.end());
    return out;
  }

  const TableParts& parts_;
  SymbolId terminal_;
  std::vector<Visited> nodes_;
  std::vector<uint32_t> levels_[2];
  regex::InternTable table_;
};

class Reporter {
 public:
  explicit Reporter(const TableParts& parts) : parts_(parts), grammar_(parts.grammar), sampler_(parts.grammar) {}

  Problem problem(const Conflict& conflict, Outcome outcome) {
    ProductionId reduced = conflict.reductions.back();
    ItemId item = end_of(reduced);
    std::vector<SymbolId> way = WayFinder(parts_, conflict.terminal).find(conflict.state, item);
    Problem out{Severity::Warning, grammar_.productions[reduced].place, {}};
    out.message << "conflict before " << name(conflict.terminal) << ": it may ";
    if (conflict.shift) {
      ItemId other = shifting_item(conflict);
      out.message << "continue ";
      show(out.message, other);
    } else {
      out.message << "follow ";
      show(out.message, end_of(conflict.reductions[0]));
    }
    out.message << " or follow ";
    show(out.message, item);
    out.message << "; after";
    for (SymbolId symbol : way) out.message << ' ' << name(symbol);
    if (way.empty()) out.message << " nothing";
    out.message << (outcome == Outcome::Shifted ? "; it continues, as with yacc, unless %left, %right or %nonassoc say otherwise"
                                                : "; both are followed, by the slower general parser");
    for (SymbolId symbol : way) add_shortest(symbol);
    sampler_.add(".");
    if (conflict.terminal != END) sampler_.add(conflict.terminal);
    out.example = sampler_.take();
    return out;
  }

  // Conflicts with the same key look the same to a reader.
  uint64_t key(const Conflict& conflict) {
    uint64_t other = conflict.shift ? parts_.items.production(shifting_item(conflict)) : conflict.reductions[0];
    return uint64_t{conflict.shift} << 63 | other << 32 | conflict.reductions.back();
  }

 private:
  ItemId end_of(ProductionId p) const {
    return parts_.items.first_of(p) + static_cast<ItemId>(grammar_.productions[p].body.size());
  }

  ItemId shifting_item(const Conflict& conflict) {
    for (ItemId item : parts_.automaton.kernel(conflict.state))
      if (parts_.items.next(item) == conflict.terminal) return item;
    for (SymbolId head : parts_.automaton.closure(conflict.state).nonterminals)
      for (ProductionId p : parts_.facts.productions_of(head))
        if (parts_.items.next(parts_.items.first_of(p)) == conflict.terminal) return parts_.items.first_of(p);
    __builtin_unreachable();
  }

  std::string_view name(SymbolId symbol) const {
    size_t n = symbol - grammar_.terminals.size();
    return grammar_.is_terminal(symbol) ? grammar_.terminals[symbol].name : grammar_.nonterminals[n].name;
  }

  // head : read . rest (line 3)
  void show(Text& out, ItemId item) const {
    const Production& production = grammar_.productions[parts_.items.production(item)];
    out << '`' << name(production.head) << " :";
    for (size_t i = 0; i <= production.body.size(); i++) {
      if (i == parts_.items.dot(item)) out << " .";
      if (i < production.body.size()) out << ' ' << name(production.body[i]);
    }
    out << "` (line " << production.place.line << ')';
  }

  // A shortest text of the symbol.
  void add_shortest(SymbolId symbol) {
    std::vector<SymbolId> stack{symbol};
    for (size_t added = 0; !stack.empty();) {
      SymbolId top = stack.back();
      stack.pop_back();
      if (grammar_.is_terminal(top)) {
        if (added++ == MAX_EXAMPLE) return sampler_.add("...");
        sampler_.add(top);
      } else {
        const std::vector<SymbolId>& body = grammar_.productions[parts_.facts.shortest_production(top)].body;
        stack.insert(stack.end(), body.rbegin(), body.rend());
      }
    }
  }

  const TableParts& parts_;
  const Grammar& grammar_;
  Sampler sampler_;
};

}  // namespace

void report_conflicts(const TableParts& parts, const std::vector<Conflict>& conflicts, Outcome outcome, std::vector<Problem>& problems) {
  if (conflicts.empty()) return;
  Reporter reporter(parts);
  std::vector<uint64_t> seen;
  for (const Conflict& conflict : conflicts) {
    uint64_t key = reporter.key(conflict);
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
    if (seen.size() < MAX_REPORTED) problems.push_back(reporter.problem(conflict, outcome));
    seen.push_back(key);
  }
  if (seen.size() > MAX_REPORTED) {
    Text message;
    add_warning(problems, {}, message << seen.size() - MAX_REPORTED << " more conflicts are not listed");
  }
}

}  // namespace aici::grammar
