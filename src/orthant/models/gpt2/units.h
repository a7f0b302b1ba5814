// The units of a GPT-2 decoder: token and position embeddings, layers, and the head in front of the loss. Built from
// gpt2_spec().
#pragma once

#include <memory>

#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/tables.h"
#include "orthant/runtime/unit.h"
#include "orthant/specs/gpt2.h"

namespace orthant::gpt2 {

// The unit of that spec; nullptr when its kind is not GPT-2's. Keeps references to the parameters and tables.
std::unique_ptr<Unit> make_unit(const Gpt2Config& config, const UnitParameters& parameters, Tables& tables);

}  // namespace orthant::gpt2
