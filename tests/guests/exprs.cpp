// Expressions, asked about by tests: {"expr", "texts"}, the expression in postfix, words separated by spaces, texts in
// hexadecimal. Answer: {"error", "nothing", "states", "texts"}: per text 0 (nothing begins like this), 1 (something
// does), 2 (it matches).
//
// N E nothing, empty; B61-7a,30-30 a set of bytes; .n |n &n of the n expressions before; ~ complement; R min max of the
// expression before, max -1 for unbounded; D n multiples; rn rule n; =n defines rule n as the expression before.
#include <charconv>

#include "aici/json.hpp"
#include "aici/regex/dfa.hpp"
#include "aici/tool.hpp"

using namespace aici;
using namespace aici::regex;

namespace {

uint64_t number(std::string_view text, int base = 10) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

std::string_view next_word(std::string_view& text, char separator = ' ') {
  size_t end = text.find(separator);
  std::string_view word = text.substr(0, end);
  text = end == text.npos ? std::string_view{} : text.substr(end + 1);
  return word;
}

ExprId build(std::string_view text, Exprs& exprs) {
  std::vector<ExprId> stack, rules;
  auto take = [&](size_t n) {
    std::vector<ExprId> taken(stack.end() - static_cast<ptrdiff_t>(n), stack.end());
    stack.resize(stack.size() - n);
    return taken;
  };
  auto named = [&](size_t n) {
    while (rules.size() <= n) rules.push_back(exprs.rule());
    return rules[n];
  };
  while (!text.empty()) {
    std::string_view word = next_word(text), rest = word.substr(1);
    ExprId e = NOTHING;
    switch (word[0]) {
      case 'E':
        e = EMPTY;
        break;
      case 'B': {
        ByteSet set;
        while (!rest.empty()) {
          std::string_view range = next_word(rest, ',');
          set = set | ByteSet::range(static_cast<uint8_t>(number(range.substr(0, 2), 16)), static_cast<uint8_t>(number(range.substr(3), 16)));
        }
        e = exprs.bytes(set);
        break;
      }
      case '.': {
        e = EMPTY;
        std::vector<ExprId> parts = take(static_cast<size_t>(number(rest)));
        for (size_t i = parts.size(); i-- > 0;) e = exprs.concat(parts[i], e);
        break;
      }
      case '|':
        e = exprs.alt(take(static_cast<size_t>(number(rest))));
        break;
      case '&':
        e = exprs.both(take(static_cast<size_t>(number(rest))));
        break;
      case '~':
        e = exprs.complement(take(1)[0]);
        break;
      case 'R': {
        auto min = static_cast<uint32_t>(number(rest));
        std::string_view max = next_word(text);
        e = exprs.repeat(take(1)[0], min, max[0] == '-' ? UNBOUNDED : static_cast<uint32_t>(number(max)));
        break;
      }
      case 'D':
        e = exprs.digits_multiple_of(number(rest));
        break;
      case 'r':
        e = named(static_cast<size_t>(number(rest)));
        break;
      case '=':
        exprs.define(named(static_cast<size_t>(number(rest))), take(1)[0]);
        continue;
    }
    stack.push_back(e);
  }
  return stack.back();
}

char tried(Dfa& dfa, std::string_view hex, bool forget) {
  StateId state = dfa.start();
  for (; !hex.empty(); hex = hex.substr(2)) {
    state = dfa.next(state, static_cast<uint8_t>(number(hex.substr(0, 2), 16)));
    if (state == Dfa::DEAD) return '0';
    if (forget) dfa.compact({&state, 1});
  }
  return dfa.accepts(state) ? '2' : state == Dfa::DEAD ? '0' : '1';
}

Text answer(std::string_view question) {
  Exprs exprs;
  Text text = *json::unescaped(*json::get(question, "expr")), texts = *json::unescaped(*json::get(question, "texts"));
  ExprId root = build(text, exprs);
  const char* error = exprs.error();
  Dfa dfa(static_cast<Exprs&&>(exprs), root);
  Text out("{\"nothing\":");
  out << (dfa.start() == Dfa::DEAD ? "true" : "false") << ",\"texts\":\"";
  std::string_view rest = texts;
  for (bool forget = false; !rest.empty(); forget = !forget) out << tried(dfa, next_word(rest, ','), forget);
  out << "\",\"states\":" << dfa.num_states() << ",\"error\":";
  if (!error) error = dfa.error();
  return out << json::quoted(error ? error : "") << '}';
}

}  // namespace

AICI_EXPOSE_TOOL(answer)
