#include "program.hpp"

#include "classes.hpp"
#include "errors.hpp"
#include "modules.hpp"

namespace jsctrl {

using namespace aici::script;

namespace {

// Of the guest's own stack. The native stack, which holds more of the same calls, has 2 MB (see guest.toml).
constexpr size_t MAX_STACK_BYTES = 512 * 1024;

// Ends in a zero, for the parser.
aici::Text terminated(std::string_view source) {
  constexpr std::string_view BYTE_ORDER_MARK = "\xEF\xBB\xBF";
  if (source.starts_with(BYTE_ORDER_MARK)) source.remove_prefix(BYTE_ORDER_MARK.size());
  aici::Text text(source);
  return static_cast<aici::Text&&>(text << '\0');
}

}  // namespace

JsProgram::JsProgram(Sequence& sequence)
    : sequence_(sequence), runtime_(JS_NewRuntime()), ctx_(runtime_ ? JS_NewContext(runtime_) : nullptr),
      own_mask_(sequence.trie().empty_set()) {
  if (!ctx_) aici::fail("out of memory");
  JS_SetMaxStackSize(runtime_, MAX_STACK_BYTES);
  JS_SetContextOpaque(ctx_, this);
  JS_SetHostPromiseRejectionTracker(runtime_, on_rejection, this);
  add_classes(ctx_);
  use_modules(runtime_);
}

void JsProgram::start() {
  run_module(library_source(), "aici");
  std::vector<char> script = aici::module_arg();
  aici::Text source = terminated({script.data(), script.size()});
  run_module(source.view().substr(0, source.size() - 1), "main");
  run_jobs();
}

void JsProgram::run_module(std::string_view source, const char* name) {
  Value promise(ctx_, JS_Eval(ctx_, source.data(), source.size(), name, JS_EVAL_TYPE_MODULE));
  if (promise.is_exception()) fail_with_exception(ctx_);
  keep_alive(promise.get());
}

// Until the script waits for a step or has ended.
void JsProgram::run_jobs() {
  JSContext* ctx = nullptr;
  int ran;
  while ((ran = JS_ExecutePendingJob(runtime_, &ctx)) > 0) {
  }
  if (ran < 0) fail_with_exception(ctx);
  if (!rejected_.empty()) aici::fail(describe_error(ctx_, rejected_[1].get()));
  if (sequence_.is_waiting()) return;
  for (const Value& root : roots_)
    if (JS_PromiseState(ctx_, root.get()) == JS_PROMISE_PENDING)
      aici::fail("the script waits for a promise that nothing can settle any more: only steps of aici ($, gen, fork, ...) go on by "
           "themselves");
}

void JsProgram::resume(const Outcome& outcome) {
  JS_UpdateStackTop(runtime_);
  Value resolve = std::exchange(resolve_, {});
  Value value = outcome_value(outcome);
  own_ = {};
  JSValueConst argument = value.get();
  Value done(ctx_, JS_Call(ctx_, resolve.get(), JS_UNDEFINED, 1, &argument));
  if (value.is_exception() || done.is_exception()) fail_with_exception(ctx_);
  run_jobs();
}

Value JsProgram::outcome_value(const Outcome& outcome) {
  switch (gives_) {
    case Gives::Tokens:
      return from_tokens(ctx_, outcome.tokens);
    case Gives::OwnTokens:
      return from_tokens(ctx_, own_tokens_);
    case Gives::Fork:
      return Value(ctx_, JS_NewUint32(ctx_, outcome.fork));
    case Gives::Nothing:
      return Value(ctx_, JS_UNDEFINED);
    case Gives::Values:
      Value array(ctx_, JS_NewArray(ctx_));
      for (size_t i = 0; i < outcome.values.size(); i++)
        JS_SetPropertyUint32(ctx_, array.get(), static_cast<uint32_t>(i), from_bytes(ctx_, outcome.values[i]).release());
      return array;
  }
}

JSValue JsProgram::wait_for(Step step, Gives gives, const char* name) {
  if (!sequence_.await(static_cast<Step&&>(step)))
    return JS_ThrowPlainError(ctx_, "%s: the script still waits for %s, and steps come one after another: write `await` before each",
                              name, awaited_);
  JSValue functions[2];
  JSValue promise = JS_NewPromiseCapability(ctx_, functions);
  if (JS_IsException(promise)) return promise;
  resolve_ = Value(ctx_, functions[0]);
  JS_FreeValue(ctx_, functions[1]);
  gives_ = gives;
  awaited_ = name;
  return promise;
}

JSValue JsProgram::wait_for_own(JSValueConst next_token) {
  JSValue promise = wait_for(Own{}, Gives::OwnTokens, "NextToken.run");
  if (JS_IsException(promise)) return promise;
  own_ = Value(ctx_, JS_DupValue(ctx_, next_token));
  own_tokens_.clear();
  has_held_ = false;
  return promise;
}

OwnStep JsProgram::own_step(aici::Tokens fork_group) {
  JS_UpdateStackTop(runtime_);
  if (std::exchange(has_held_, false)) {
    own_done(0, {});
    return {.kind = OwnStep::Kind::Skip};
  }
  Value group = from_tokens(ctx_, fork_group);
  JSValueConst argument = group.get();
  Value result = call("midProcess", {&argument, 1});
  std::optional<OwnStep> step = to_own_step(ctx_, result.get(), own_mask_);
  if (!step) fail_with_exception(ctx_);
  has_held_ = step->kind == OwnStep::Kind::Hold;
  return static_cast<OwnStep&&>(*step);
}

bool JsProgram::own_done(uint32_t backtrack, aici::Tokens tokens) {
  JS_UpdateStackTop(runtime_);
  own_tokens_.assign(tokens.begin(), tokens.end());
  Value array = from_tokens(ctx_, tokens);
  JSValueConst arguments[] = {JS_NewUint32(ctx_, backtrack), array.get()};
  call("_done", arguments);
  return true;
}

Value JsProgram::call(const char* method, std::span<JSValueConst> arguments) {
  JSAtom name = JS_NewAtom(ctx_, method);
  Value result(ctx_, JS_Invoke(ctx_, own_.get(), name, static_cast<int>(arguments.size()), arguments.data()));
  JS_FreeAtom(ctx_, name);
  if (result.is_exception()) fail_with_exception(ctx_);
  return result;
}

void JsProgram::on_rejection(JSContext* ctx, JSValueConst promise, JSValueConst reason, bool is_handled, void* self) {
  auto& rejected = static_cast<JsProgram*>(self)->rejected_;
  if (!is_handled) {
    rejected.emplace_back(ctx, JS_DupValue(ctx, promise));
    rejected.emplace_back(ctx, JS_DupValue(ctx, reason));
    return;
  }
  for (size_t i = 0; i < rejected.size(); i += 2)
    if (JS_IsStrictEqual(ctx, rejected[i].get(), promise)) {
      rejected.erase(rejected.begin() + static_cast<ptrdiff_t>(i), rejected.begin() + static_cast<ptrdiff_t>(i) + 2);
      return;
    }
}

std::optional<aici::Text> syntax_problem(std::string_view script) {
  JSRuntime* runtime = JS_NewRuntime();
  JSContext* ctx = runtime ? JS_NewContext(runtime) : nullptr;
  if (!ctx) aici::fail("out of memory");
  JS_SetMaxStackSize(runtime, MAX_STACK_BYTES);
  use_modules(runtime);
  constexpr int COMPILE = JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY;
  std::string_view library = library_source();
  aici::Text source = terminated(script);
  if (JS_IsException(JS_Eval(ctx, library.data(), library.size(), "aici", COMPILE)) ||
      JS_IsException(JS_Eval(ctx, source.view().data(), source.size() - 1, "main", COMPILE)))
    return describe_error(ctx, JS_GetException(ctx));
  return std::nullopt;
}

}  // namespace jsctrl
