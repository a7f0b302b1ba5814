// The values and units that all models share.
#pragma once

#include <string>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/models/work_size.h"

namespace orthant {

ValueSpec batch_field(std::string name, Shape shape, DType dtype);
ValueSpec activation_value(std::string name, Shape shape, DType compute);

// A unit with its names; the rest is the caller's.
UnitSpec make_unit(std::string name, std::string kind, std::vector<std::string> inputs,
                   std::vector<std::string> outputs);

// Adds unit "loss" (cross_entropy) of values "logits" and "labels", which exist, and its value "loss". Without weights
// all classes count alike.
void append_cross_entropy(GraphSpec& spec, const WorkSize& work, std::vector<double> class_weights = {});

}  // namespace orthant
