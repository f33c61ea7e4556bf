#include "aici/grammar/accepts.hpp"

#include "aici/grammar/recognizer.hpp"
#include "aici/host.hpp"
#include "aici/json.hpp"

namespace aici::grammar {
namespace {

constexpr size_t COLLAPSE_BYTES = 4096;

}  // namespace

Text accepts_answer(const Grammar& grammar, const LrTable& table, std::string_view input) {
  GrammarRecognizer rec(grammar, table);
  size_t at = 0;
  for (; at < input.size() && rec.try_push_byte(static_cast<uint8_t>(input[at])); at++) {
    if (at % COLLAPSE_BYTES) continue;
    rec.collapse();
    rec.trie_finished();
  }
  bool complete = rec.special_allowed(SpecialToken::EndOfSequence);
  Place place{1, 1};
  for (char c : input.substr(0, at)) {
    if (c == '\n') place = {place.line + 1, 1};
    else place.column += (c & 0xC0) != 0x80;
  }
  Text out("{\"accepted\":");
  out << (complete && at == input.size() ? "true" : "false") << ",\"at\":" << at << ",\"line\":" << place.line
      << ",\"column\":" << place.column << ",\"expected\":[";
  bool first = true;
  for (SymbolId terminal : rec.expected()) {
    out << (first ? "" : ",") << json::quoted(terminal == END ? "end of input" : grammar.terminals[terminal].name.view());
    first = false;
  }
  if (const char* error = rec.error()) fail(error);
  return out << "],\"complete\":" << (complete ? "true" : "false") << '}';
}

}  // namespace aici::grammar
