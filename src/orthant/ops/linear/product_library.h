// Who plans products of matrices and computes them by plan. On a CUDA device that is cuBLASLt; tests have their own.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/cuda/product.h"

namespace orthant::nn {

// out = left right (+ added) (+ bias). `added` and `bias` may be undefined, `added` may be `out`.
struct ProductOperands {
  at::Tensor out;    // [rows, columns]
  at::Tensor left;   // [rows, depth]
  at::Tensor right;  // [depth, columns]
  at::Tensor added;  // as out
  at::Tensor bias;   // [columns]
};

// What plans are chosen by; nothing for operands that no plan is for: float64, empty ones, mixed dtypes other than
// narrow operands and a float32 result, memory with gaps within rows.
std::optional<cuda::Product> product_of(const ProductOperands& operands);

class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;

  // Plans are of use where both are the same.
  virtual std::string version() const = 0;
  virtual std::string card() const = 0;

  // At most so many, the library's best guess first; none where it cannot.
  virtual std::vector<cuda::ProductPlan> plans(const cuda::Product& product, int most) = 0;
  // Whether a plan, which may come from a file, is one for the product.
  virtual bool accepts(const cuda::Product& product, const cuda::ProductPlan& plan) = 0;
  // The time of one product by that plan on memory of its own, the median of several.
  virtual double seconds(const cuda::Product& product, const cuda::ProductPlan& plan) = 0;
  // On the stream on which libtorch's own operations on `out` would run. Any thread.
  virtual void multiply(const cuda::Product& product, const cuda::ProductPlan& plan,
                        const ProductOperands& operands) = 0;
};

// cuBLASLt on that CUDA device. ConfigError where the library does not open.
std::shared_ptr<ProductLibrary> device_product_library(at::Device device);

}  // namespace orthant::nn
