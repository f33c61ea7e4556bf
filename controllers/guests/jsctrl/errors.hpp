// What a user reads of an exception.
#pragma once
#include "value.hpp"

namespace jsctrl {

// Name, message and the lines of the script that it came through.
aici::Text describe_error(JSContext* ctx, JSValueConst error);

// Ends the guest with the exception that is pending.
[[noreturn]] void fail_with_exception(JSContext* ctx);

// Throws a TypeError, whose message may be of any length. Returns JS_EXCEPTION.
JSValue throw_error(JSContext* ctx, std::string_view message);

}  // namespace jsctrl
