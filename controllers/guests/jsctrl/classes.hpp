// The SDK's objects as held by scripts: token sets and constraints.
#pragma once
#include <memory>
#include <optional>

#include "aici/script/program.hpp"
#include "value.hpp"

namespace jsctrl {

void add_classes(JSContext* ctx);

// The constructors.
Value token_set_class(JSContext* ctx);
Value constraint_class(JSContext* ctx);

// Null, with a pending exception, for any other value.
aici::TokenSet* to_token_set(JSContext* ctx, JSValueConst value);

// nullopt, with a pending exception, if the value is not a token of the vocabulary.
std::optional<aici::TokenId> to_token(JSContext* ctx, JSValueConst value);
std::optional<std::vector<aici::TokenId>> to_tokens(JSContext* ctx, JSValueConst array);

// A constraint by its kind and the arguments of the kind. Null, with a pending exception, if invalid.
std::unique_ptr<aici::Constraint> make_constraint(JSContext* ctx, int argc, JSValueConst* argv);

// A MidProcessResult. Its mask is copied into `mask`. nullopt, with a pending exception, for any other value.
std::optional<aici::script::OwnStep> to_own_step(JSContext* ctx, JSValueConst result, aici::TokenSet& mask);

}  // namespace jsctrl
