// Input: the text of a .y file, a zero byte, then a walk: masks from terminals against pushes of single bytes. A text
// that reaches an end must be accepted when read at once.
#include "aici/grammar/accepts.hpp"
#include "aici/grammar/reader.hpp"
#include "aici/grammar/recognizer.hpp"
#include "aici/grammar/tables.hpp"
#include "src/grammar/lexical.hpp"
#include "walk.hpp"

using namespace aici;
using namespace aici::grammar;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TokTrie trie = native::make_trie(native::with_all_bytes(native::common_words()));
  native::Input input(data, size);
  std::string_view text = input.text();
  std::vector<Problem> problems;
  std::optional<Grammar> grammar = read_grammar(text, problems);
  if (!grammar) return 0;
  LrTable table = build_table(*grammar, problems);
  if (has_errors(problems)) return 0;
  std::vector<Problem> lexical;
  check_lexical(*grammar, table, lexical);
  try {
    auto make = [&] { return GrammarRecognizer(*grammar, table); };
    auto ended = native::check_walk(make, trie, input, !lexical.empty());
    if (ended) {
      Text answer = accepts_answer(*grammar, table, *ended);
      native::require(answer.view().find("\"accepted\":true") != std::string_view::npos, "what comes to an end is accepted");
    }
  } catch (const native::Failed&) {
  }
  return 0;
}
