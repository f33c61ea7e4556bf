// A script, run by the interpreter, as a program of the script core.
#pragma once
#include <memory>
#include <vector>

#include "aici/script/program.hpp"
#include "value.hpp"

namespace jsctrl {

class JsProgram final : public aici::script::Program {
 public:
  explicit JsProgram(aici::script::Sequence& sequence);

  void start() override;
  void resume(const aici::script::Outcome& outcome) override;
  aici::script::OwnStep own_step(aici::Tokens fork_group) override;
  bool own_done(uint32_t backtrack, aici::Tokens tokens) override;

  // The members below are for the functions called by scripts.
  static JsProgram& of(JSContext* ctx) { return *static_cast<JsProgram*>(JS_GetContextOpaque(ctx)); }

  enum class Gives : uint8_t { Tokens, Fork, Values, Nothing, OwnTokens };

  // A promise of the outcome of the step; an exception if the script already waits. `name`: the function called by the
  // script.
  JSValue wait_for(aici::script::Step step, Gives gives, const char* name);
  JSValue wait_for_own(JSValueConst next_token);

  // The script has not ended before this promise is settled.
  void keep_alive(JSValueConst promise) { roots_.emplace_back(ctx_, JS_DupValue(ctx_, promise)); }

  aici::script::Sequence& sequence() { return sequence_; }

 private:
  static void on_rejection(JSContext*, JSValueConst promise, JSValueConst reason, bool is_handled, void* self);
  void run_module(std::string_view source, const char* name);
  void run_jobs();
  Value call(const char* method, std::span<JSValueConst> arguments);
  Value outcome_value(const aici::script::Outcome& outcome);

  aici::script::Sequence& sequence_;
  JSRuntime* runtime_;
  JSContext* ctx_;
  Gives gives_ = Gives::Nothing;
  const char* awaited_ = "";
  Value resolve_{};
  Value own_{};                           // the NextToken of the current step
  std::vector<aici::TokenId> own_tokens_;  // its outcome
  bool has_held_ = false;                 // its last answer was: nothing in this step
  aici::TokenSet own_mask_;
  std::vector<Value> roots_;              // promises of the module, and of functions run by `start`
  std::vector<Value> rejected_;           // unhandled promises, each followed by its reason
};

// What is wrong with the syntax of a script, with its line and column; nullopt if the script can be compiled.
std::optional<aici::Text> syntax_problem(std::string_view script);

}  // namespace jsctrl
