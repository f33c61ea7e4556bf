#include "classes.hpp"

#include <cstring>

#include "aici/script/constraints.hpp"
#include "errors.hpp"
#include "program.hpp"

namespace jsctrl {

using aici::Constraint;
using aici::TokenSet;
using namespace aici::script;

namespace {

JSClassID token_set_id, constraint_id;

const aici::TokTrie& trie_of(JSContext* ctx) { return JsProgram::of(ctx).sequence().trie(); }

template <typename T>
void free_opaque(JSRuntime*, JSValueConst object, JSClassID id) {
  delete static_cast<T*>(JS_GetOpaque(object, id));
}

// An object of the class called with `new`, or of a derived class.
JSValue construct(JSContext* ctx, JSValueConst new_target, JSClassID id, void* opaque) {
  Value prototype(ctx, JS_GetPropertyStr(ctx, new_target, "prototype"));
  if (prototype.is_exception()) return JS_EXCEPTION;
  JSValue object = JS_NewObjectProtoClass(ctx, prototype.get(), id);
  if (!JS_IsException(object)) JS_SetOpaque(object, opaque);
  return object;
}

// --- TokenSet

JSValue new_token_set(JSContext* ctx, JSValueConst new_target, int, JSValueConst*) {
  return construct(ctx, new_target, token_set_id, new TokenSet(trie_of(ctx).empty_set()));
}

enum class SetMethod { Add, Delete, Has };

JSValue change_set(JSContext* ctx, JSValueConst self, int, JSValueConst* argv, int magic) {
  TokenSet* set = to_token_set(ctx, self);
  std::optional<aici::TokenId> token = set ? to_token(ctx, argv[0]) : std::nullopt;
  if (!token) return JS_EXCEPTION;
  bool had = set->allows(*token);
  if (static_cast<SetMethod>(magic) == SetMethod::Has) return JS_NewBool(ctx, had);
  if (static_cast<SetMethod>(magic) == SetMethod::Delete) {
    set->disallow(*token);
    return JS_NewBool(ctx, had);
  }
  set->allow(*token);
  return JS_DupValue(ctx, self);
}

JSValue set_all(JSContext* ctx, JSValueConst self, int, JSValueConst* argv) {
  TokenSet* set = to_token_set(ctx, self);
  if (!set) return JS_EXCEPTION;
  JS_ToBool(ctx, argv[0]) ? set->allow_all() : set->clear();
  return JS_UNDEFINED;
}

JSValue clear_set(JSContext* ctx, JSValueConst self, int, JSValueConst*) {
  TokenSet* set = to_token_set(ctx, self);
  if (!set) return JS_EXCEPTION;
  set->clear();
  return JS_UNDEFINED;
}

JSValue num_set(JSContext* ctx, JSValueConst self, int, JSValueConst*) {
  TokenSet* set = to_token_set(ctx, self);
  if (!set) return JS_EXCEPTION;
  int num = 0;
  for (uint32_t i = 0; i < set->num_words(); i++) num += __builtin_popcount(set->word(i));
  return JS_NewInt32(ctx, num);
}

// (at most this many, whether in the set)
JSValue set_to_array(JSContext* ctx, JSValueConst self, int argc, JSValueConst* argv) {
  TokenSet* set = to_token_set(ctx, self);
  double most = static_cast<double>(UINT32_MAX);
  if (!set || (argc > 0 && !JS_IsUndefined(argv[0]) && JS_ToFloat64(ctx, &most, argv[0]) < 0)) return JS_EXCEPTION;
  bool wanted = argc < 2 || JS_ToBool(ctx, argv[1]);
  std::vector<aici::TokenId> tokens;
  for (aici::TokenId token = 0; token < set->vocab_size() && static_cast<double>(tokens.size()) < most; token++)
    if (set->allows(token) == wanted) tokens.push_back(token);
  return from_tokens(ctx, tokens).release();
}

JSValue set_length(JSContext* ctx, JSValueConst self) {
  TokenSet* set = to_token_set(ctx, self);
  return set ? JS_NewUint32(ctx, set->vocab_size()) : JS_EXCEPTION;
}

const JSCFunctionListEntry TOKEN_SET_METHODS[] = {
    JS_CFUNC_MAGIC_DEF("add", 1, change_set, static_cast<int>(SetMethod::Add)),
    JS_CFUNC_MAGIC_DEF("delete", 1, change_set, static_cast<int>(SetMethod::Delete)),
    JS_CFUNC_MAGIC_DEF("has", 1, change_set, static_cast<int>(SetMethod::Has)),
    JS_CFUNC_DEF("setAll", 1, set_all),
    JS_CFUNC_DEF("clear", 0, clear_set),
    JS_CFUNC_DEF("numSet", 0, num_set),
    JS_CFUNC_DEF("toArray", 1, set_to_array),
    JS_CGETSET_DEF("length", set_length, nullptr),
};

// --- Constraint

JSValue new_constraint(JSContext* ctx, JSValueConst new_target, int argc, JSValueConst* argv) {
  std::unique_ptr<Constraint> made = make_constraint(ctx, argc, argv);
  return made ? construct(ctx, new_target, constraint_id, made.release()) : JS_EXCEPTION;
}

Constraint* to_constraint(JSContext* ctx, JSValueConst value) {
  return static_cast<Constraint*>(JS_GetOpaque2(ctx, value, constraint_id));
}

JSValue checked(JSContext* ctx, const Constraint& constraint, JSValue value) {
  return constraint.error() ? throw_error(ctx, constraint.error()) : value;
}

JSValue eos_allowed(JSContext* ctx, JSValueConst self, int, JSValueConst*) {
  Constraint* constraint = to_constraint(ctx, self);
  return constraint ? checked(ctx, *constraint, JS_NewBool(ctx, constraint->eos_allowed())) : JS_EXCEPTION;
}

JSValue eos_forced(JSContext* ctx, JSValueConst self, int, JSValueConst*) {
  Constraint* constraint = to_constraint(ctx, self);
  return constraint ? checked(ctx, *constraint, JS_NewBool(ctx, constraint->is_complete())) : JS_EXCEPTION;
}

JSValue token_allowed(JSContext* ctx, JSValueConst self, int, JSValueConst* argv) {
  Constraint* constraint = to_constraint(ctx, self);
  std::optional<aici::TokenId> token = constraint ? to_token(ctx, argv[0]) : std::nullopt;
  return token ? checked(ctx, *constraint, JS_NewBool(ctx, constraint->mask().allows(*token))) : JS_EXCEPTION;
}

JSValue append_token(JSContext* ctx, JSValueConst self, int, JSValueConst* argv) {
  Constraint* constraint = to_constraint(ctx, self);
  std::optional<aici::TokenId> token = constraint ? to_token(ctx, argv[0]) : std::nullopt;
  if (!token) return JS_EXCEPTION;
  bool fits = *token == trie_of(ctx).eos() ? constraint->eos_allowed() : constraint->append(*token);
  if (constraint->error()) return throw_error(ctx, constraint->error());
  if (!fits) return throw_error(ctx, (aici::Text("token ") << *token << " is not allowed by the constraint").view());
  return JS_UNDEFINED;
}

JSValue allow_tokens(JSContext* ctx, JSValueConst self, int, JSValueConst* argv) {
  Constraint* constraint = to_constraint(ctx, self);
  TokenSet* set = constraint ? to_token_set(ctx, argv[0]) : nullptr;
  if (!set) return JS_EXCEPTION;
  set->allow_all_of(constraint->mask());
  return checked(ctx, *constraint, JS_UNDEFINED);
}

const JSCFunctionListEntry CONSTRAINT_METHODS[] = {
    JS_CFUNC_DEF("eosAllowed", 0, eos_allowed),     JS_CFUNC_DEF("eosForced", 0, eos_forced),
    JS_CFUNC_DEF("tokenAllowed", 1, token_allowed), JS_CFUNC_DEF("appendToken", 1, append_token),
    JS_CFUNC_DEF("allowTokens", 1, allow_tokens),
};

void add_class(JSContext* ctx, JSClassID& id, const JSClassDef& definition, std::span<const JSCFunctionListEntry> methods) {
  JSRuntime* runtime = JS_GetRuntime(ctx);
  JS_NewClassID(runtime, &id);
  JS_NewClass(runtime, id, &definition);
  JSValue prototype = JS_NewObject(ctx);
  JS_SetPropertyFunctionList(ctx, prototype, methods.data(), static_cast<int>(methods.size()));
  JS_SetClassProto(ctx, id, prototype);
}

Value constructor(JSContext* ctx, JSClassID id, JSCFunction* function, const char* name) {
  Value made(ctx, JS_NewCFunction2(ctx, function, name, 0, JS_CFUNC_constructor, 0));
  Value prototype(ctx, JS_GetClassProto(ctx, id));
  JS_SetConstructor(ctx, made.get(), prototype.get());
  return made;
}

MadeConstraint made(JSContext* ctx, std::string_view kind, std::span<const JSValueConst> arguments) {
  const aici::TokTrie& trie = trie_of(ctx);
  if (kind == "choices" || kind == "options") {
    std::optional<std::vector<aici::Text>> texts = to_texts(ctx, arguments[0], kind == "choices" ? "choices" : "options");
    if (!texts) return {};
    return kind == "choices" ? choices_constraint(trie, *texts) : options_constraint(trie, *texts);
  }
  std::optional<aici::Text> text = to_text(ctx, arguments[0]);
  if (!text) return {};
  if (kind == "regex") return regex_constraint(trie, *text);
  if (kind == "grammar") return grammar_constraint(trie, *text);
  if (kind == "schema") return json_schema_constraint(trie, *text);
  std::optional<aici::Text> end = to_text(ctx, arguments[1]);
  return end ? substring_constraint(trie, *text, *end) : MadeConstraint{};
}

}  // namespace

void add_classes(JSContext* ctx) {
  JSClassDef token_set{};
  token_set.class_name = "TokenSet";
  token_set.finalizer = [](JSRuntime* runtime, JSValueConst object) { free_opaque<TokenSet>(runtime, object, token_set_id); };
  add_class(ctx, token_set_id, token_set, TOKEN_SET_METHODS);
  JSClassDef constraint{};
  constraint.class_name = "Constraint";
  constraint.finalizer = [](JSRuntime* runtime, JSValueConst object) {
    free_opaque<Constraint>(runtime, object, constraint_id);
  };
  add_class(ctx, constraint_id, constraint, CONSTRAINT_METHODS);
}

Value token_set_class(JSContext* ctx) { return constructor(ctx, token_set_id, new_token_set, "TokenSet"); }
Value constraint_class(JSContext* ctx) { return constructor(ctx, constraint_id, new_constraint, "Constraint"); }

TokenSet* to_token_set(JSContext* ctx, JSValueConst value) {
  return static_cast<TokenSet*>(JS_GetOpaque2(ctx, value, token_set_id));
}

std::optional<aici::TokenId> to_token(JSContext* ctx, JSValueConst value) {
  double number = 0;
  if (JS_ToFloat64(ctx, &number, value) < 0) return std::nullopt;
  if (JS_IsNumber(value) && number >= 0 && number < trie_of(ctx).vocab_size() && number == __builtin_floor(number))
    return static_cast<aici::TokenId>(number);
  JS_ThrowRangeError(ctx, "%g is no token: tokens are whole numbers from 0 to %u", number, trie_of(ctx).vocab_size() - 1);
  return std::nullopt;
}

std::optional<std::vector<aici::TokenId>> to_tokens(JSContext* ctx, JSValueConst array) {
  return to_vector<aici::TokenId>(ctx, array, "tokens", to_token);
}

std::unique_ptr<Constraint> make_constraint(JSContext* ctx, int argc, JSValueConst* argv) {
  if (argc == 0) return any_text(trie_of(ctx));
  std::optional<aici::Text> kind = to_text(ctx, argv[0]);
  if (!kind) return nullptr;
  JSValueConst arguments[] = {argc > 1 ? argv[1] : JS_UNDEFINED, argc > 2 ? argv[2] : JS_UNDEFINED};
  MadeConstraint result = made(ctx, *kind, arguments);
  if (!result.problem.empty()) throw_error(ctx, result.problem);
  return static_cast<std::unique_ptr<Constraint>&&>(result.constraint);
}

std::optional<OwnStep> to_own_step(JSContext* ctx, JSValueConst result, TokenSet& mask) {
  Value kind_value(ctx, JS_IsObject(result) ? JS_GetPropertyStr(ctx, result, "kind") : JS_UNDEFINED);
  std::optional<aici::Text> kind_text = to_text(ctx, kind_value.get());
  if (!kind_text) return std::nullopt;
  std::string_view kind = *kind_text;
  if (kind == "stop") return OwnStep{.kind = OwnStep::Kind::Stop};
  if (kind == "noop") return OwnStep{.kind = OwnStep::Kind::Hold};
  if (kind == "skip") return OwnStep{.kind = OwnStep::Kind::Skip};
  if (kind == "bias") {
    Value bias(ctx, JS_GetPropertyStr(ctx, result, "tokens"));
    TokenSet* set = to_token_set(ctx, bias.get());
    if (!set) return std::nullopt;
    mask.assign(*set);
    return OwnStep{.kind = OwnStep::Kind::Sample, .mask = &mask};
  }
  if (kind == "splice") {
    Value tokens(ctx, JS_GetPropertyStr(ctx, result, "tokens")), backtrack(ctx, JS_GetPropertyStr(ctx, result, "backtrack"));
    std::optional<std::vector<aici::TokenId>> ids = to_tokens(ctx, tokens.get());
    uint32_t num = 0;
    if (!ids || JS_ToUint32(ctx, &num, backtrack.get()) < 0) return std::nullopt;
    return OwnStep{.kind = OwnStep::Kind::Splice, .backtrack = num, .tokens = static_cast<std::vector<aici::TokenId>&&>(*ids)};
  }
  JS_ThrowTypeError(ctx, "midProcess() must return what one of the methods of MidProcessResult makes");
  return std::nullopt;
}

}  // namespace jsctrl
