#include "orthant/train/parity.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/data/loader.h"
#include "orthant/files/xxhash.h"
#include "orthant/train/measured_plans.h"
#include "orthant/train/run.h"
#include "orthant/train/whole_tensors.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// Whether every rank has the same bits of these, and of those it holds copies of. Collective over the world.
bool same_on_all_ranks(const Trainer& trainer, const WholeTensors& whole) {
  const auto& communicator = trainer.options().communicator;
  if (!communicator) return true;
  std::uint64_t hash = whole.copies_equal ? 0 : 1 + static_cast<std::uint64_t>(trainer.rank());
  for (const auto& [name, tensor] : whole.tensors) {
    hash = hash * 31 + xxh64({static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  const auto own = at::tensor({static_cast<std::int64_t>(hash)}, at::kLong).to(trainer.options().device);
  const auto all = at::empty({trainer.mesh().world_size()}, own.options());
  communicator->world().all_gather(all, own).wait();
  return whole.copies_equal && all.eq(own).all().item<bool>();
}

// A folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((fs::temp_directory_path() / fmt::format("orthant-parity-{}", getpid())).string()) {
    fs::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::unique_ptr<Trainer> saved_and_loaded(const RunConfig& config, std::unique_ptr<Trainer> trainer) {
  const TemporaryFolder folder;
  trainer->save(folder.path() + "/saved");
  const auto plans = trainer->measured_plans() == nullptr ? std::nullopt : trainer->measured_plans()->table();
  trainer = make_trainer(config);
  trainer->load(folder.path() + "/saved");
  if (plans) trainer->measured_plans()->use(*plans);
  return trainer;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

double largest(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.to(at::kDouble).abs().max().item<double>();
}

double relative(double value, double reference) {
  if (value == reference) return 0;
  const double error = std::abs(value - reference) / std::max(std::abs(reference), std::numeric_limits<double>::min());
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

struct TensorErrors {
  std::map<std::string, double> by_name;
  double worst = 0;
  std::string worst_name;
  bool equal = true;
};

TensorErrors tensor_errors(const std::map<std::string, at::Tensor>& side,
                           const std::map<std::string, at::Tensor>& reference) {
  double scale = 0;
  for (const auto& [name, tensor] : reference) scale = std::max(scale, largest(tensor));
  TensorErrors errors;
  for (const auto& [name, tensor] : side) {
    if (!reference.contains(name)) {
      throw ConfigError(fmt::format("parameter {} is not in the reference", name),
                        {.remedy = "compare configs of one model"});
    }
  }
  for (const auto& [name, tensor] : reference) {
    const auto found = side.find(name);
    if (found == side.end() || found->second.sizes() != tensor.sizes()) {
      throw ConfigError(fmt::format("parameter {} is not alike in both models", name),
                        {.remedy = "compare configs of one model"});
    }
    errors.equal &= same_bits(found->second, tensor);
    const double bottom = std::max(largest(tensor), 0.01 * scale);
    const double distance = largest(found->second.to(at::kDouble) - tensor.to(at::kDouble));
    const double error = distance == 0 ? 0 : distance / bottom;
    errors.by_name[name] = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    if (errors.worst_name.empty() || errors.by_name[name] > errors.worst) {
      errors.worst = errors.by_name[name];
      errors.worst_name = name;
    }
  }
  return errors;
}

double worst_of(const std::vector<double>& side, const std::vector<double>& reference, bool& equal) {
  double worst = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    worst = std::max(worst, relative(side.at(i), reference[i]));
    equal &= side[i] == reference[i];
  }
  return worst;
}

// The number the side's gradient is a multiple of, when it is one.
double factor_of(const at::Tensor& side, const at::Tensor& reference) {
  const auto a = side.to(at::kDouble).flatten();
  const auto b = reference.to(at::kDouble).flatten();
  const double factor = (a.dot(b) / b.dot(b)).item<double>();
  return largest(a - b * factor) < 1e-3 * largest(a) ? factor : std::numeric_limits<double>::quiet_NaN();
}

// The same of all gradients that differ, in the mean.
double mean_factor(const std::map<std::string, at::Tensor>& side, const std::map<std::string, at::Tensor>& reference,
                   const std::function<bool(const std::string&)>& differs) {
  double product = 0;
  double square = 0;
  for (const auto& [name, tensor] : reference) {
    if (!differs(name)) continue;
    const auto b = tensor.to(at::kDouble).flatten();
    product += side.at(name).to(at::kDouble).flatten().dot(b).item<double>();
    square += b.dot(b).item<double>();
  }
  return product / square;
}

}  // namespace

// A number of bfloat16 in which a sum was regrouped may round to a neighbour in float8, an eighth away.
constexpr double kFloat8Tolerance = 2e-1;

double parity_tolerance(DType dtype) {
  if (dtype == DType::float64) return 1e-10;
  if (dtype == DType::float32) return 1e-3;
  return dtype == DType::float16 ? 1e-2 : 1e-1;
}

double parity_tolerance(const Precision& precision) {
  double tolerance = precision.float8 ? kFloat8Tolerance : 0;
  for (const auto dtype : {precision.params, precision.compute, precision.reduce}) {
    tolerance = std::max(tolerance, parity_tolerance(dtype));
  }
  return precision.tf32 ? std::max(tolerance, parity_tolerance(DType::float16)) : tolerance;  // of equal mantissas
}

ParitySide run_parity_side(RunConfig config, const ParityOptions& options) {
  const auto data = make_run_data(config);
  auto trainer = make_trainer(config);
  auto loader = make_loader(config, data, 0);
  ParitySide side;
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    const auto batch = loader->next();
    // Before the update, which clips them where it works.
    if (step == 1 || step == options.steps) {
      trainer->gradients(batch).get();
      side.gradients = whole_gradients(*trainer).tensors;
    }
    if (step == 1) side.first_gradients = side.gradients;
    const auto numbers = trainer->step(batch).get();
    side.losses.push_back(numbers.loss);
    side.grad_norms.push_back(numbers.grad_norm);
    if (step == options.resume_at) {
      trainer = saved_and_loaded(config, std::move(trainer));
      loader = make_loader(config, data, trainer->steps_done());
    }
  }
  const auto weights = whole_weights(*trainer);
  side.weights = weights.tensors;
  side.replicas_equal = same_on_all_ranks(*trainer, weights);
  for (const auto& unit : trainer->graph().units) {
    for (const auto& parameter : unit.parameters) side.names.push_back(parameter.name);
  }
  return side;
}

ParityResult compare_sides(const ParitySide& side, const ParitySide& reference, double tolerance,
                           const std::vector<Suspect>& suspects) {
  ParityResult result;
  result.tolerance = tolerance;
  bool equal = true;
  result.loss = worst_of(side.losses, reference.losses, equal);
  result.grad_norm = worst_of(side.grad_norms, reference.grad_norms, equal);
  const auto gradients = tensor_errors(side.gradients, reference.gradients);
  const auto weights = tensor_errors(side.weights, reference.weights);
  result.gradients = gradients.worst;
  result.weights = weights.worst;
  result.worst_parameter = gradients.worst >= weights.worst ? gradients.worst_name : weights.worst_name;
  result.bitwise = equal && gradients.equal && weights.equal;
  const auto first_gradients = tensor_errors(side.first_gradients, reference.first_gradients);
  const bool at_first = first_gradients.worst > tolerance;
  const auto& errors = at_first ? first_gradients : gradients;
  const auto differs = [&](const std::string& name) {
    const auto found = errors.by_name.find(name);
    return found != errors.by_name.end() && found->second > tolerance;
  };
  if (const auto first = std::ranges::find_if(reference.names, differs); first != reference.names.end()) {
    result.first_difference = *first;
    const auto& ours = at_first ? side.first_gradients : side.gradients;
    const auto& theirs = at_first ? reference.first_gradients : reference.gradients;
    result.likely_factor = factor_of(ours.at(*first), theirs.at(*first));
    result.likely_cause = likely_cause(result.likely_factor, mean_factor(ours, theirs, differs), suspects);
  }
  result.replicas_equal = side.replicas_equal && reference.replicas_equal;
  result.pass = result.replicas_equal && result.loss <= tolerance && result.grad_norm <= tolerance &&
                result.gradients <= tolerance && result.weights <= tolerance;
  return result;
}

std::string parity_text(const ParityResult& result) {
  const bool rounding = std::max({result.loss, result.grad_norm, result.gradients, result.weights}) <= result.tolerance;
  std::string text = result.bitwise ? "equal: every bit\n" : fmt::format("equal within {:.1e}\n", result.tolerance);
  if (!result.pass) {
    text = !result.replicas_equal ? "DIFFERENT between replicas\n"
           : rounding             ? "DIFFERENT bits, within rounding\n"
                                  : fmt::format("DIFFERENT beyond {:.1e}\n", result.tolerance);
  }
  text += fmt::format("  largest relative error: loss {:.2e}, gradient norm {:.2e}, gradients {:.2e}, weights {:.2e}\n",
                      result.loss, result.grad_norm, result.gradients, result.weights);
  text += fmt::format("  worst parameter: {}\n", result.worst_parameter);
  if (!result.replicas_equal) text += "  replicas hold different weights\n";
  if (!result.first_difference.empty()) {
    text += fmt::format("  first gradient that differs: {}, {}\n", result.first_difference, result.likely_cause);
  }
  return text;
}

nlohmann::ordered_json parity_json(const ParityResult& result) {
  const auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  };
  return {{"pass", result.pass},
          {"bitwise", result.bitwise},
          {"max_relative_error",
           {{"loss", number(result.loss)},
            {"grad_norm", number(result.grad_norm)},
            {"gradients", number(result.gradients)},
            {"weights", number(result.weights)}}},
          {"worst_parameter", result.worst_parameter},
          {"first_difference", result.first_difference},
          {"likely_factor", number(result.likely_factor)},
          {"likely_cause", result.likely_cause},
          {"replicas_equal", result.replicas_equal},
          {"tolerance", result.tolerance}};
}

}  // namespace orthant
