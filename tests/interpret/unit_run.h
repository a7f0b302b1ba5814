// Runs a UnitCase by its programs, on one rank or a rank of a tensor axis, in every way that a schedule can ask for. A
// run checks what is always so: gradient buffers hold NaN before the first addition, values live as long as the program
// says, and B adds nothing to parameters.
#pragma once

#include <algorithm>
#include <limits>
#include <set>

#include "interpret/unit_case.h"
#include "orthant/interpret/unit_program.h"
#include "orthant/layout/local_parameter.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/program/print.h"
#include "orthant/program/sizes.h"

namespace orthant::test {

// How a case is run.
struct Way {
  std::string name = "whole backward";
  bool split = false;       // B, then W
  Remake remake = {};       // what backward makes again
  int microbatches = 1;     // equal ones, one after the other
  bool evaluate = false;    // forward alone, by the program of an evaluation
  bool in_forward = false;  // the gradient of the loss is known before it
  bool strided = false;     // inputs and gradients do not lie densely
  bool owns_inputs = false;
  std::vector<std::string> frozen = {};    // parameters
  std::vector<std::string> constant = {};  // inputs whose gradient nobody wants
};

inline bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

struct Result {
  at::Tensor y;
  Named gradients;  // of inputs and parameters, by name; undefined where nothing was added
};

// The parameters of one unit as a rank holds them.
class RankParameters {
 public:
  RankParameters(const GraphSpec& graph, const Precision& precision, int degree, int coordinate)
      : mesh_(Degrees{{Axis::tp, degree}}), pool_(make()) {
    const BufferMemory memory{make(), make(), &pool_, &live_, &live_};
    for (const auto& layout : unit_buffers(graph, mesh_, mesh_.coordinate(coordinate), {}).all) {
      buffers_.push_back(std::make_unique<FlatParameters>(graph, layout, precision, DataPolicy(), 0, memory));
    }
  }
  UnitParameters unit(const GraphSpec& graph) const {
    std::vector<FlatParameters*> all;
    for (const auto& buffer : buffers_) all.push_back(buffer.get());
    return {graph, 0, std::move(all)};
  }

 private:
  static MakeBuffer make() {
    return [](std::int64_t n, at::ScalarType type) { return at::zeros({n}, at::dtype(type)); };
  }
  Mesh mesh_;
  BufferPool pool_;
  LiveBytes live_;
  std::vector<std::unique_ptr<FlatParameters>> buffers_;
};

class UnitRun {
 public:
  UnitRun(const UnitCase& given, Way way, at::ScalarType dtype, nn::TensorAxis* axis = nullptr)
      : case_(given),
        way_(std::move(way)),
        dtype_(dtype),
        axis_(axis),
        sharing_(axis == nullptr ? TensorSharing()
                                 : TensorSharing{axis->degree(), axis->sequence_parallel(), axis->regather(), true}),
        graph_(given.graph(sharing_, way_.frozen)),
        parameters_(graph_, precision(dtype), sharing_.degree, axis == nullptr ? 0 : axis->coordinate()),
        unit_(parameters_.unit(graph_)),
        bound_(compile_unit(graph_, graph_.units.front(), options()), unit_, tables_, axis) {
    at::NoGradGuard no_grad;
    for (const auto& parameter : case_.parameters()) {
      nn::Parameter& mine = unit_[parameter.name];
      mine.value.copy_(held(parameter));
      if (mine.trainable()) mine.gradient.fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }

  const Program& program() const { return bound_.program(); }
  nn::Parameter& parameter(const std::string& name) const { return unit_[name]; }

  // Names of the values that live from forward to backward, inputs of the unit left out.
  std::vector<std::string> kept() const {
    std::vector<std::string> names;
    for (const int value : program().kept) {
      if (std::ranges::find(program().inputs, value) != program().inputs.end()) continue;
      names.push_back(program().values[static_cast<std::size_t>(value)].name);
    }
    std::ranges::sort(names);
    return names;
  }

  // Input i as the last forward was given it.
  const at::Tensor& handed(std::size_t i) const { return handed_[i]; }

  // All microbatches, and the gradients after them.
  Result run(const nn::Pass& numbers = pass_at(11)) {
    Result result;
    for (int m = 0; m < way_.microbatches; ++m) {
      Frame frame;
      result.y = forward(frame, numbers);
      if (!way_.evaluate) add(result.gradients, backward(frame));
    }
    for (const auto& parameter : case_.parameters()) {
      const nn::Parameter& mine = unit_[parameter.name];
      const bool fresh = parameter.joined.empty() ? mine.fresh : unit_.joined(parameter.joined).fresh;
      result.gradients[parameter.name] = mine.trainable() && !fresh ? mine.gradient : at::Tensor();
    }
    return result;
  }

  // `check`: inputs are compared, which numbers that are not finite are not.
  at::Tensor forward(Frame& frame, const nn::Pass& numbers, bool check = true) {
    frame.pass = numbers;
    frame.pass.training = numbers.training && !way_.evaluate;
    frame.pass.tensor = axis_;
    frame.pass.rows = case_.rows();
    frame.pass.sequence = case_.sequence();
    frame.pass.owns_inputs = way_.owns_inputs;
    Tensors inputs;
    for (const auto& input : case_.inputs()) inputs.push_back(placed(held(input)));
    handed_ = inputs;
    const at::Tensor y = bound_.forward(frame, std::move(inputs), way_.in_forward ? seed() : at::Tensor()).front();
    expect_alive(frame, program().kept, "after forward");
    if (check) expect_unchanged();
    return y.clone();
  }

  // Gradients of inputs by name. Those of parameters are added.
  Named backward(Frame& frame) {
    std::set<std::string> fresh;
    for (const auto& parameter : case_.parameters()) {
      if (unit_[parameter.name].fresh) fresh.insert(parameter.name);
    }
    const Tensors found = bound_.backward(frame, {seed()}, way_.split ? Part::inputs : Part::both);
    Named gradients;
    for (std::size_t i = 0; i < found.size(); ++i) gradients[case_.inputs()[i].name] = found[i];
    if (way_.split) {
      expect_alive(frame, program().deferred, "after B");
      if (!way_.in_forward) {
        for (const auto& name : fresh) EXPECT_TRUE(unit_[name].fresh) << "B has added to " << name;
      }
      bound_.weights(frame);
    }
    // A forward that has made the gradients leaves the loss's own to whoever ends the run.
    if (!way_.in_forward) expect_alive(frame, {}, "after the backward");
    if (!way_.owns_inputs) expect_unchanged();
    return gradients;
  }

  // What this rank holds of a tensor.
  at::Tensor held(const UnitCase::Tensor& tensor) const { return part(tensor, tensor.value); }
  at::Tensor part(const UnitCase::Tensor& tensor, const at::Tensor& whole) const {
    const at::Tensor value = whole.is_floating_point() ? whole.to(dtype_) : whole;
    if (axis_ == nullptr) return value.clone();
    if (tensor.tp) {
      const ParameterSpec spec{
          .name = tensor.name, .shape = {value.sizes().begin(), value.sizes().end()}, .tp = tensor.tp};
      const auto local = local_parameter(spec, axis_->degree(), axis_->coordinate());
      std::vector<at::Tensor> parts;
      for (const auto& box : local.boxes) {
        const auto dim = static_cast<std::size_t>(local.dim);
        parts.push_back(value.narrow(local.dim, box.offsets[dim], box.lengths[dim]));
      }
      return at::cat(parts, local.dim).contiguous();
    }
    if (!axis_->sequence_parallel() || !tensor.shares_tokens()) return value.clone();
    const Range own = axis_->part(case_.rows() * case_.sequence());
    return value.reshape({case_.rows() * case_.sequence(), value.size(2)}).narrow(0, own.begin, own.size()).clone();
  }

 private:
  static Precision precision(at::ScalarType dtype) {
    const DType type = dtype_of(dtype);
    return {type, type, dtype == at::kBFloat16 ? DType::float32 : type};
  }

  ProgramOptions options() const {
    ProgramOptions options{.remake = way_.remake, .gradients_in_forward = way_.in_forward, .training = !way_.evaluate};
    for (const auto& input : case_.inputs()) {
      options.needs.push_back(input.differentiable() && !holds(way_.constant, input.name));
    }
    return options;
  }

  at::Tensor seed() const {
    const at::Tensor gy = held(case_.output());
    // A loss is float32 where logits are narrower.
    return gy.dim() == 0 && dtype_ != at::kDouble ? gy.to(at::kFloat) : placed(gy);
  }

  at::Tensor placed(const at::Tensor& tensor) const {
    if (!way_.strided || tensor.dim() < 2) return tensor;
    return tensor.transpose(0, -1).contiguous().transpose(0, -1);
  }

  static void add(Named& to, const Named& gradients) {
    for (const auto& [name, gradient] : gradients) {
      at::Tensor& sum = to[name];
      sum = sum.defined() && gradient.defined() ? sum + gradient : gradient;
    }
  }

  // Inputs belong to whoever made them.
  void expect_unchanged() const {
    for (std::size_t i = 0; i < handed_.size(); ++i) {
      const auto& input = case_.inputs()[i];
      EXPECT_TRUE(at::equal(handed_[i], held(input))) << input.name << " was overwritten, " << way_.name;
    }
  }

  // Bits of a dropout are a card's alone.
  void expect_alive(const Frame& frame, std::vector<int> expected, const char* when) const {
    std::erase_if(expected,
                  [&](int value) { return program().values[static_cast<std::size_t>(value)].name == "bits"; });
    std::vector<int> alive;
    for (std::size_t i = 0; i < frame.values.size(); ++i) {
      if (frame.values[i].defined()) alive.push_back(static_cast<int>(i));
    }
    EXPECT_EQ(alive, expected) << when << ", " << way_.name << "\n" << to_string(program(), UnitSizes{});
  }

  const UnitCase& case_;
  Way way_;
  at::ScalarType dtype_;
  nn::TensorAxis* axis_;
  TensorSharing sharing_;
  GraphSpec graph_;
  RankParameters parameters_;
  UnitParameters unit_;
  Tables tables_;
  BoundProgram bound_;
  Tensors handed_;  // the inputs of the last forward
};

}  // namespace orthant::test
