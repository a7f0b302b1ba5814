// Patterns of operations that one kernel serves. Changes neither bits nor what is kept: a fused operation makes all
// that its parts make and somebody reads. Pure. Internal to this layer.
//
// | parts | becomes |
// |---|---|
// | product, bias, add | project: a linear layer with its bias and what is added to it |
// | dropout, add, layer_norm (or without one end) | dropout_add_norm, dropout_add |
// | rotary, attention; attention_back, rotary_back | rotary_attention, rotary_attention_back |
// | layer_norm_back, dropout | layer_norm_back with a second output |
// | of a generation: rms_norm, project; project, swiglu | project with a norm's weight as its third parameter; gated |
#pragma once

#include <set>

#include "orthant/program/place.h"

namespace orthant {

// Marks the sums that a norm alone reads: they are fused with it and not with the product before them, in every list.
// Ranks complete such a sum before they add to it.
void mark_sums_of_norms(Body& body);

// `needed`: values that somebody reads when the list is done. A part that makes one of them for others stays apart.
std::vector<Operation> fused(std::vector<Operation> list, const std::set<int>& needed);

// The same for the forward list of a generation.
std::vector<Operation> fused_of_generation(std::vector<Operation> list, const std::set<int>& needed);

}  // namespace orthant
