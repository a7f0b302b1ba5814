// A plan as a JSON value, for documents that hold several.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "orthant/plan/estimate/plan.h"

namespace orthant {

nlohmann::ordered_json plan_document(const Plan& plan);

// {"tokens", "days", "dollars"}; null where the hardware has no price.
nlohmann::ordered_json budget_document(const Budget& budget, double tokens);

}  // namespace orthant
