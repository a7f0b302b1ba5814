// The pure layers' dtypes as torch's, and back: the only place that knows both.
#pragma once

#include <c10/core/ScalarType.h>

#include "orthant/graph/dtype.h"

namespace orthant {

at::ScalarType scalar_type(DType dtype);

// InternalError for a type the pure layers do not know.
DType dtype_of(at::ScalarType type);

}  // namespace orthant
