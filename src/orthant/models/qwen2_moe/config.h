// Qwen2-MoE: a Llama with biases of queries, keys and values, some of whose MLPs are mixtures of experts
// and one expert that every token passes, with a gate.
#pragma once

#include "orthant/models/llama/config.h"

namespace orthant {

extern const LlamaVariant kQwen2Moe;
const Family& qwen2_moe_family();

}  // namespace orthant
