// Read strict JSON written by people, such as arguments of requests. A problem has a position and a message.
// (aici/json.hpp is for the runtime's own JSON, which is well formed.)
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "aici/text.hpp"

namespace aici::json {

struct Problem {
  size_t position;  // bytes from the start
  std::string_view message;
};

// The first problem stays: afterwards everything is refused.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  // Skip white space, then take `c` if `c` comes next.
  bool accept(char c);
  // As accept, but anything else is a problem described by `message`.
  bool expect(char c, std::string_view message);
  // Append the text of the string that comes next. `message` describes the expected value if something else comes.
  bool string(Text& out, std::string_view message);
  // Only white space may be left.
  bool end();
  // Record the problem, unless a problem is recorded already; returns false.
  bool refuse(std::string_view message);

  size_t position() const { return at_; }
  const std::optional<Problem>& problem() const { return problem_; }

 private:
  std::string_view text_;
  size_t at_ = 0;
  std::optional<Problem> problem_;
};

// "the argument is wrong at line 1, column 3: ..." for the log of a guest.
Text describe(const Problem& problem, std::string_view text);

// {} without a problem, else {"position", "message"}: the answer to a tool.
Text answer(const std::optional<Problem>& problem);

}  // namespace aici::json
