// What holds for every operation, whatever it computes: outputs and gradients are those of a formula under autograd in
// float64; every way of running a backward gives the same bits; what is frozen or not wanted gets no gradient and
// changes no other; ranks of a tensor axis together have what one rank has.
#pragma once

#include <functional>

#include "interpret/unit_run.h"
#include "ops/dropout_factors.h"
#include "ops/thread_axis.h"

namespace orthant::test {

using nn::expect_close;
using nn::expect_same_bits;
using nn::random_tensor;
using nn::run_axis;
using nn::ThreadAxis;

// The output from inputs and parameters, float64 leaves of autograd.
using Formula = std::function<at::Tensor(const Named& given, const nn::Pass& pass)>;

inline at::Tensor factors(const nn::Pass& pass, const std::string& site, double p, at::IntArrayRef shape) {
  return nn::dropout_factors(pass, std::string(kUnit) + "." + site, p, shape, at::dtype(at::kDouble));
}

// By autograd, for a case whose values are rounded to a dtype.
inline Result oracle(const UnitCase& given, const Formula& formula, at::ScalarType dtype,
                     const nn::Pass& pass = pass_at(11)) {
  Named leaves;
  for (const auto& [name, value] : given.rounded(dtype)) {
    leaves[name] = value.is_floating_point() ? value.to(at::kDouble).clone().requires_grad_() : value;
  }
  const at::Tensor y = formula(leaves, pass);
  nn::run_backward(y, given.output().value.to(dtype).to(at::kDouble));
  Result result{y.detach(), {}};
  for (const auto& [name, leaf] : leaves) {
    if (leaf.is_floating_point()) result.gradients[name] = leaf.grad();
  }
  return result;
}

// Absolute errors are measured by the largest number of a tensor, where that is above 1.
inline void expect_near(const at::Tensor& actual, const at::Tensor& expected, double bound, const std::string& what) {
  const double largest = expected.numel() == 0 ? 0 : expected.abs().max().item<double>();
  expect_close(actual, expected, bound, bound * std::max(1.0, largest), what);
}

inline void expect_result(const Result& actual, const Result& expected, double bound, double scale = 1) {
  expect_near(actual.y, expected.y, bound, "y");
  for (const auto& [name, gradient] : expected.gradients) {
    const auto found = actual.gradients.find(name);
    if (found == actual.gradients.end()) {
      ADD_FAILURE() << "no gradient of " << name;
    } else {
      expect_near(found->second, gradient * scale, bound, "gradient of " + name);
    }
  }
}

// What both have; `without`: names that have none.
inline void expect_same_result(const Result& actual, const Result& expected, const std::string& what,
                               const std::vector<std::string>& without = {}) {
  expect_same_bits(actual.y, expected.y, what + ": y");
  for (const auto& [name, gradient] : expected.gradients) {
    if (holds(without, name)) {
      EXPECT_FALSE(actual.gradients.at(name).defined()) << what << ": " << name << " has a gradient";
    } else if (gradient.defined()) {
      expect_same_bits(actual.gradients.at(name), gradient, what + ": gradient of " + name);
    }
  }
}

// Ways of a backward that all have the bits of a whole one.
inline std::vector<Way> other_ways() {
  return {{.name = "split", .split = true},
          {.name = "all again", .remake = {.all = true}},
          {.name = "all again, split", .split = true, .remake = {.all = true}},
          {.name = "attention again", .remake = remake_of(Recompute::selective)},
          {.name = "attention again, split", .split = true, .remake = remake_of(Recompute::selective)},
          {.name = "strided", .strided = true}};
}

inline std::vector<std::string> names_of(const std::vector<UnitCase::Tensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& tensor : tensors) {
    if (tensor.differentiable()) names.push_back(tensor.name);
  }
  return names;
}

// Names of parameters that one product uses, which are frozen together, and of others by themselves.
inline std::vector<std::vector<std::string>> used_together(const std::vector<UnitCase::Tensor>& parameters) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const auto& parameter : parameters) {
    groups[parameter.joined.empty() ? parameter.name : parameter.joined].push_back(parameter.name);
  }
  std::vector<std::vector<std::string>> found;
  for (auto& [label, names] : groups) found.push_back(std::move(names));
  return found;
}

// Nothing is made for what is frozen or not wanted, and the rest has the same bits.
inline void expect_independent(const UnitCase& given, at::ScalarType dtype, const Result& whole) {
  const auto inputs = names_of(given.inputs()), parameters = names_of(given.parameters());
  for (const bool split : {false, true}) {
    for (const auto& names : used_together(given.parameters())) {
      const auto& name = names.front();
      expect_same_result(UnitRun(given, {.name = "frozen " + name, .split = split, .frozen = names}, dtype).run(),
                         whole, name + " is frozen", names);
    }
    for (const auto& name : inputs) {
      expect_same_result(UnitRun(given, {.name = "constant " + name, .split = split, .constant = {name}}, dtype).run(),
                         whole, name + " is constant", {name});
    }
    if (!parameters.empty()) {
      expect_same_result(UnitRun(given, {.name = "constant inputs", .split = split, .constant = inputs}, dtype).run(),
                         whole, "inputs are constant", inputs);
    }
    if (!inputs.empty()) {
      expect_same_result(UnitRun(given, {.name = "frozen", .split = split, .frozen = parameters}, dtype).run(), whole,
                         "parameters are frozen", parameters);
    }
  }
}

// The case against its formula, and every way of running it against the others. `bound`: of results that are rounded
// to the dtype.
inline void expect_formula(const UnitCase& given, const Formula& formula, at::ScalarType dtype, double bound) {
  SCOPED_TRACE(c10::toString(dtype));
  const Result expected = oracle(given, formula, dtype);
  const Result whole = UnitRun(given, {}, dtype).run();
  if (given.output().value.dim() > 0) EXPECT_EQ(whole.y.scalar_type(), dtype);
  expect_result(whole, expected, bound);
  for (const auto& way : other_ways()) expect_same_result(UnitRun(given, way, dtype).run(), whole, way.name);
  const Way twice{.name = "two microbatches", .microbatches = 2};
  expect_result(UnitRun(given, twice, dtype).run(), expected, bound, 2);
  const Result twice_split = UnitRun(given, {.name = "two, split", .split = true, .microbatches = 2}, dtype).run();
  expect_same_result(twice_split, UnitRun(given, twice, dtype).run(), "two, split");
  expect_independent(given, dtype, whole);
  const Result still = oracle(given, formula, dtype, pass_at(11, /*training=*/false));
  expect_near(UnitRun(given, {.name = "evaluation", .evaluate = true}, dtype).run().y, still.y, bound, "evaluation");
}

inline void expect_formula(const UnitCase& given, const Formula& formula, at::ScalarType dtype) {
  expect_formula(given, formula, dtype, 4 * nn::tolerance(dtype));
}

// Every gradient, by central differences of the program's own forward.
inline void expect_central_differences(const UnitCase& given) {
  UnitRun run(given, {}, at::kDouble);
  const Result whole = run.run();
  const nn::Pass pass = pass_at(11);
  const auto f = [&] {
    Frame frame;
    return run.forward(frame, pass);
  };
  for (const auto& input : given.inputs()) {
    if (!input.differentiable()) continue;
    nn::expect_numerical(whole.gradients.at(input.name), f, input.value, given.output().value, input.name);
  }
  for (const auto& parameter : given.parameters()) {
    const at::Tensor value = run.parameter(parameter.name).value.detach();
    nn::expect_numerical(whole.gradients.at(parameter.name), f, value, given.output().value, parameter.name);
  }
}

// A rank's result against one rank's. Gradients of whole parameters are partial where tokens are cut: those are summed
// here, by the axis itself.
inline void expect_part(const UnitCase& given, const UnitRun& run, Result part, const Result& whole, ThreadAxis& axis,
                        double bound) {
  expect_near(part.y, run.part(given.output(), whole.y), bound, "y");
  for (const auto& input : given.inputs()) {
    if (!input.differentiable()) continue;
    const at::Tensor expected = run.part(input, whole.gradients.at(input.name));
    expect_near(part.gradients.at(input.name), expected, bound, "gradient of " + input.name);
  }
  for (const auto& parameter : given.parameters()) {
    at::Tensor& gradient = part.gradients.at(parameter.name);
    if (!parameter.tp && axis.sequence_parallel()) axis.sum(gradient, {})->wait();
    expect_near(gradient, run.part(parameter, whole.gradients.at(parameter.name)), bound,
                "gradient of " + parameter.name);
  }
}

struct Sharing {
  bool sequence_parallel = false;
  bool regather = false;
};
inline constexpr Sharing kSharings[] = {{}, {true, false}, {true, true}};

// Over tp axes of those degrees, with whole and cut tokens, in all ways. Ranks also repeat each other's bits: a split
// backward and one that makes all again have those of a whole one.
inline void expect_axis(const UnitCase& given, const std::vector<int>& degrees, at::ScalarType dtype, double bound,
                        const std::vector<Way>& ways = other_ways()) {
  const Result whole = UnitRun(given, {}, dtype).run();
  for (const int degree : degrees) {
    for (const auto& [sequence_parallel, regather] : kSharings) {
      run_axis(degree, {.sequence_parallel = sequence_parallel, .regather = regather}, [&](ThreadAxis& axis) {
        SCOPED_TRACE(testing::Message() << "rank " << axis.coordinate() << " of " << degree << ", sequence "
                                        << sequence_parallel << ", regather " << regather);
        UnitRun run(given, {}, dtype, &axis);
        const Result part = run.run();
        for (const auto& way : ways) {
          expect_same_result(UnitRun(given, way, dtype, &axis).run(), part, way.name);
        }
        expect_part(given, run, part, whole, axis, bound);
      });
    }
  }
}

// The calls of rank 1 in one forward and backward: kinds in their order.
struct Calls {
  std::string kinds;
  std::vector<ThreadAxis::Call> all;
};
inline Calls calls_of(const UnitCase& given, const Sharing& sharing, const Way& way = {}, int degree = 2) {
  Calls calls;
  run_axis(degree, {.sequence_parallel = sharing.sequence_parallel, .regather = sharing.regather},
           [&](ThreadAxis& axis) {
             UnitRun(given, way, at::kDouble, &axis).run();
             if (axis.coordinate() != degree - 1) return;
             calls.all = axis.calls();
             for (const auto& call : axis.calls()) calls.kinds += call.kind + " ";
           });
  return calls;
}

}  // namespace orthant::test
