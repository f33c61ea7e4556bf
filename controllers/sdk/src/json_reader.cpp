#include "aici/json_reader.hpp"

#include "aici/json.hpp"
#include "aici/json_string.hpp"

namespace aici::json {

bool Reader::refuse(std::string_view message) {
  if (!problem_) problem_ = {at_, message};
  return false;
}

bool Reader::accept(char c) {
  while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) at_++;
  if (problem_ || at_ == text_.size() || text_[at_] != c) return false;
  at_++;
  return true;
}

bool Reader::expect(char c, std::string_view message) { return accept(c) || refuse(message); }

bool Reader::end() {
  accept('\0');
  return !problem_ && (at_ >= text_.size() || refuse("nothing may follow the value"));
}

bool Reader::string(Text& out, std::string_view message) {
  accept('\0');  // skips white space
  if (problem_ || at_ >= text_.size() || text_[at_] != '"') return refuse(message);
  const char* why = read_string(text_, at_, out);
  return !why || refuse(why);
}

Text describe(const Problem& problem, std::string_view text) {
  size_t line = 1, column = 1;
  for (char c : text.substr(0, problem.position)) {
    bool continues = (static_cast<uint8_t>(c) & 0xC0) == 0x80;  // the second byte of a character, or a later one
    c == '\n' ? (line++, column = 1) : column += !continues;
  }
  Text out("the argument is wrong at line ");
  return out << line << ", column " << column << ": " << problem.message;
}

Text answer(const std::optional<Problem>& problem) {
  if (!problem) return Text("{}");
  Text out("{\"position\":");
  return out << problem->position << ",\"message\":" << quoted(problem->message) << '}';
}

}  // namespace aici::json
