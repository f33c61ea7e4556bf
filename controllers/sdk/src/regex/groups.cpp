// Groups, flags and comments.
#include <algorithm>
#include <string_view>
#include <utility>

#include "parser_state.hpp"

namespace aici::regex {

Anchored Parser::group() {
  struct Refused {
    std::string_view opening, message;
  };
  static constexpr Refused REFUSED[] = {
      {"(?=", "look-ahead is not supported"},
      {"(?!", "look-ahead is not supported"},
      {"(?<=", "look-behind is not supported"},
      {"(?<!", "look-behind is not supported"},
      {"(?P=", "back-references are not supported"},
      {"(?P>", "recursion is not supported"},
      {"(?R", "recursion is not supported"},
      {"(?>", "atomic groups are not supported"},
      {"(?(", "conditional groups are not supported"},
      {"(?|", "branch reset groups are not supported"},
  };
  size_t start = at_;
  if (options_.set_operators && (looking_at("(?~") || looking_at("(?&"))) return set_operator(start);
  for (const Refused& refused : REFUSED)
    if (looking_at(refused.opening)) return refuse(start, refused.message);
  Flags flags = flags_;
  if (accept("(?P<") || accept("(?<")) {
    group_name(start);
  } else if (at_flags()) {
    at_ += 2;
    flags = flag_letters(start);
    if (ecma() && !problem_ && accept(')')) return flags_ = flags, EMPTY;  // up to the end of the group, as many dialects have it
    if (peek() == ')') return refuse(start, "flags for the whole pattern belong at its start: write (?i:...) for a part");
    if (!problem_ && !accept(':')) return refuse(start, "missing ':' after these flags");
  } else if (!accept("(?:")) {
    accept('(');
    if (peek() == '?') return refuse(start, "'(?' does not start a group here: write \\? for the character");
  }
  return problem_ ? NOTHING : group_body(start, flags);
}

// (?~x): any text but x. (?&x&y): what both match.
Anchored Parser::set_operator(size_t start) {
  if (++depth_ > MAX_DEPTH) return refuse(start, "groups are nested deeper than 200");
  bool is_both = text_[at_ + 2] == '&';
  at_ += 3;
  bool was_in_both = std::exchange(in_both_, is_both);
  std::vector<ExprId> members;
  do members.push_back(alternation().whole(exprs_));
  while (!problem_ && is_both && accept('&'));
  in_both_ = was_in_both;
  depth_--;
  if (problem_) return NOTHING;
  if (!accept(')')) return refuse(start, "missing ')' for this group");
  if (!is_both) members = {exprs_.complement(members[0]), exprs_.repeat(any_of(CodePoints().negated()), 0, UNBOUNDED)};
  return exprs_.both(members);
}

Anchored Parser::group_body(size_t start, Flags flags) {
  if (++depth_ > MAX_DEPTH) return refuse(start, "groups are nested deeper than 200");
  Flags outside = flags_;
  flags_ = flags;
  bool was_in_both = std::exchange(in_both_, false);
  Anchored expr = alternation();
  in_both_ = was_in_both;
  flags_ = outside;
  depth_--;
  if (!problem_ && !accept(')')) return refuse(start, "missing ')' for this group");
  return expr;
}

void Parser::group_name(size_t start) {
  std::vector<uint32_t> name;
  for (; peek() != '>' && peek() != ')' && !done(); at_++) {
    bool fits = peek() >= 0x80 || peek() == '_' || is_letter(peek()) || (is_digit(peek()) && !name.empty());
    if (!fits) return void(refuse(at_, "a group name consists of letters, digits and _, and does not start with a digit"));
    name.push_back(peek());
  }
  if (name.empty()) return void(refuse(start, "missing group name"));
  if (!accept('>')) return void(refuse(start, "missing '>' after this group name"));
  if (std::ranges::find(names_, name) != names_.end()) return void(refuse(start, "this group name is used twice"));
  names_.push_back(static_cast<std::vector<uint32_t>&&>(name));
}

bool Parser::at_flags() const { return looking_at("(?") && (is_letter(peek(2)) || peek(2) == '-'); }

void Parser::global_flags() {
  for (;;) {
    skip_ignored();
    if (problem_ || !at_flags()) return;
    size_t start = at_;
    at_ += 2;
    Flags flags = flag_letters(start);
    if (problem_ || peek() == ':') {  // a group with its own flags: not handled here
      at_ = start;
      problem_.reset();
      return;
    }
    if (!accept(')')) return void(refuse(start, "missing ')' after these flags"));
    if ((flags_.ascii && flags.unicode) || (flags_.unicode && flags.ascii)) refuse(start, "the flags a and u exclude each other");
    flags_ = flags;
  }
}

// The flags in force, changed by letters such as "im-s".
Flags Parser::flag_letters(size_t start) {
  Flags flags = flags_;
  bool value = true;
  bool ascii = false, unicode = false;
  for (; is_letter(peek()) || (value && peek() == '-'); at_++) {
    switch (peek()) {
      case '-':
        value = false;
        continue;
      case 'i':
        flags.ignore_case = value;
        continue;
      case 'm':
        flags.multi_line = value;
        continue;
      case 's':
        flags.dot_all = value;
        continue;
      case 'x':
        flags.verbose = value;
        continue;
      case 'a':
        ascii = true;
        break;
      case 'u':
        unicode = true;
        break;
      case 'L':
        refuse(start, "the flag L is about bytes in a locale: text is Unicode here");
        return flags;
      default:
        refuse(at_, "unknown flag: there are a, i, m, s, u and x");
        return flags;
    }
    if (!value) refuse(start, "the flags a and u cannot be taken off");
    flags.ascii = ascii, flags.unicode = unicode;
  }
  if (ascii && unicode) refuse(start, "the flags a and u exclude each other");
  return flags;
}

// Comments, and under (?x) white space.
void Parser::skip_ignored() {
  for (;;) {
    if (flags_.verbose && peek() == '#') {
      while (!done() && peek() != '\n') at_++;
    } else if (flags_.verbose && (peek() == ' ' || (peek() >= '\t' && peek() <= '\r'))) {
      at_++;
    } else if (looking_at("(?#")) {
      size_t start = at_;
      while (!done() && peek() != ')') at_++;
      if (!accept(')')) return void(refuse(start, "missing ')' after this comment"));
    } else {
      return;
    }
  }
}

}  // namespace aici::regex
