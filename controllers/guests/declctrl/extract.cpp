// Run the instructions of a pattern over a text. Each instruction runs at most once per position: a failed attempt is
// not repeated.
#include "extract.hpp"

#include "aici/host.hpp"
#include "aici/utf8.hpp"

namespace declctrl {

namespace {

constexpr size_t MAX_STATES = 64 << 20;  // bits

bool contains(const std::vector<Pattern::Range>& ranges, uint32_t code_point) {
  for (Pattern::Range range : ranges)
    if (range.first <= code_point && code_point <= range.last) return true;
  return false;
}

}  // namespace

std::optional<Match> Pattern::find(std::string_view text, size_t from) const {
  struct Try {
    int32_t at;  // in the code; negative: undo a Save
    size_t position;
    size_t bound;  // the previous value
  };
  size_t num_states = (code_.size() + 1) * (text.size() + 1);
  if (num_states > MAX_STATES) aici::fail("Extract: the text times the pattern is too large");
  std::vector<bool> seen(num_states);  // attempts that failed
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
        if (at == static_cast<int32_t>(code_.size())) {
          bounds[0] = begin, bounds[1] = position;
          return Match{bounds};
        }
        const Instruction& now = code_[static_cast<size_t>(at)];
        switch (now.kind) {
          case Instruction::Kind::Set: {
            std::optional<uint32_t> code_point = position < text.size() ? aici::next_code_point(text, position) : std::nullopt;
            goes_on = code_point && contains(sets_[static_cast<size_t>(now.x)], *code_point);
            at++;
            break;
          }
          case Instruction::Kind::Split:
            tries.push_back({at + now.y, position, 0});
            at += now.x;
            break;
          case Instruction::Kind::Jump:
            at += now.x;
            break;
          case Instruction::Kind::Save:
            tries.push_back({-now.x, 0, bounds[static_cast<size_t>(now.x)]});
            bounds[static_cast<size_t>(now.x)] = position;
            at++;
            break;
          case Instruction::Kind::Begin:
            goes_on = position == 0;
            at++;
            break;
          case Instruction::Kind::End:
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
  std::string_view text{};       // stands for itself
  std::optional<size_t> group{};  // its text is inserted here
};

// Take the next piece off a form; nullopt if the form is invalid.
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
    if (!piece) break;  // checked by Pattern::check
    if (!piece->group) {
      out << piece->text;
    } else if (size_t begin = bounds[2 * *piece->group], end = bounds[2 * *piece->group + 1]; begin != NONE && end != NONE) {
      out << text.substr(begin, end - begin);
    }
  }
  return out;
}

}  // namespace declctrl
