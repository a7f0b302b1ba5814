// The code of every operation by its name. Local.
#pragma once

#include "orthant/nn/binding.h"

namespace orthant {

// InternalError when no code has that name.
Step bind_operation(const Binding& binding);

}  // namespace orthant
