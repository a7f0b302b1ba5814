// Tensors that belong to no unit and never travel: rotary tables, additive masks. Built once per rank and shape.
#pragma once

#include <ATen/core/Tensor.h>

#include <bit>
#include <cstdint>
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

  // The first `rows` rows of a table that is made with a power of two of them: texts of all lengths share few tables.
  at::Tensor rows(const std::string& key, std::int64_t rows, const std::function<at::Tensor(std::int64_t rows)>& make) {
    const auto made = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
    return get(key + " " + std::to_string(made), [&] { return make(made); }).narrow(0, 0, rows);
  }

  // The tensor kept under `key` for the last length that was asked for; made anew for another.
  at::Tensor of_length(const std::string& key, std::int64_t length, const std::function<at::Tensor()>& make) {
    auto& [of, tensor] = last_[key];
    if (!tensor.defined() || of != length) {
      tensor = make();
      of = length;
    }
    return tensor;
  }

 private:
  std::map<std::string, at::Tensor> kept_;
  std::map<std::string, std::pair<std::int64_t, at::Tensor>> last_;
};

}  // namespace orthant
