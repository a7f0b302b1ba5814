// The units of a Llama decoder: token embedding, layers, and the head in front of the loss. Built from llama_spec().
#pragma once

#include <memory>

#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/tables.h"
#include "orthant/runtime/unit.h"
#include "orthant/specs/llama.h"

namespace orthant::llama {

// The unit of that spec; nullptr when its kind is not Llama's. Keeps references to the parameters and tables.
std::unique_ptr<Unit> make_unit(const LlamaConfig& config, const UnitParameters& parameters, Tables& tables);

}  // namespace orthant::llama
