// The text of an exception for the user.
#pragma once
#include "value.hpp"

namespace jsctrl {

// Name, message, and the lines of the script in the stack.
aici::Text describe_error(JSContext* ctx, JSValueConst error);

// End the guest with the pending exception.
[[noreturn]] void fail_with_exception(JSContext* ctx);

// Throw a TypeError with a message of any length. Returns JS_EXCEPTION.
JSValue throw_error(JSContext* ctx, std::string_view message);

}  // namespace jsctrl
