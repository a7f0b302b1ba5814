// Arithmetic and comparisons of chat templates, with the meaning that Python gives them. Local.
#pragma once

#include <string_view>

#include "orthant/serve/jinja/builtins.h"
#include "orthant/serve/jinja/value.h"

namespace orthant::jinja {

Value computed(std::string_view sign, const Value& left, const Value& right, Budget& budget);
Value signed_number(std::string_view sign, const Value& value);
// One of == != < <= > >= in, not in.
bool holds(std::string_view sign, const Value& left, const Value& right, Budget& budget);

}  // namespace orthant::jinja
