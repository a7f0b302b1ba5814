// The kinds of parameters that the models of this layer are made of. Linear weights are [out, in].
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "orthant/graph/spec.h"

namespace orthant {

Split split_dim(int dim, std::int64_t granule = 1);

// A linear weight: drawn from normal(0, stddev), decayed.
ParameterSpec matrix(std::string name, std::int64_t rows, std::int64_t columns, double stddev,
                     std::optional<Split> tp = std::nullopt, std::string joined = {});

// Rows that are looked up by id; drawn and decayed likewise. Cut over its entries, or whole.
ParameterSpec table(std::string name, std::int64_t entries, std::int64_t columns, double stddev,
                    std::optional<Split> tp = std::nullopt);

// Zeros, not decayed.
ParameterSpec bias(std::string name, std::int64_t size, std::optional<Split> tp = std::nullopt,
                   std::string joined = {});

// Ones, not decayed.
ParameterSpec norm_weight(std::string name, std::int64_t size);

// The parameter, drawn from uniform(-bound, bound) instead.
ParameterSpec uniform(ParameterSpec parameter, double bound);

// Used where values are cut over the sequence: its gradient is then a partial sum.
ParameterSpec along_sequence(ParameterSpec parameter);

// Used on each head alike: where heads are cut, its gradient is a partial sum.
ParameterSpec per_head(ParameterSpec parameter);

}  // namespace orthant
