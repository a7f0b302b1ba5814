// The units of a BERT encoder: embedding, layers, pooler, and the head of masked language modelling. Built from the
// specs that a tower adds to a graph, or from bert_model_spec() and bert_forward_spec().
#pragma once

#include <memory>

#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/tables.h"
#include "orthant/runtime/unit.h"
#include "orthant/specs/bert_model.h"

namespace orthant::bert {

// The unit of that spec; nullptr when its kind is not BERT's. Keeps references to the parameters and tables.
std::unique_ptr<Unit> make_unit(const BertConfig& config, const UnitParameters& parameters, Tables& tables);
std::unique_ptr<Unit> make_unit(const BertModelConfig& config, const UnitParameters& parameters, Tables& tables);

}  // namespace orthant::bert
