#include "orthant/models/parameter_kinds.h"

#include <utility>

namespace orthant {
namespace {

ParameterSpec vector_of(std::string name, std::int64_t size, Init::Kind kind) {
  ParameterSpec parameter;
  parameter.name = std::move(name);
  parameter.shape = {size};
  parameter.init.kind = kind;
  parameter.decay = false;
  return parameter;
}

}  // namespace

Split split_dim(int dim, std::int64_t granule) {
  Split split;
  split.dim = dim;
  split.granule = granule;
  return split;
}

ParameterSpec matrix(std::string name, std::int64_t rows, std::int64_t columns, double stddev, std::optional<Split> tp,
                     std::string joined) {
  ParameterSpec parameter;
  parameter.name = std::move(name);
  parameter.shape = {rows, columns};
  parameter.init = {Init::Kind::normal, stddev};
  parameter.joined = std::move(joined);
  parameter.tp = std::move(tp);
  return parameter;
}

ParameterSpec table(std::string name, std::int64_t entries, std::int64_t columns, double stddev,
                    std::optional<Split> tp) {
  ParameterSpec parameter = matrix(std::move(name), entries, columns, stddev, std::move(tp));
  parameter.table = true;
  return parameter;
}

ParameterSpec bias(std::string name, std::int64_t size, std::optional<Split> tp, std::string joined) {
  ParameterSpec parameter = vector_of(std::move(name), size, Init::Kind::zeros);
  parameter.joined = std::move(joined);
  parameter.tp = std::move(tp);
  return parameter;
}

ParameterSpec norm_weight(std::string name, std::int64_t size) {
  return vector_of(std::move(name), size, Init::Kind::ones);
}

ParameterSpec uniform(ParameterSpec parameter, double bound) {
  parameter.init = {Init::Kind::uniform, bound};
  return parameter;
}

ParameterSpec per_head(ParameterSpec parameter) {
  parameter.used_per_head = true;
  return parameter;
}

ParameterSpec along_sequence(ParameterSpec parameter) {
  parameter.partial_under_sequence_parallel = true;
  return parameter;
}

}  // namespace orthant
