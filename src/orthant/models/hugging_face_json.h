// How a family begins the config.json that it writes.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "orthant/graph/dtype.h"

namespace orthant {

inline nlohmann::ordered_json hugging_face_header(std::string_view type, std::string_view architecture, DType dtype) {
  return {{"architectures", {architecture}},
          {"model_type", type},
          {"dtype", dtype_name(dtype)},
          {"torch_dtype", dtype_name(dtype)}};
}

}  // namespace orthant
