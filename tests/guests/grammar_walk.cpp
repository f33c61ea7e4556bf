// The guest `grammar` without its fast masks: each token of the tree is pushed byte by byte.
#include "aici/grammar/reader.hpp"
#include "aici/grammar/recognizer.hpp"
#include "aici/grammar/tables.hpp"
#include "aici/recognizer_controller.hpp"

namespace {

using aici::grammar::GrammarRecognizer;

class Bytes {
 public:
  explicit Bytes(GrammarRecognizer inner) : inner_(static_cast<GrammarRecognizer&&>(inner)) {}
  bool try_push_byte(uint8_t byte) { return inner_.try_push_byte(byte); }
  void push_byte(uint8_t byte) { inner_.push_byte(byte); }
  void pop_bytes(size_t num) { inner_.pop_bytes(num); }
  void collapse() { inner_.collapse(); }
  bool byte_allowed(uint8_t byte) { return inner_.byte_allowed(byte); }
  bool special_allowed(aici::SpecialToken special) { return inner_.special_allowed(special); }
  void trie_finished() { inner_.trie_finished(); }

 private:
  GrammarRecognizer inner_;
};

Bytes from_arg() {
  std::vector<char> arg = aici::module_arg();
  std::vector<aici::grammar::Problem> problems;
  std::optional<aici::grammar::Grammar> grammar = aici::grammar::read_grammar({arg.data(), arg.size()}, problems);
  if (!grammar) aici::fail("grammar error");
  return Bytes(GrammarRecognizer(*grammar, build_table(*grammar, problems)));
}

struct GrammarWalk : aici::RecognizerController<Bytes> {
  GrammarWalk() : RecognizerController(aici::TokTrie::from_host(), from_arg()) {}
};

}  // namespace

AICI_EXPOSE(GrammarWalk)
