// What a call between ranks is about: the names of the unit and of the parameters that a tensor belongs to, the unit
// first. Error messages name it, and a faulty transport chooses by it (comm/faulty.h). A view: whoever makes the call
// keeps the names until it has been waited for.
#pragma once

#include <span>
#include <string_view>

namespace orthant {

using Subject = std::span<const std::string_view>;

}  // namespace orthant
