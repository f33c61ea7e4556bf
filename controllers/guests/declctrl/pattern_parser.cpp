// From the text of a pattern to instructions.
#include "extract.hpp"

#include <algorithm>

#include "aici/utf8.hpp"

namespace declctrl {

using Kind = Pattern::Instruction::Kind;
using Code = Pattern::Code;
using Range = Pattern::Range;

namespace {

constexpr size_t MAX_CODE = 20'000;
constexpr uint32_t MAX_REPEATS = 1000;
constexpr uint32_t MAX_CODE_POINT = 0x10FFFF;

Code& operator<<(Code& code, const Code& more) {
  code.insert(code.end(), more.begin(), more.end());
  return code;
}

int32_t length(const Code& code) { return static_cast<int32_t>(code.size()); }

// Either of two; the first is preferred.
Code either(const Code& first, const Code& second) {
  Code code{{Kind::Split, 1, length(first) + 2}};
  code << first;
  code.push_back({Kind::Jump, length(second) + 1});
  return code << second;
}

Code optional(const Code& inner, bool is_lazy) {
  int32_t past = length(inner) + 1;
  Code code{{Kind::Split, is_lazy ? past : 1, is_lazy ? 1 : past}};
  return code << inner;
}

Code star(const Code& inner, bool is_lazy) {
  Code code = optional(inner, is_lazy);
  (is_lazy ? code[0].x : code[0].y)++;
  code.push_back({Kind::Jump, -length(inner) - 1});
  return code;
}

std::vector<Range> class_of(char letter) {
  switch (letter | 0x20) {
    case 'd':
      return {{'0', '9'}};
    case 'w':
      return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    default:
      return {{'\t', '\r'}, {' ', ' '}};
  }
}

// The complement of ordered, disjoint ranges.
std::vector<Range> opposite(const std::vector<Range>& ranges) {
  std::vector<Range> others;
  uint32_t next = 0;
  for (Range range : ranges) {
    if (range.first > next) others.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= MAX_CODE_POINT) others.push_back({next, MAX_CODE_POINT});
  return others;
}

bool is_one_of(char c, std::string_view letters) { return letters.find(c) != std::string_view::npos; }

}  // namespace

class PatternParser {
 public:
  PatternParser(std::string_view text, Pattern& out) : text_(text), out_(out) {}

  Text problem;

  void parse() {
    out_.code_ = alternatives(0);
    if (at_ < text_.size()) refuse("this ) closes nothing");
  }

 private:
  bool ended() const { return at_ >= text_.size() || !problem.empty(); }
  char peek() const { return text_[at_]; }
  bool accept(char c) {
    if (ended() || peek() != c) return false;
    at_++;
    return true;
  }
  void refuse(std::string_view why) {
    if (problem.empty()) problem << "byte " << at_ + 1 << ": " << why;
  }

  Code alternatives(uint32_t depth) {
    if (depth > 100) return refuse("groups are nested too deep"), Code();
    Code code = sequence(depth);
    std::vector<Code> all{code};
    while (accept('|')) all.push_back(sequence(depth));
    code = all.back();
    for (size_t i = all.size() - 1; i-- > 0;) code = either(all[i], code);
    if (code.size() > MAX_CODE) refuse("the pattern is too large");
    return code;
  }

  Code sequence(uint32_t depth) {
    Code code;
    while (!ended() && peek() != '|' && peek() != ')') code << repeated(atom(depth));
    return code;
  }

  Code repeated(Code atom) {
    uint32_t least = 1, most = 1;
    if (accept('*')) {
      least = 0, most = UINT32_MAX;
    } else if (accept('+')) {
      most = UINT32_MAX;
    } else if (accept('?')) {
      least = 0;
    } else if (accept('{')) {
      least = most = number();
      if (accept(',')) most = !ended() && peek() == '}' ? UINT32_MAX : number();
      if (!accept('}')) refuse("expected {n}, {n,} or {n,m}");
      if (most < least || least > MAX_REPEATS || (most != UINT32_MAX && most > MAX_REPEATS)) refuse("wrong numbers of repetitions");
    } else {
      return atom;
    }
    bool is_lazy = accept('?');
    if (!ended() && is_one_of(peek(), "*+?{")) refuse("nothing to repeat");
    size_t num_copies = most == UINT32_MAX ? size_t{least} + 1 : most;
    if (num_copies * atom.size() > MAX_CODE) refuse("the pattern is too large");
    Code code;
    if (!problem.empty()) return code;
    for (uint32_t i = 0; i < least; i++) code << atom;
    if (most == UINT32_MAX) return code << star(atom, is_lazy);
    Code rest;
    for (uint32_t i = least; i < most; i++) {
      Code longer = atom;
      rest = optional(longer << rest, is_lazy);
    }
    return code << rest;
  }

  uint32_t number() {
    uint32_t value = 0;
    if (ended() || peek() < '0' || peek() > '9') refuse("expected a number");
    while (!ended() && peek() >= '0' && peek() <= '9' && value < 100'000) value = value * 10 + static_cast<uint32_t>(text_[at_++] - '0');
    return value;
  }

  Code atom(uint32_t depth) {
    if (accept('(')) return group(depth);
    if (accept('^')) return {{Kind::Begin}};
    if (accept('$')) return {{Kind::End}};
    if (accept('.')) return set(opposite({{'\n', '\n'}}));
    if (accept('[')) return set(char_class());
    if (is_one_of(peek(), "*+?{")) return refuse("nothing to repeat"), Code();
    std::vector<Range> ranges;
    uint32_t code_point = letter(ranges);
    return set(ranges.empty() ? std::vector<Range>{{code_point, code_point}} : ranges);
  }

  Code group(uint32_t depth) {
    bool is_kept = !accept('?');
    if (!is_kept && !accept(':')) return refuse("of the groups that begin with (? only (?: is there"), Code();
    int32_t number = is_kept ? static_cast<int32_t>(++out_.num_groups_) : 0;
    Code inner = alternatives(depth + 1);
    if (!accept(')')) refuse("this group is not closed");
    if (!is_kept) return inner;
    Code code{{Kind::Save, 2 * number}};
    code << inner;
    code.push_back({Kind::Save, 2 * number + 1});
    return code;
  }

  Code set(std::vector<Range> ranges) {
    out_.sets_.push_back(static_cast<std::vector<Range>&&>(ranges));
    return {{Kind::Set, static_cast<int32_t>(out_.sets_.size()) - 1}};
  }

  // One code point, or a class such as \d, whose ranges are added.
  uint32_t letter(std::vector<Range>& ranges) {
    if (!accept('\\')) {
      std::optional<uint32_t> code_point = aici::next_code_point(text_, at_);  // JSON is UTF-8
      return code_point.value_or(0);
    }
    if (ended()) return refuse("nothing follows \\"), 0;
    char c = text_[at_++];
    if (is_one_of(c, "dws")) return ranges = class_of(c), 0;
    if (is_one_of(c, "DWS")) return ranges = opposite(class_of(c)), 0;
    if (c == 'n') return '\n';
    if (c == 'r') return '\r';
    if (c == 't') return '\t';
    bool is_plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || static_cast<uint8_t>(c) >= 0x80;
    if (is_plain) refuse("there is no such escape");
    return static_cast<uint8_t>(c);
  }

  std::vector<Range> char_class() {
    bool is_opposite = accept('^');
    std::vector<Range> ranges;
    for (bool is_first = true; !ended() && (peek() != ']' || is_first); is_first = false) {
      if (peek() == '[') return refuse("write \\[ inside a class"), ranges;
      std::vector<Range> inner;
      uint32_t first = letter(inner);
      uint32_t last = first;
      if (inner.empty() && at_ + 1 < text_.size() && peek() == '-' && text_[at_ + 1] != ']') {
        at_++;
        std::vector<Range> wrong;
        last = letter(wrong);
        if (!wrong.empty() || last < first) refuse("this is no range");
      }
      if (inner.empty()) inner.push_back({first, last});
      ranges.insert(ranges.end(), inner.begin(), inner.end());
    }
    if (!accept(']')) refuse("this class is not closed");
    if (!is_opposite) return ranges;
    std::vector<Range> others = opposite({});
    for (Range range : ranges) {  // code points in none of the ranges
      std::vector<Range> left;
      for (Range other : others) {
        if (other.first < range.first) left.push_back({other.first, std::min(other.last, range.first - 1)});
        if (other.last > range.last) left.push_back({std::max(other.first, range.last + 1), other.last});
      }
      others = left;
    }
    return others;
  }

  std::string_view text_;
  Pattern& out_;
  size_t at_ = 0;
};

std::optional<Pattern> Pattern::parse(std::string_view text, Text& problem) {
  Pattern pattern;
  PatternParser parser(text, pattern);
  parser.parse();
  problem = parser.problem;
  if (!problem.empty()) return std::nullopt;
  return pattern;
}

}  // namespace declctrl
