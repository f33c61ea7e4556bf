// The generated text is a sentence of the grammar in the argument, the text of a .y file.
#include <memory>

#include "aici/grammar/accepts.hpp"
#include "aici/grammar/check.hpp"
#include "aici/grammar/parser.hpp"
#include "aici/grammar/recognizer.hpp"
#include "aici/grammar/scannerless.hpp"
#include "aici/json.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/regex.hpp"
#include "aici/tool.hpp"

namespace {

using aici::Text;
using aici::grammar::GrammarRecognizer, aici::grammar::LrTable, aici::grammar::Parser, aici::grammar::read_parser;

Parser parser_from_arg() {
  std::vector<char> arg = aici::module_arg();
  Text why;
  std::optional<Parser> parser = read_parser({arg.data(), arg.size()}, why);
  if (!parser) aici::fail((Text("grammar error: ") << why).view());
  Text about("grammar constraint: ");
  about << parser->grammar.terminals.size() - 1 << " terminals, " << parser->grammar.productions.size() - 1 << " productions, ";
  if (parser->automaton) about << "no lexer\n";
  else about << parser->table.num_states << " states\n";
  aici::print(about.view());
  return static_cast<Parser&&>(*parser);
}

// Runs the recognizer that fits the grammar: with a lexer or without.
class GrammarController : public aici::Controller {
 public:
  // The grammar comes first, so an invalid grammar is refused before the vocabulary is read.
  explicit GrammarController(Parser parser = parser_from_arg()) {
    aici::TokTrie trie = aici::TokTrie::from_host();
    if (parser.automaton) {
      using Scannerless = aici::StackRecognizer<aici::RegexRecognizer>;
      Scannerless recognizer(aici::RegexRecognizer(static_cast<aici::regex::Dfa&&>(*parser.automaton)));
      inner_ = std::make_unique<aici::RecognizerController<Scannerless>>(static_cast<aici::TokTrie&&>(trie), static_cast<Scannerless&&>(recognizer));
    } else {
      GrammarRecognizer recognizer(parser.grammar, static_cast<LrTable&&>(parser.table));
      inner_ = std::make_unique<aici::RecognizerController<GrammarRecognizer>>(static_cast<aici::TokTrie&&>(trie),
                                                                              static_cast<GrammarRecognizer&&>(recognizer));
    }
  }

  aici::PreResult pre_process() override { return inner_->pre_process(); }
  aici::MidResult mid_process(aici::Tokens tokens) override { return inner_->mid_process(tokens); }
  bool needs_fork_group() const override { return inner_->needs_fork_group(); }
  bool post_process(aici::Tokens tokens, uint32_t backtrack) override { return inner_->post_process(tokens, backtrack); }

 private:
  std::unique_ptr<aici::Controller> inner_;
};

Text text_of(std::string_view object, std::string_view key) { return *aici::json::unescaped(*aici::json::get(object, key)); }

// {"check": text} -> see check_answer.
// {"accepts": {"grammar": text, "input": text}} -> see accepts_answer; with "inputs": [text, ...] -> {"answers": [...]}.
// A grammar with errors, or a text that takes too much -> {"problem": message}.
Text answer(std::string_view question) {
  if (aici::json::get(question, "check")) return aici::grammar::check_answer(text_of(question, "check"));
  std::string_view accepts = *aici::json::get(question, "accepts");
  Text why;
  std::optional<Parser> parser = read_parser(text_of(accepts, "grammar"), why);
  if (!parser) return Text("{\"problem\":") << aici::json::quoted(why) << '}';
  auto answer_to = [&](std::string_view input) {
    if (parser->automaton) return aici::grammar::scannerless_answer(*parser->automaton, input);
    return accepts_answer(parser->grammar, parser->table, input);
  };
  std::optional<std::string_view> inputs = aici::json::get(accepts, "inputs");
  if (!inputs) return answer_to(text_of(accepts, "input"));
  Text out("{\"answers\":[");
  bool first = true;
  for (std::string_view input : aici::json::elements(*inputs)) {
    if (parser->automaton && parser->automaton->error()) parser = read_parser(text_of(accepts, "grammar"), why);  // a fresh one
    out << (first ? "" : ",") << answer_to(*aici::json::unescaped(input));
    first = false;
  }
  return out << "]}";
}

}  // namespace

AICI_EXPOSE(GrammarController)
AICI_EXPOSE_TOOL(answer)
