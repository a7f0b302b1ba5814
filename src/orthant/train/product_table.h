// The plans that a run's products are computed by, as text: what rank 0 tells the others and keeps as
// product_plans.json. Local.
#pragma once

#include <set>
#include <string>

#include "orthant/ops/linear/product_plans.h"

namespace orthant {

struct ProductTable {
  std::string library;  // with its version
  std::string card;
  std::string settings;  // that sizes and dtypes of products follow from
  nn::ChosenPlans plans;

  friend bool operator==(const ProductTable&, const ProductTable&) = default;
};

std::string to_text(const ProductTable& table);
// DataError, which names `source`, for what is no such text.
ProductTable product_table(const std::string& text, const std::string& source);

// Products alone, for rank 0 to measure.
std::string to_text(const std::set<cuda::Product>& products);
std::set<cuda::Product> product_set(const std::string& text);

}  // namespace orthant
