#include "orthant/ops/linear/product_plans.h"

#include <c10/util/Exception.h>

namespace orthant::nn {
namespace {

constexpr int kMostPlans = 8;

}  // namespace

ChosenPlans choose_plans(ProductLibrary& library, const std::set<cuda::Product>& products) {
  ChosenPlans chosen;
  for (const auto& product : products) {
    try {
      std::optional<ChosenPlan> best;
      for (const auto& plan : library.plans(product, kMostPlans)) {
        if (!library.accepts(product, plan)) continue;
        const double seconds = library.seconds(product, plan);
        if (!best) best = ChosenPlan{plan, seconds, seconds};
        if (seconds < best->seconds) best = ChosenPlan{plan, seconds, best->first_seconds};
      }
      if (best) chosen.emplace(product, *best);
    } catch (const c10::OutOfMemoryError&) {
      // The step itself fits: the product stays with libtorch.
    }
  }
  return chosen;
}

bool ProductPlans::multiply(const ProductOperands& operands) {
  const auto product = product_of(operands);
  if (!product) return false;
  if (!in_use_) {
    const std::lock_guard lock(mutex_);
    noted_.insert(*product);
    return false;
  }
  const auto found = plans_.find(*product);
  if (found == plans_.end()) return false;
  library_->multiply(*product, found->second, operands);
  planned_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

std::set<cuda::Product> ProductPlans::noted() const {
  const std::lock_guard lock(mutex_);
  return noted_;
}

void ProductPlans::set(const ChosenPlans& chosen) {
  plans_.clear();
  for (const auto& [product, plan] : chosen) plans_.emplace(product, plan.plan);
}

}  // namespace orthant::nn
