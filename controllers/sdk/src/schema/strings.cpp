#include "aici/schema/strings.hpp"

#include <algorithm>

#include "aici/regex/code_points.hpp"
#include "aici/sort.hpp"
#include "aici/utf8.hpp"

namespace aici::schema {
namespace {

using regex::EMPTY;
using regex::ExprId;
using regex::NOTHING;
using regex::UNBOUNDED;

// Lists whose words nest deeper (a, aa, aaa, ...) leave the rest to the simplification of alternations.
constexpr int MAX_TREE_DEPTH = 100;

// The spelling of most JSON writers that keep non-ASCII text.
Text canonical(std::string_view text) {
  static constexpr char HEX[] = "0123456789abcdef";
  static constexpr std::string_view MEANINGS = "\"\\\b\f\n\r\t", LETTERS = "\"\\bfnrt";
  Text out;
  for (char c : text) {
    size_t at = MEANINGS.find(c);
    auto byte = static_cast<uint8_t>(c);
    if (at != std::string_view::npos) {
      out << '\\' << LETTERS[at];
    } else if (byte < 0x20) {
      out << "\\u00" << HEX[byte >> 4] << HEX[byte & 15];
    } else {
      out << c;
    }
  }
  return out;
}

uint32_t length_of(std::string_view text) {
  return static_cast<uint32_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

ExprId literal(std::string_view bytes, regex::Exprs& exprs, ExprId then = EMPTY) {
  for (size_t i = bytes.size(); i-- > 0;) {
    auto byte = static_cast<uint8_t>(bytes[i]);
    then = exprs.concat(exprs.bytes(regex::ByteSet::range(byte, byte)), then);
  }
  return then;
}

// One of `texts`, sorted and different, from byte `at` on; all texts agree in the bytes before.
ExprId tree(std::span<const Text> texts, size_t at, regex::Exprs& exprs, int depth = 0) {
  std::string_view first = texts.front(), last = texts.back();
  if (texts.size() == 1) return literal(first.substr(at), exprs);
  size_t common = at;
  while (first[common] == last[common]) common++;
  std::vector<ExprId> ways;
  while (!texts.empty()) {
    char byte = texts.front().view()[common];
    size_t num = 1;
    if (depth < MAX_TREE_DEPTH)
      while (num < texts.size() && texts[num].view()[common] == byte) num++;
    ways.push_back(tree(texts.first(num), common, exprs, depth + 1));
    texts = texts.subspan(num);
  }
  return literal(first.substr(at, common - at), exprs, exprs.alt(ways));
}

}  // namespace

StringLanguages::StringLanguages(regex::Exprs& exprs) : exprs_(exprs) {
  regex::CodePoints all;
  all.add(0, regex::MAX_CODE_POINT);
  character_ = all.to_expr(exprs, regex::Encoding::JsonString);
  any_ = length(0, UNBOUNDED);
}

ExprId StringLanguages::spellings(std::string_view text) {
  std::vector<uint32_t> code_points;
  decode_utf8(text, code_points);
  ExprId e = EMPTY;
  for (size_t i = code_points.size(); i-- > 0;) {
    regex::CodePoints one;
    one.add(code_points[i], code_points[i]);
    e = exprs_.concat(one.to_expr(exprs_, regex::Encoding::JsonString), e);
  }
  return e;
}

ExprId StringLanguages::in_quotes(ExprId content) {
  ExprId quote = exprs_.bytes(regex::ByteSet::range('"', '"'));
  return exprs_.concat(quote, exprs_.concat(content, quote));
}

ExprId StringLanguages::quoted(std::string_view text) { return in_quotes(literal(canonical(text), exprs_)); }

Text StringLanguages::canonical_quoted(std::string_view text) { return Text("\"") << canonical(text) << '"'; }

ExprId StringLanguages::quoted_list(const std::vector<std::string_view>& texts) {
  std::vector<Text> spelled;
  for (std::string_view text : texts) spelled.push_back(canonical(text) << '"');
  sort(spelled, [](const Text& x, const Text& y) { return x.view() < y.view(); });
  return exprs_.concat(literal("\"", exprs_), tree(spelled, 0, exprs_));
}

ExprId StringLanguages::content(const Strings& strings) {
  if (strings.values) {
    std::vector<ExprId> ways;
    for (std::string_view value : *strings.values) ways.push_back(spellings(value));
    return exprs_.alt(ways);
  }
  ExprId e = any_;
  bool first = true;
  for (ExprId language : strings.languages) {
    e = first ? language : exprs_.both(e, language);
    first = false;
  }
  if (strings.min_len == 0 && strings.max_len == UNBOUNDED) return e;
  ExprId counted = length(strings.min_len, strings.max_len);
  return first ? counted : exprs_.both(e, counted);
}

ExprId StringLanguages::language(const Strings& strings) {
  return strings.values ? quoted_list(*strings.values) : in_quotes(content(strings));
}

ExprId StringLanguages::plain_language(const Strings& strings) {
  if (strings.values) return quoted_list(*strings.values);
  std::vector<ExprId> all(strings.languages);
  all.push_back(exprs_.repeat(plain_character(), strings.min_len, strings.max_len));
  return in_quotes(all.size() > 1 ? exprs_.both(all) : all[0]);
}

ExprId StringLanguages::plain(ExprId content) {
  return exprs_.both(content, exprs_.repeat(plain_character(), 0, UNBOUNDED));
}

ExprId StringLanguages::plain_character() {
  regex::CodePoints unescaped;
  unescaped.add(' ', '!'), unescaped.add('#', '['), unescaped.add(']', regex::MAX_CODE_POINT);
  std::vector<ExprId> ways{unescaped.to_expr(exprs_, regex::Encoding::Utf8)};
  for (char c = 0; c < ' '; c++) ways.push_back(literal(canonical({&c, 1}), exprs_));
  for (char c : {'"', '\\'}) ways.push_back(literal(canonical({&c, 1}), exprs_));
  return exprs_.alt(ways);
}

bool StringLanguages::matches(ExprId language, std::string_view text) {
  Text spelled = canonical(text);
  for (char c : spelled.view())
    if ((language = exprs_.derive(language, static_cast<uint8_t>(c))) == NOTHING) return false;
  return exprs_.nullable(language);
}

bool StringLanguages::has(const Strings& strings, std::string_view text) {
  uint32_t len = length_of(text);
  if (len < strings.min_len || len > strings.max_len) return false;
  return std::ranges::all_of(strings.languages, [&](ExprId language) { return matches(language, text); });
}

bool intersect(const Strings& x, const Strings& y, StringLanguages& languages, Strings& both) {
  both = x;
  both.min_len = std::max(x.min_len, y.min_len);
  both.max_len = std::min(x.max_len, y.max_len);
  both.languages.insert(both.languages.end(), y.languages.begin(), y.languages.end());
  sort(both.languages, [](ExprId a, ExprId b) { return a < b; });
  both.languages.erase(std::unique(both.languages.begin(), both.languages.end()), both.languages.end());
  if (x.values && y.values) {
    std::erase_if(*both.values, [&y](std::string_view value) { return !std::ranges::binary_search(*y.values, value); });
  } else if (y.values) {
    both.values = y.values;
  }
  if (!both.values) return both.min_len <= both.max_len;
  std::erase_if(*both.values, [&](std::string_view value) { return !languages.has(both, value); });
  both.min_len = 0, both.max_len = UNBOUNDED;
  both.languages.clear();
  return !both.values->empty();
}

std::vector<Strings> complement(const Strings& strings, StringLanguages& languages) {
  std::vector<Strings> outside;
  if (strings.values) {
    outside.emplace_back().languages.push_back(languages.outside(languages.content(strings)));
    return outside;
  }
  if (strings.min_len > 0) outside.emplace_back().max_len = strings.min_len - 1;
  if (strings.max_len != UNBOUNDED) outside.emplace_back().min_len = strings.max_len + 1;
  for (ExprId language : strings.languages) outside.emplace_back().languages.push_back(languages.outside(language));
  return outside;
}

}  // namespace aici::schema
