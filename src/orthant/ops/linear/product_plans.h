// Products of a rank by plans that were measured: which plan is the fastest for each product, and products by these
// plans. What has no plan is libtorch's to compute.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "orthant/ops/linear/product_library.h"

namespace orthant::nn {

struct ChosenPlan {
  cuda::ProductPlan plan;
  double seconds = 0;
  double first_seconds = 0;  // of the library's best guess

  friend bool operator==(const ChosenPlan&, const ChosenPlan&) = default;
};
using ChosenPlans = std::map<cuda::Product, ChosenPlan>;

// The fastest of the library's first plans for each product; the earlier one of equally fast ones. Products without a
// plan, and those whose scratch memory the device does not have, are left out.
ChosenPlans choose_plans(ProductLibrary& library, const std::set<cuda::Product>& products);

class ProductPlans {
 public:
  explicit ProductPlans(std::shared_ptr<ProductLibrary> library) : library_(std::move(library)) {}

  // Computes the product, when there is a plan and plans are in use; says so. Any thread.
  bool multiply(const ProductOperands& operands);

  // Both between steps: which plans there are, and whether products go by them. Else, as at the beginning, products
  // that are asked for are noted and not computed here.
  void set(const ChosenPlans& chosen);
  void in_use(bool used) { in_use_ = used; }

  std::set<cuda::Product> noted() const;

  ProductLibrary& library() { return *library_; }
  std::uint64_t num_planned() const { return planned_; }  // products by plan so far

 private:
  std::shared_ptr<ProductLibrary> library_;
  std::atomic<bool> in_use_ = false;
  mutable std::mutex mutex_;  // of noted_
  std::set<cuda::Product> noted_;
  std::map<cuda::Product, cuda::ProductPlan> plans_;
  std::atomic<std::uint64_t> planned_ = 0;
};

}  // namespace orthant::nn
