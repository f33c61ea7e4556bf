// The guests `regex` and `json_schema` without their fast masks: each token of the tree is pushed byte by byte. An
// argument that begins with a brace is for json_schema.
#include "aici/json_schema.hpp"
#include "aici/json_value.hpp"
#include "aici/recognizer_controller.hpp"

namespace {

using aici::RegexRecognizer;
using Inner = aici::StackRecognizer<RegexRecognizer>;

class Bytes {
 public:
  explicit Bytes(Inner inner) : inner_(static_cast<Inner&&>(inner)) {}
  bool try_push_byte(uint8_t byte) { return inner_.try_push_byte(byte); }
  void push_byte(uint8_t byte) { inner_.push_byte(byte); }
  void pop_bytes(size_t num) { inner_.pop_bytes(num); }
  void collapse() { inner_.collapse(); }
  bool byte_allowed(uint8_t byte) { return inner_.byte_allowed(byte); }
  bool special_allowed(aici::SpecialToken special) { return inner_.special_allowed(special); }
  void trie_finished() { inner_.trie_finished(); }
  const char* error() const { return inner_.error(); }

 private:
  Inner inner_;
};

Bytes from_arg() {
  std::vector<char> arg = aici::module_arg();
  std::string_view text(arg.data(), arg.size());
  if (!text.starts_with('{')) return Bytes(Inner(RegexRecognizer::from_pattern(text)));
  aici::json::Value value;
  aici::schema::Report report;
  if (aici::json::parse(text, value)) aici::fail("not JSON");
  auto is = [&value](std::string_view option, std::string_view word) {
    const aici::json::Value* chosen = value.find(option);
    return chosen && chosen->text.view() == word;
  };
  aici::schema::Options options;
  if (is("whitespace", "flexible")) options.space = aici::schema::Space::Flexible;
  if (is("objects", "open")) options.objects = aici::schema::Objects::Open;
  if (is("property_order", "any")) options.property_order = aici::schema::PropertyOrder::Any;
  std::optional<RegexRecognizer> recognizer = aici::compile_json_schema(*value.find("schema"), options, report);
  if (!recognizer) aici::fail("the schema is refused");
  return Bytes(Inner(static_cast<RegexRecognizer&&>(*recognizer)));
}

struct ExprsWalk : aici::RecognizerController<Bytes> {
  ExprsWalk() : RecognizerController(aici::TokTrie::from_host(), from_arg()) {}
};

}  // namespace

AICI_EXPOSE(ExprsWalk)
