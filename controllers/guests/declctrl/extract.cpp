#include "extract.hpp"

#include <algorithm>

#include "aici/host.hpp"
#include "aici/utf8.hpp"

namespace declctrl {

using Kind = Pattern::Instruction::Kind;
using Code = Pattern::Code;
using Range = Pattern::Range;

namespace {

constexpr size_t MAX_CODE = 20'000;
constexpr size_t MAX_STATES = 64 << 20;  // bits
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

// Of ranges in order that do not meet.
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

bool contains(const std::vector<Range>& ranges, uint32_t code_point) {
  for (Range range : ranges)
    if (range.first <= code_point && code_point <= range.last) return true;
  return false;
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

  // One code point, or a class like \d, whose ranges are added.
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
    for (Range range : ranges) {  // what is in none of them
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

std::optional<Match> Pattern::find(std::string_view text, size_t from) const {
  struct Try {
    int32_t at;  // in the code; negative: undo a Save
    size_t position;
    size_t bound;  // what it was
  };
  size_t num_states = (code_.size() + 1) * (text.size() + 1);
  if (num_states > MAX_STATES) aici::fail("Extract: the text times the pattern is too large");
  std::vector<bool> seen(num_states);  // of these nothing came
  std::vector<size_t> bounds(2 * num_groups_ + 2, Match::NONE);
  std::vector<Try> tries;
  for (size_t begin = from; begin <= text.size(); begin++) {
    if (begin < text.size() && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) continue;
    tries.push_back({0, begin, 0});
    while (!tries.empty()) {
      auto [at, position, bound] = tries.back();
      tries.pop_back();
      if (at < 0) {
        bounds[static_cast<size_t>(-at)] = bound;
        continue;
      }
      for (bool goes_on = true; goes_on;) {
        size_t state = static_cast<size_t>(at) * (text.size() + 1) + position;
        if (seen[state]) break;
        seen[state] = true;
        if (at == length(code_)) {
          bounds[0] = begin, bounds[1] = position;
          return Match{bounds};
        }
        const Instruction& now = code_[static_cast<size_t>(at)];
        switch (now.kind) {
          case Kind::Set: {
            std::optional<uint32_t> code_point = position < text.size() ? aici::next_code_point(text, position) : std::nullopt;
            goes_on = code_point && contains(sets_[static_cast<size_t>(now.x)], *code_point);
            at++;
            break;
          }
          case Kind::Split:
            tries.push_back({at + now.y, position, 0});
            at += now.x;
            break;
          case Kind::Jump:
            at += now.x;
            break;
          case Kind::Save:
            tries.push_back({-now.x, 0, bounds[static_cast<size_t>(now.x)]});
            bounds[static_cast<size_t>(now.x)] = position;
            at++;
            break;
          case Kind::Begin:
            goes_on = position == 0;
            at++;
            break;
          case Kind::End:
            goes_on = position == text.size();
            at++;
            break;
        }
      }
    }
  }
  return std::nullopt;
}

namespace {

struct Piece {
  std::string_view text{};       // that stands for itself
  std::optional<size_t> group{};  // whose text stands here
};

// Takes the next piece off a form; nullopt where it is wrong.
std::optional<Piece> next_piece(std::string_view& form) {
  if (form[0] != '$') {
    std::string_view text = form.substr(0, form.find('$'));
    form.remove_prefix(text.size());
    return Piece{.text = text};
  }
  bool has_braces = form.starts_with("${");
  size_t at = has_braces ? 2 : 1, begin = at, group = 0;
  if (!has_braces && form.starts_with("$$")) {
    form.remove_prefix(2);
    return Piece{.text = "$"};
  }
  for (; at < form.size() && form[at] >= '0' && form[at] <= '9' && group < 1000; at++) group = group * 10 + static_cast<size_t>(form[at] - '0');
  if (at == begin || (has_braces && (at == form.size() || form[at] != '}'))) return std::nullopt;
  form.remove_prefix(at + has_braces);
  return Piece{.group = group};
}

}  // namespace

Text Pattern::check(std::string_view form) const {
  Text problem;
  while (!form.empty()) {
    std::optional<Piece> piece = next_piece(form);
    if (!piece) return problem << "after $ comes the number of a group, as in $1 or ${1}, or another $";
    if (piece->group > num_groups_) return problem << "there is no group " << *piece->group << ": the pattern has " << num_groups_;
  }
  return problem;
}

Text Match::expand(std::string_view text, std::string_view form) const {
  Text out;
  while (!form.empty()) {
    std::optional<Piece> piece = next_piece(form);
    if (!piece) break;  // Pattern::check has seen to it
    if (!piece->group) {
      out << piece->text;
    } else if (size_t begin = bounds[2 * *piece->group], end = bounds[2 * *piece->group + 1]; begin != NONE && end != NONE) {
      out << text.substr(begin, end - begin);
    }
  }
  return out;
}

}  // namespace declctrl
