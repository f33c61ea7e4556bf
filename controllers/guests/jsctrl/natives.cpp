// The module "aici/native": the functions used by the library in aici.js. aici.js checks arguments if a check needs a
// message.
#include "aici/variables.hpp"
#include "classes.hpp"
#include "modules.hpp"
#include "program.hpp"

namespace jsctrl {

using namespace aici::script;

namespace {

JSValueConst at(int argc, JSValueConst* argv, int number) { return number < argc ? argv[number] : JS_UNDEFINED; }

Sequence& sequence_of(JSContext* ctx) { return JsProgram::of(ctx).sequence(); }

// --- Steps

// (text, number of tokens to keep)
JSValue fixed(JSContext* ctx, JSValueConst, int argc, JSValueConst* argv) {
  std::optional<aici::Text> text = to_bytes(ctx, argv[0]);
  if (!text) return JS_EXCEPTION;
  Fixed step{.tokens = aici::tokenize(*text)};
  if (JSValueConst keep = at(argc, argv, 1); !JS_IsUndefined(keep)) {
    uint32_t num = 0;
    JS_ToUint32(ctx, &num, keep);
    step.keep = num;
  }
  return JsProgram::of(ctx).wait_for(static_cast<Fixed&&>(step), JsProgram::Gives::Tokens, "fixed");
}

// (max tokens, max bytes, max words, stop text, variable, kind of constraint, its arguments...); 0: no limit
JSValue gen(JSContext* ctx, JSValueConst, int argc, JSValueConst* argv) {
  Gen step;
  uint32_t max_bytes = 0, max_words = 0;
  std::optional<aici::Text> stop_at = to_text(ctx, argv[3]), variable = to_text(ctx, argv[4]);
  if (!stop_at || !variable || JS_ToUint32(ctx, &step.max_tokens, argv[0]) < 0) return JS_EXCEPTION;
  if (JS_ToUint32(ctx, &max_bytes, argv[1]) < 0 || JS_ToUint32(ctx, &max_words, argv[2]) < 0) return JS_EXCEPTION;
  if (max_bytes > 0) step.max_bytes = max_bytes;
  if (max_words > 0) step.max_words = max_words;
  step.stop_at = *stop_at, step.variable = *variable;
  if (argc > 5 && !(step.constraint = make_constraint(ctx, argc - 5, argv + 5))) return JS_EXCEPTION;
  return JsProgram::of(ctx).wait_for(static_cast<Gen&&>(step), JsProgram::Gives::Tokens, "gen");
}

JSValue fork(JSContext* ctx, JSValueConst, int, JSValueConst* argv) {
  Fork step;
  if (JS_ToUint32(ctx, &step.num, argv[0]) < 0) return JS_EXCEPTION;
  return JsProgram::of(ctx).wait_for(step, JsProgram::Gives::Fork, "fork");
}

JSValue wait_vars(JSContext* ctx, JSValueConst, int, JSValueConst* argv) {
  std::optional<std::vector<aici::Text>> names = to_texts(ctx, argv[0], "names");
  if (!names) return JS_EXCEPTION;
  return JsProgram::of(ctx).wait_for(Wait{*names}, JsProgram::Gives::Values, "waitVars");
}

JSValue pause(JSContext* ctx, JSValueConst, int, JSValueConst*) {
  return JsProgram::of(ctx).wait_for(Pause{}, JsProgram::Gives::Nothing, "pause");
}

JSValue own(JSContext* ctx, JSValueConst, int, JSValueConst* argv) { return JsProgram::of(ctx).wait_for_own(argv[0]); }

JSValue keep_alive(JSContext* ctx, JSValueConst, int, JSValueConst* argv) {
  JsProgram::of(ctx).keep_alive(argv[0]);
  return JS_DupValue(ctx, argv[0]);
}

// --- The sequence and its tokens

JSValue get_tokens(JSContext* ctx, JSValueConst, int, JSValueConst*) {
  return from_tokens(ctx, sequence_of(ctx).tokens()).release();
}

JSValue get_num_tokens(JSContext* ctx, JSValueConst, int, JSValueConst*) {
  return JS_NewUint32(ctx, static_cast<uint32_t>(sequence_of(ctx).tokens().size()));
}

JSValue get_prompt_len(JSContext* ctx, JSValueConst, int, JSValueConst*) {
  return JS_NewUint32(ctx, static_cast<uint32_t>(sequence_of(ctx).prompt_len()));
}

JSValue tokenize(JSContext* ctx, JSValueConst, int, JSValueConst* argv) {
  std::optional<aici::Text> text = to_bytes(ctx, argv[0]);
  return text ? from_tokens(ctx, aici::tokenize(*text)).release() : JS_EXCEPTION;
}

JSValue detokenize(JSContext* ctx, JSValueConst, int, JSValueConst* argv) {
  std::optional<std::vector<aici::TokenId>> tokens = to_tokens(ctx, argv[0]);
  return tokens ? from_bytes(ctx, sequence_of(ctx).trie().decode(*tokens)).release() : JS_EXCEPTION;
}

JSValue eos_token(JSContext* ctx, JSValueConst, int, JSValueConst*) { return JS_NewUint32(ctx, aici::eos_token()); }
JSValue self_seq_id(JSContext* ctx, JSValueConst, int, JSValueConst*) { return JS_NewUint32(ctx, aici::self_seq_id()); }

// --- Variables

JSValue get_var(JSContext* ctx, JSValueConst, int, JSValueConst* argv) {
  std::optional<aici::Text> name = to_text(ctx, argv[0]);
  if (!name) return JS_EXCEPTION;
  std::optional<aici::Text> value = aici::get_variable(*name);
  return value ? from_bytes(ctx, *value).release() : JS_NULL;
}

JSValue write_var(JSContext* ctx, JSValueConst, int, JSValueConst* argv, int is_append) {
  std::optional<aici::Text> name = to_text(ctx, argv[0]);
  std::optional<aici::Text> value = name ? to_bytes(ctx, argv[1]) : std::nullopt;
  if (!value) return JS_EXCEPTION;
  is_append ? aici::append_variable(*name, *value) : aici::set_variable(*name, *value);
  return JS_UNDEFINED;
}

// --- Text and the log

JSValue encode(JSContext* ctx, JSValueConst, int, JSValueConst* argv) {
  std::optional<aici::Text> text = to_text(ctx, argv[0]);
  return text ? from_bytes(ctx, *text).release() : JS_EXCEPTION;
}

JSValue decode(JSContext* ctx, JSValueConst, int, JSValueConst* argv) {
  std::optional<aici::Text> bytes = to_bytes(ctx, argv[0]);
  return bytes ? from_text(ctx, *bytes).release() : JS_EXCEPTION;
}

JSValue print(JSContext* ctx, JSValueConst, int, JSValueConst* argv) {
  std::optional<aici::Text> text = to_text(ctx, argv[0]);
  if (!text) return JS_EXCEPTION;
  aici::print((*text << '\n').view());
  return JS_UNDEFINED;
}

JSValue panic(JSContext* ctx, JSValueConst, int, JSValueConst* argv) {
  std::optional<aici::Text> text = to_text(ctx, argv[0]);
  if (!text) return JS_EXCEPTION;
  aici::fail(text->view());
}

JSValue log_level(JSContext* ctx, JSValueConst, int, JSValueConst*) { return JS_NewInt32(ctx, sequence_of(ctx).log_level); }

JSValue set_log_level(JSContext* ctx, JSValueConst, int, JSValueConst* argv) {
  return JS_ToInt32(ctx, &sequence_of(ctx).log_level, argv[0]) < 0 ? JS_EXCEPTION : JS_UNDEFINED;
}

// The number of arguments is also the minimum number present in a call.
const JSCFunctionListEntry NATIVES[] = {
    JS_CFUNC_DEF("fixed", 1, fixed),
    JS_CFUNC_DEF("gen", 5, gen),
    JS_CFUNC_DEF("fork", 1, fork),
    JS_CFUNC_DEF("waitVars", 1, wait_vars),
    JS_CFUNC_DEF("pause", 0, pause),
    JS_CFUNC_DEF("own", 1, own),
    JS_CFUNC_DEF("keepAlive", 1, keep_alive),
    JS_CFUNC_DEF("getTokens", 0, get_tokens),
    JS_CFUNC_DEF("getNumTokens", 0, get_num_tokens),
    JS_CFUNC_DEF("getPromptLen", 0, get_prompt_len),
    JS_CFUNC_DEF("tokenize", 1, tokenize),
    JS_CFUNC_DEF("detokenize", 1, detokenize),
    JS_CFUNC_DEF("eosToken", 0, eos_token),
    JS_CFUNC_DEF("selfSeqId", 0, self_seq_id),
    JS_CFUNC_DEF("getVar", 1, get_var),
    JS_CFUNC_MAGIC_DEF("setVar", 2, write_var, 0),
    JS_CFUNC_MAGIC_DEF("appendVar", 2, write_var, 1),
    JS_CFUNC_DEF("encode", 1, encode),
    JS_CFUNC_DEF("decode", 1, decode),
    JS_CFUNC_DEF("print", 1, print),
    JS_CFUNC_DEF("panic", 1, panic),
    JS_CFUNC_DEF("logLevel", 0, log_level),
    JS_CFUNC_DEF("setLogLevel", 1, set_log_level),
};

int fill(JSContext* ctx, JSModuleDef* module) {
  JS_SetModuleExport(ctx, module, "TokenSet", token_set_class(ctx).release());
  JS_SetModuleExport(ctx, module, "Constraint", constraint_class(ctx).release());
  return JS_SetModuleExportList(ctx, module, NATIVES, std::size(NATIVES));
}

}  // namespace

JSModuleDef* add_natives(JSContext* ctx) {
  JSModuleDef* module = JS_NewCModule(ctx, "aici/native", fill);
  if (!module) return nullptr;
  JS_AddModuleExport(ctx, module, "TokenSet");
  JS_AddModuleExport(ctx, module, "Constraint");
  JS_AddModuleExportList(ctx, module, NATIVES, std::size(NATIVES));
  return module;
}

}  // namespace jsctrl
