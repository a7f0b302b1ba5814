// The rules of all operations. Adding one: its folder, and a line here and in list.cpp. Internal to this layer.
#pragma once

#include "orthant/ops/rule.h"

namespace orthant {

extern const OpRule kActivation;
extern const OpRule kAdd;
extern const OpRule kAttention;
extern const OpRule kBias;
extern const OpRule kConcat;
extern const OpRule kConvert;
extern const OpRule kCrossEntropy;
extern const OpRule kDropout;
extern const OpRule kEmbedding;
extern const OpRule kFirstToken;
extern const OpRule kHeadLoss;
extern const OpRule kHeadNorm;
extern const OpRule kLayerNorm;
extern const OpRule kProduct;
extern const OpRule kRmsNorm;
extern const OpRule kRotary;
extern const OpRule kWaves;

}  // namespace orthant
