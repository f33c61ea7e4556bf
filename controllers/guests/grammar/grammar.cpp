// The generated text is a sentence of the grammar in the argument, the text of a .y file.
#include "aici/grammar/accepts.hpp"
#include "aici/grammar/check.hpp"
#include "aici/grammar/parser.hpp"
#include "aici/grammar/recognizer.hpp"
#include "aici/json.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/tool.hpp"

namespace {

using aici::Text;
using aici::grammar::GrammarRecognizer, aici::grammar::LrTable, aici::grammar::Parser, aici::grammar::read_parser;

GrammarRecognizer constraint_from_arg() {
  std::vector<char> arg = aici::module_arg();
  Text why;
  std::optional<Parser> parser = read_parser({arg.data(), arg.size()}, why);
  if (!parser) aici::fail((Text("grammar error: ") << why).view());
  Text about("grammar constraint: ");
  about << parser->grammar.terminals.size() - 1 << " terminals, " << parser->grammar.productions.size() - 1 << " productions, "
        << parser->table.num_states << " states\n";
  aici::print(about.view());
  return GrammarRecognizer(parser->grammar, static_cast<LrTable&&>(parser->table));
}

struct GrammarController : aici::RecognizerController<GrammarRecognizer> {
  // The grammar comes first, so an invalid grammar is refused before the vocabulary is read.
  explicit GrammarController(GrammarRecognizer constraint = constraint_from_arg())
      : RecognizerController(aici::TokTrie::from_host(), static_cast<GrammarRecognizer&&>(constraint)) {}
};

Text text_of(std::string_view object, std::string_view key) { return *aici::json::unescaped(*aici::json::get(object, key)); }

// {"check": text} -> see check_answer.
// {"accepts": {"grammar": text, "input": text}} -> see accepts_answer; with "inputs": [text, ...] -> {"answers": [...]}.
// A grammar with errors -> {"problem": message}.
Text answer(std::string_view question) {
  if (aici::json::get(question, "check")) return aici::grammar::check_answer(text_of(question, "check"));
  std::string_view accepts = *aici::json::get(question, "accepts");
  Text why;
  std::optional<Parser> parser = read_parser(text_of(accepts, "grammar"), why);
  if (!parser) return Text("{\"problem\":") << aici::json::quoted(why) << '}';
  std::optional<std::string_view> inputs = aici::json::get(accepts, "inputs");
  if (!inputs) return accepts_answer(parser->grammar, parser->table, text_of(accepts, "input"));
  Text out("{\"answers\":[");
  bool first = true;
  for (std::string_view input : aici::json::elements(*inputs)) {
    out << (first ? "" : ",") << accepts_answer(parser->grammar, parser->table, *aici::json::unescaped(input));
    first = false;
  }
  return out << "]}";
}

}  // namespace

AICI_EXPOSE(GrammarController)
AICI_EXPOSE_TOOL(answer)
