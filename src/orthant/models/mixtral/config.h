// Mixtral: a Mistral whose MLPs are mixtures of experts.
#pragma once

#include "orthant/models/llama/config.h"

namespace orthant {

extern const LlamaVariant kMixtral;
const Family& mixtral_family();

}  // namespace orthant
