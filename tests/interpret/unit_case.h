// A unit of a few recorded operations with values for its inputs and parameters: what the tests of operations compile,
// bind and run. Values are float64; a run rounds them to its dtype.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ops/oracle.h"
#include "orthant/graph/recorder.h"
#include "orthant/graph/spec.h"

namespace orthant::test {

using Named = std::map<std::string, at::Tensor>;

inline constexpr const char* kUnit = "unit";

// The numbers of a pass that dropout depends on.
inline nn::Pass pass_at(std::int64_t first_row, bool training = true) {
  return {.unit = kUnit, .seed = 7, .step = 5, .first_row = first_row, .training = training};
}

class UnitCase {
 public:
  UnitCase(std::int64_t rows, std::int64_t sequence) : rows_(rows), sequence_(sequence) {}

  // An input [rows, sequence, channels] per token or [rows, channels] per row. `tp`: how ranks cut its channels.
  Value input(const std::string& name, at::Tensor value, std::optional<Split> tp = {}) {
    inputs_.push_back({name, std::move(value), std::move(tp)});
    const at::Tensor& given = inputs_.back().value;
    return given.dim() == 3 ? recorder.tokens(name, given.size(-1)) : recorder.rows(name, given.size(-1));
  }
  // Integers or booleans: [rows, sequence] or [rows].
  Value field(const std::string& name, at::Tensor value) {
    inputs_.push_back({name, std::move(value)});
    const at::Tensor& given = inputs_.back().value;
    return recorder.field(name, given.dim() == 2 ? Sym::tokens : Sym::rows,
                          given.scalar_type() == at::kBool ? Number::mask : Number::index);
  }
  // Gives the name. `joined`: a label that neighbours share, which one product uses.
  std::string parameter(const std::string& name, at::Tensor value, std::optional<Split> tp = {},
                        std::string joined = {}) {
    parameters_.push_back({.name = name, .value = std::move(value), .tp = std::move(tp), .joined = std::move(joined)});
    return name;
  }
  // The only output; `gy`: its gradient, in its shape.
  void output(Value value, at::Tensor gy, std::optional<Split> tp = {}) {
    recorder.output(value);
    output_ = {"y", std::move(gy), std::move(tp)};
    body_ = recorder.finish();
  }

  // Every rank has all tokens of the output, as of logits.
  void whole_output() { output_.whole = true; }

  struct Tensor {
    std::string name;
    at::Tensor value;
    std::optional<Split> tp = {};
    bool whole = false;  // of all tokens on every rank, whatever is shared
    std::string joined = {};

    bool differentiable() const { return value.is_floating_point(); }
    // Where ranks have their own tokens, they have those of it.
    bool shares_tokens() const { return value.dim() == 3 && !tp && !whole; }
  };

  // As ranks share it; `frozen` parameters have no gradient. One unit.
  GraphSpec graph(const TensorSharing& sharing, const std::vector<std::string>& frozen = {}) const {
    GraphSpec graph;
    graph.name = "case";
    graph.tensor = sharing;
    UnitSpec unit{.name = kUnit, .kind = "case", .outputs = {"y"}, .body = body_};
    const auto spec = [&](const Tensor& tensor) {
      ValueSpec value{.name = tensor.name, .shape = {tensor.value.sizes().begin(), tensor.value.sizes().end()}};
      value.differentiable = tensor.differentiable();
      value.tp = sharing.degree > 1 ? tensor.tp : std::nullopt;
      value.sequence_sharded = sharing.sequence_parallel && tensor.shares_tokens();
      return value;
    };
    for (const auto& input : inputs_) {
      unit.inputs.push_back(input.name);
      graph.batch_fields.push_back(spec(input));
    }
    graph.values.push_back(spec(output_));
    for (const auto& parameter : parameters_) {
      const auto sizes = parameter.value.sizes();
      unit.parameters.push_back({.name = full_name(parameter.name),
                                 .shape = {sizes.begin(), sizes.end()},
                                 .joined = parameter.joined,
                                 .tp = parameter.tp});
      for (const auto& name : frozen) {
        if (name == parameter.name) unit.parameters.back().trainable = false;
      }
    }
    graph.units.push_back(std::move(unit));
    return graph;
  }

  static std::string full_name(const std::string& parameter) { return std::string(kUnit) + "." + parameter; }

  // All floating-point tensors by name, rounded to a dtype.
  Named rounded(at::ScalarType dtype) const {
    Named found;
    for (const auto* list : {&inputs_, &parameters_}) {
      for (const auto& tensor : *list) {
        found[tensor.name] = tensor.differentiable() ? tensor.value.to(dtype) : tensor.value;
      }
    }
    return found;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t sequence() const { return sequence_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& parameters() const { return parameters_; }
  const Tensor& output() const { return output_; }

  Recorder recorder;

 private:
  std::int64_t rows_;
  std::int64_t sequence_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> parameters_;
  Tensor output_;
  SharedBody body_;
};

}  // namespace orthant::test
