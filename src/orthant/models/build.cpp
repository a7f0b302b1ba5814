#include "orthant/models/build.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/models/bert/units.h"
#include "orthant/models/encoder_lm/units.h"
#include "orthant/models/gpt2/units.h"
#include "orthant/models/llama/units.h"
#include "orthant/models/trimodal/units.h"
#include "orthant/nn/loss.h"

namespace orthant {
namespace {

// logits, labels -> weighted sum of the cross entropy.
class CrossEntropy : public Unit {
 public:
  CrossEntropy(std::vector<double> class_weights, const UnitParameters& p) : class_weights_(std::move(class_weights)) {
    const auto& logits = p.graph().value(p.spec().inputs.front());
    if (logits.tp) classes_ = logits.shape.back();
  }

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    nn::CrossEntropyOptions options;
    options.consume_logits = pass.owns_inputs;
    if (pass.tensor != nullptr) options.classes = classes_;
    if (!class_weights_.empty()) {
      if (!weights_.defined()) weights_ = at::tensor(class_weights_, at::kDouble).to(inputs[0].device());
      options.class_weights = weights_;
    }
    return {nn::cross_entropy(inputs[0], inputs[1], options, pass)};
  }

 private:
  std::vector<double> class_weights_;
  std::int64_t classes_ = 0;  // of the vocabulary, when tp cuts the logits
  at::Tensor weights_;        // on the device, made once
};

std::unique_ptr<Unit> make_model_unit(const LlamaConfig& config, const UnitParameters& p, Tables& tables) {
  return llama::make_unit(config, p, tables);
}
std::unique_ptr<Unit> make_model_unit(const TrimodalConfig& config, const UnitParameters& p, Tables& tables) {
  return trimodal::make_unit(config, p, tables);
}
std::unique_ptr<Unit> make_model_unit(const BertModelConfig& config, const UnitParameters& p, Tables& tables) {
  return bert::make_unit(config, p, tables);
}
std::unique_ptr<Unit> make_model_unit(const Gpt2Config& config, const UnitParameters& p, Tables& tables) {
  return gpt2::make_unit(config, p, tables);
}
std::unique_ptr<Unit> make_model_unit(const EncoderLmConfig& config, const UnitParameters& p, Tables& tables) {
  return encoder_lm::make_unit(config, p, tables);
}

std::unique_ptr<Unit> make_unit(const ModelConfig& config, const UnitParameters& parameters, Tables& tables) {
  if (parameters.spec().kind == "cross_entropy") {
    const auto* trimodal = std::get_if<TrimodalConfig>(&config);
    return std::make_unique<CrossEntropy>(trimodal == nullptr ? std::vector<double>{} : trimodal->class_weights,
                                          parameters);
  }
  return std::visit([&](const auto& model) { return make_model_unit(model, parameters, tables); }, config);
}

}  // namespace

std::vector<std::unique_ptr<Unit>> build_units(const ModelConfig& config, ParameterStore& parameters, Tables& tables) {
  std::vector<std::unique_ptr<Unit>> units;
  const auto& specs = parameters.graph().units;
  for (int u = 0; u < static_cast<int>(specs.size()); ++u) {
    if (!parameters.runs(u)) {
      units.push_back(nullptr);
      continue;
    }
    auto unit = make_unit(config, parameters.unit(u), tables);
    if (!unit)
      throw InternalError(fmt::format("no code for units of kind {}", specs[static_cast<std::size_t>(u)].kind));
    units.push_back(std::move(unit));
  }
  return units;
}

}  // namespace orthant
