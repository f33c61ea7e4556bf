// Python programs: MicroPython (interpreter.c) on the core that runs programs in any language.
#include <utility>

#include "aici/json.hpp"
#include "aici/script/constraints.hpp"
#include "aici/script/controller.hpp"
#include "aici/tool.hpp"
#include "aici/utf8.hpp"
#include "aici/variables.hpp"
#include "guest.h"

using aici::Text, aici::TokenSet;
namespace script = aici::script;

struct GuestTokenSet : TokenSet {
  using TokenSet::TokenSet;
};

struct GuestConstraint {
  std::unique_ptr<aici::Constraint> made;
};

namespace {

script::Sequence* sequence = nullptr;
PyOutcomeKind awaited = NOTHING;

// The last borrowed value.
std::vector<aici::TokenId> borrowed_tokens;
Text borrowed_text;

std::string_view view(PyText text) { return {text.data, text.size}; }
PyText text_of(std::string_view text) { return {text.data(), text.size()}; }
PyTokens tokens_of(aici::Tokens tokens) { return {tokens.data(), tokens.size()}; }
aici::Tokens span_of(PyTokens tokens) { return {tokens.data, tokens.size}; }
std::vector<aici::TokenId> list_of(PyTokens tokens) { return {tokens.data, tokens.data + tokens.size}; }

PyText borrow(Text text) {
  borrowed_text = std::move(text);
  return text_of(borrowed_text);
}

bool await(script::Step step, PyOutcomeKind outcome) {
  awaited = outcome;
  return sequence->await(std::move(step));
}

void check(bool ran) {
  if (!ran) aici::fail(view(py_problem()));
  sequence->log_level = py_log_level();
}

class PythonProgram final : public script::Program {
 public:
  void start() override { check(py_start()); }

  void resume(const script::Outcome& outcome) override {
    std::vector<PyText> values;
    for (const Text& value : outcome.values) values.push_back(text_of(value));
    PyOutcome told{
        .kind = awaited,
        .tokens = tokens_of(outcome.tokens),
        .number = outcome.fork,
        .values = values.data(),
        .num_values = values.size(),
    };
    check(py_resume(&told));
  }

  script::OwnStep own_step(aici::Tokens fork_group) override {
    PyOwn own{};
    check(py_own_step(tokens_of(fork_group), &own));
    return {
        .kind = static_cast<script::OwnStep::Kind>(own.kind),
        .mask = own.mask,
        .backtrack = own.backtrack,
        .tokens = list_of(own.tokens),
    };
  }

  bool own_done(uint32_t backtrack, aici::Tokens tokens) override {
    bool over = false;
    check(py_own_done(backtrack, tokens_of(tokens), &over));
    return over;
  }
};

std::unique_ptr<script::Program> make_program(script::Sequence& of) {
  sequence = &of;
  std::vector<char> source = aici::module_arg();
  check(py_compile({source.data(), source.size()}));
  return std::make_unique<PythonProgram>();
}

struct PythonController : script::ScriptController {
  PythonController() : ScriptController(make_program) {}
};

script::MadeConstraint make_constraint(ConstraintKind kind, std::span<const Text> texts) {
  const aici::TokTrie& trie = sequence->trie();
  switch (kind) {
    case ANYTHING:
      return {.constraint = script::any_text(trie)};
    case REGEX:
      return script::regex_constraint(trie, texts[0]);
    case GRAMMAR:
      return script::grammar_constraint(trie, texts[0]);
    case JSON_SCHEMA:
      return script::json_schema_constraint(trie, texts[0]);
    case SUBSTRING:
      return script::substring_constraint(trie, texts[0], texts[1]);
    case CHOICES:
      return script::choices_constraint(trie, texts);
    case OPTIONS:
      return script::options_constraint(trie, texts);
  }
  return {.problem = Text("there is no such constraint")};
}

}  // namespace

AICI_EXPOSE(PythonController)

namespace {

// {"script"} -> {"message", "column"} of the error in the script's syntax, or {}. Nothing of the script runs.
Text check_syntax(std::string_view question) {
  Text source = *aici::json::unescaped(*aici::json::get(question, "script"));
  if (py_compile(text_of(source.view()))) return Text("{}");
  Text answer("{\"message\":");
  return answer << aici::json::quoted(view(py_problem())) << ",\"column\":" << py_problem_column() << '}';
}

}  // namespace

AICI_EXPOSE_TOOL(check_syntax)

static_assert(static_cast<int>(script::OwnStep::Kind::Sample) == SAMPLE && static_cast<int>(script::OwnStep::Kind::Stop) == STOP);

PyTokens guest_tokens(void) { return tokens_of(sequence->tokens()); }
size_t guest_prompt_len(void) { return sequence->prompt_len(); }
uint32_t guest_vocab_size(void) { return sequence->trie().vocab_size(); }
uint32_t guest_eos(void) { return sequence->trie().eos(); }
uint32_t guest_seq_id(void) { return aici::self_seq_id(); }

PyTokens guest_tokenize(PyText text) {
  borrowed_tokens = aici::tokenize(view(text));
  return tokens_of(borrowed_tokens);
}

PyText guest_decode(PyTokens tokens) { return borrow(sequence->trie().decode(span_of(tokens))); }

PyText guest_valid_text(PyText bytes) {
  Text valid;
  std::string_view text = view(bytes);
  for (size_t at = 0; at < text.size();) {
    size_t begin = at;
    if (aici::next_code_point(text, at)) {
      valid << text.substr(begin, at - begin);
    } else {
      valid << "\xEF\xBF\xBD";
      at++;
    }
  }
  return borrow(std::move(valid));
}

bool guest_get_variable(PyText name, PyText* value) {
  std::optional<Text> found = aici::get_variable(view(name));
  if (found) *value = borrow(std::move(*found));
  return found.has_value();
}
void guest_set_variable(PyText name, PyText value) { aici::set_variable(view(name), view(value)); }
void guest_append_variable(PyText name, PyText value) { aici::append_variable(view(name), view(value)); }

void guest_print(PyText text) { aici::print(view(text)); }

bool guest_await_fixed(PyTokens tokens, const size_t* keep) {
  script::Fixed step{.tokens = list_of(tokens)};
  if (keep) step.keep = *keep;
  return await(std::move(step), TOKENS);
}

bool guest_await_gen(GuestConstraint* constraint, uint32_t max_tokens, PyBounds bounds, PyText stop_at, PyText variable) {
  script::Gen step{.max_tokens = max_tokens, .stop_at = Text(view(stop_at)), .variable = Text(view(variable))};
  if (bounds.max_bytes > 0) step.max_bytes = bounds.max_bytes;
  if (bounds.max_words > 0) step.max_words = bounds.max_words;
  if (constraint) step.constraint = std::move(constraint->made);
  guest_constraint_delete(constraint);
  return await(std::move(step), TOKENS);
}

bool guest_await_fork(uint32_t num) { return await(script::Fork{.num = num}, NUMBER); }

bool guest_await_variables(const PyText* names, size_t num) {
  script::Wait step;
  for (size_t i = 0; i < num; i++) step.names.emplace_back(view(names[i]));
  return await(std::move(step), VALUES);
}

bool guest_await_pause(void) { return await(script::Pause{}, NOTHING); }
bool guest_await_own(void) { return await(script::Own{}, NOTHING); }
bool guest_is_waiting(void) { return sequence->is_waiting(); }

GuestTokenSet* guest_set_new(void) { return new GuestTokenSet(sequence->trie().vocab_size()); }
void guest_set_delete(GuestTokenSet* set) { delete set; }
bool guest_set_has(const GuestTokenSet* set, uint32_t token) { return set->allows(token); }
void guest_set_put(GuestTokenSet* set, uint32_t token, bool allowed) { allowed ? set->allow(token) : set->disallow(token); }
void guest_set_put_all(GuestTokenSet* set, bool allowed) { allowed ? set->allow_all() : set->clear(); }

uint32_t guest_set_count(const GuestTokenSet* set) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < set->num_words(); i++) count += static_cast<uint32_t>(__builtin_popcount(set->word(i)));
  return count;
}

GuestConstraint* guest_constraint_new(ConstraintKind kind, const PyText* texts, size_t num, PyText* problem) {
  std::vector<Text> list;
  for (size_t i = 0; i < num; i++) list.emplace_back(view(texts[i]));
  script::MadeConstraint made = make_constraint(kind, list);
  if (made.constraint) return new GuestConstraint{std::move(made.constraint)};
  *problem = borrow(std::move(made.problem));
  return nullptr;
}

void guest_constraint_delete(GuestConstraint* constraint) { delete constraint; }
bool guest_eos_allowed(GuestConstraint* constraint) { return constraint->made->eos_allowed(); }
bool guest_eos_forced(GuestConstraint* constraint) { return constraint->made->is_complete(); }
bool guest_token_allowed(GuestConstraint* constraint, uint32_t token) { return constraint->made->mask().allows(token); }
void guest_allow_tokens(GuestConstraint* constraint, GuestTokenSet* set) { set->allow_all_of(constraint->made->mask()); }

bool guest_append_token(GuestConstraint* constraint, uint32_t token) {
  if (token == guest_eos()) return constraint->made->eos_allowed();
  return constraint->made->append(token);
}

const char* guest_constraint_error(const GuestConstraint* constraint) { return constraint->made->error(); }
