// Tensors that belong to no unit and never travel: rotary tables, additive masks. Built once per rank and shape.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>

namespace orthant {

class Tables {
 public:
  // The tensor kept under `key`; made on first use. Local; one thread.
  const at::Tensor& get(const std::string& key, const std::function<at::Tensor()>& make) {
    auto found = kept_.find(key);
    if (found == kept_.end()) found = kept_.emplace(key, make()).first;
    return found->second;
  }

 private:
  std::map<std::string, at::Tensor> kept_;
};

}  // namespace orthant
