// Run the steps of the argument, a JSON document described in README.md.
#include <algorithm>

#include "aici/json.hpp"
#include "aici/script/constraints.hpp"
#include "aici/script/controller.hpp"
#include "aici/tool.hpp"
#include "aici/variables.hpp"
#include "ast.hpp"

namespace {

using namespace declctrl;
namespace script = aici::script;

class Program final : public script::Program {
 public:
  explicit Program(script::Sequence& sequence) : sequence_(sequence) {
    std::vector<char> argument = aici::module_arg();
    document_ = read_document({argument.data(), argument.size()}, sequence.trie());
    if (!document_.problems.empty()) aici::fail(document_.problems);
    frames_.push_back({&document_.steps, 0, 1});
  }

  void start() override { run(); }

  void resume(const script::Outcome& outcome) override {
    Frame& frame = frames_.back();
    Step& step = (*frame.steps)[frame.next - 1];
    Text current = sequence_.trie().decode(outcome.tokens);
    for (const Set& set : step.stmts) aici::set_variable(set.variable, value_of(set.value, current));
    if (step.kind == Step::Kind::Fork) frames_.push_back({&step.branches.at(outcome.fork), 0, labels_.size()});
    run();
  }

  script::OwnStep own_step(aici::Tokens) override { return {}; }  // never awaited
  bool own_done(uint32_t, aici::Tokens) override { return true; }

 private:
  // Labels set by a branch are unknown after the branch.
  struct Frame {
    std::vector<Step>* steps;
    size_t next;
    size_t num_labels;
  };

  // The label stands before the token with this index. In the order of the steps, and therefore of the tokens.
  struct Label {
    Text name;
    size_t position;
  };

  // Run until a step must be awaited.
  void run() {
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      if (frame.next == frame.steps->size()) {
        labels_.erase(labels_.begin() + static_cast<ptrdiff_t>(std::min(frame.num_labels, labels_.size())), labels_.end());
        frames_.pop_back();
        continue;
      }
      Step& step = (*frame.steps)[frame.next++];
      if (step.kind == Step::Kind::Stop) return frames_.clear();
      sequence_.await(begin(step));
      return;
    }
  }

  script::Step begin(Step& step) {
    std::optional<size_t> keep;
    if (step.following) keep = forget_from(*step.following);
    if (step.label) labels_.push_back({*step.label, keep.value_or(sequence_.tokens().size())});
    switch (step.kind) {
      case Step::Kind::Fixed:
        return script::Fixed{.tokens = aici::tokenize(value_of(step.expr, {})), .keep = keep};
      case Step::Kind::Choose:
        if (!step.gen.constraint) constrain(step, script::choices_constraint(sequence_.trie(), split_list(value_of(step.expr, {}))));
        return static_cast<script::Gen&&>(step.gen);
      case Step::Kind::Gen:
        if (!step.gen.constraint) constrain(step, inner_constraint(step.inner, sequence_.trie()));
        return static_cast<script::Gen&&>(step.gen);
      case Step::Kind::Fork:
        return script::Fork{.num = static_cast<uint32_t>(step.branches.size())};
      case Step::Kind::Wait:
        return script::Wait{.names = step.variables};
      case Step::Kind::Stop:
        break;
    }
    __builtin_unreachable();
  }

  // The reader has checked that the label exists.
  size_t forget_from(std::string_view name) {
    auto label = labels_.begin();
    while (label->name.view() != name) ++label;
    size_t position = label->position;
    labels_.erase(name == PROMPT ? label + 1 : label, labels_.end());
    return position;
  }

  static void constrain(Step& step, script::MadeConstraint made) {
    if (!made.constraint) aici::fail(Text(step.pointer) << ": " << made.problem);
    step.gen.constraint = static_cast<std::unique_ptr<aici::Constraint>&&>(made.constraint);
  }

  script::Sequence& sequence_;
  Document document_;
  std::vector<Frame> frames_;
  std::vector<Label> labels_{{Text(PROMPT), 0}};
};

std::unique_ptr<script::Program> make_program(script::Sequence& sequence) { return std::make_unique<Program>(sequence); }

struct Declctrl : script::ScriptController {
  Declctrl() : ScriptController(make_program) {}
};

}  // namespace

AICI_EXPOSE(Declctrl)

namespace {

// A trie of no tokens: a check of steps needs no vocabulary.
aici::TokTrie empty_trie() {
  constexpr uint32_t HEADER = AICI_TRIE_HEADER_SIZE, ROOT = AICI_NODE_SIZE;
  const uint32_t words[] = {AICI_TRIE_MAGIC, HEADER, ROOT, 0, 0, 0, 0, AICI_NO_TOKEN << 8, 1 << 8};
  const char* bytes = reinterpret_cast<const char*>(words);
  return aici::TokTrie({bytes, bytes + sizeof(words)});
}

// {"steps": text} -> {"message"} with the problems of the steps, one a line, or {}.
Text check(std::string_view question) {
  Text json = *aici::json::unescaped(*aici::json::get(question, "steps"));
  aici::TokTrie trie = empty_trie();
  Text problems = read_document(json.view(), trie).problems;
  if (problems.empty()) return Text("{}");
  Text answer("{\"message\":");
  return answer << aici::json::quoted(problems.view()) << '}';
}

}  // namespace

AICI_EXPOSE_TOOL(check)
