// Units for every spec: the one place that knows all model kinds.
#pragma once

#include <memory>
#include <vector>

#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/tables.h"
#include "orthant/runtime/unit.h"
#include "orthant/specs/model_config.h"

namespace orthant {

// One unit per unit of the store's graph, in its order; null for those of other ranks. The units keep references to the
// store and the tables.
std::vector<std::unique_ptr<Unit>> build_units(const ModelConfig& config, ParameterStore& parameters, Tables& tables);

}  // namespace orthant
