#include "sample.hpp"

#include "terminals.hpp"

namespace aici::grammar {
namespace {

constexpr size_t MAX_TRIED = 4096;

}  // namespace

std::vector<uint8_t> readable_bytes(const std::vector<uint8_t>& classes) {
  std::vector<uint8_t> order, out;
  auto range = [&order](int first, int last) {
    for (int byte = first; byte <= last; byte++) order.push_back(static_cast<uint8_t>(byte));
  };
  range('a', 'z'), range('0', '9'), range('A', 'Z'), range('_', '_'), range('!', '~'), range(' ', ' '), range(0, 255);
  std::vector<bool> seen(256, false);
  for (uint8_t byte : order) {
    if (seen[classes[byte]]) continue;
    seen[classes[byte]] = true;
    out.push_back(byte);
  }
  return out;
}

// Breadth first over derivatives.
Text sample_word(const Terminal& terminal) {
  if (terminal.kind == Terminal::Kind::Keyword || terminal.kind == Terminal::Kind::End) return terminal.text;
  regex::Exprs exprs;
  struct Reached {
    regex::ExprId expr;
    uint32_t from;
    uint8_t byte;
  };
  std::vector<Reached> reached{{terminal_expr(terminal, exprs), 0, 0}};
  std::vector<bool> seen;
  std::vector<uint8_t> bytes = readable_bytes(exprs.byte_classes());
  for (uint32_t at = 0; at < reached.size() && at < MAX_TRIED; at++) {
    if (exprs.nullable(reached[at].expr)) {
      std::vector<uint8_t> word;
      for (uint32_t back = at; back; back = reached[back].from) word.push_back(reached[back].byte);
      Text out;
      while (!word.empty()) out << static_cast<char>(word.back()), word.pop_back();
      return out;
    }
    for (uint8_t byte : bytes) {
      regex::ExprId next = exprs.derive(reached[at].expr, byte);
      if (seen.size() <= next) seen.resize(next + 1, false);
      if (next == regex::NOTHING || seen[next]) continue;
      seen[next] = true;
      reached.push_back({next, at, byte});
    }
  }
  Text name("<");
  return name << terminal.name << '>';
}

Sampler::Sampler(const Grammar& grammar) : grammar_(grammar), words_(grammar.terminals.size()) {
  for (const Terminal& terminal : grammar.terminals) {
    if (!terminal.skip) continue;
    regex::Exprs exprs;
    regex::ExprId expr = terminal_expr(terminal, exprs);
    spaced_ = spaced_ || exprs.nullable(exprs.derive(expr, ' '));
  }
}

void Sampler::separate() {
  if (!out_.empty() && spaced_) out_ << ' ';
}

void Sampler::add(SymbolId terminal) {
  if (words_[terminal].empty()) words_[terminal] = sample_word(grammar_.terminals[terminal]);
  separate();
  out_ << words_[terminal];
}

void Sampler::add(std::string_view mark) {
  separate();
  out_ << mark;
}

}  // namespace aici::grammar
