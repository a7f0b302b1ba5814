// The units of a BERT tower: embedding, layers, pooler. Built from the specs that a tower adds to a graph.
#pragma once

#include <memory>

#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/tables.h"
#include "orthant/runtime/unit.h"
#include "orthant/specs/bert.h"

namespace orthant::bert {

// The unit of that spec; nullptr when its kind is not BERT's. Keeps references to the parameters and tables.
std::unique_ptr<Unit> make_unit(const BertConfig& config, const UnitParameters& parameters, Tables& tables);

}  // namespace orthant::bert
