// The units that a trimodal classifier adds to its two BERT towers: tabular encoder and fusion MLP.
#pragma once

#include <memory>

#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/tables.h"
#include "orthant/runtime/unit.h"
#include "orthant/specs/trimodal.h"

namespace orthant::trimodal {

// The unit of that spec, towers included; nullptr when its kind is not one of a trimodal model. Keeps references to the
// parameters and tables.
std::unique_ptr<Unit> make_unit(const TrimodalConfig& config, const UnitParameters& parameters, Tables& tables);

}  // namespace orthant::trimodal
