// The units of a language model from encoder layers: embedding, layers, and the head in front of the loss. Built from
// encoder_lm_spec().
#pragma once

#include <memory>

#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/tables.h"
#include "orthant/runtime/unit.h"
#include "orthant/specs/encoder_lm.h"

namespace orthant::encoder_lm {

// The unit of that spec; nullptr when its kind is not such a model's. Keeps references to the parameters and tables.
std::unique_ptr<Unit> make_unit(const EncoderLmConfig& config, const UnitParameters& parameters, Tables& tables);

}  // namespace orthant::encoder_lm
