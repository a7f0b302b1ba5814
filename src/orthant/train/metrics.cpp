#include "orthant/train/metrics.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace orthant {
namespace {

struct Counter {
  const char* name;
  std::int64_t StepMetrics::* member;
};

struct Quantity {
  const char* name;
  double StepMetrics::* member;
};

// The line is written by these tables, in the file's order: counts, quantities, counts, quantities, memory.
constexpr std::array<Counter, 2> kPlace = {{{"step", &StepMetrics::step}, {"epoch", &StepMetrics::epoch}}};
constexpr std::array<Quantity, 3> kValues = {
    {{"loss", &StepMetrics::loss}, {"grad_norm", &StepMetrics::grad_norm}, {"lr", &StepMetrics::lr}}};
constexpr std::array<Counter, 2> kWork = {{{"samples", &StepMetrics::samples}, {"tokens", &StepMetrics::tokens}}};
constexpr std::array<Quantity, 3> kSpeed = {{{"step_seconds", &StepMetrics::step_seconds},
                                             {"samples_per_second", &StepMetrics::samples_per_second},
                                             {"tokens_per_second", &StepMetrics::tokens_per_second}}};
constexpr std::array<Counter, 1> kMemory = {{{"peak_memory_bytes", &StepMetrics::peak_memory_bytes}}};

// Calls `act` with each table.
template <typename Action>
void for_each_table(const Action& act) {
  act(kPlace);
  act(kValues);
  act(kWork);
  act(kSpeed);
  act(kMemory);
}

std::string number(std::int64_t value) {
  return fmt::format("{}", value);
}

// A whole number keeps a decimal point, so that readers with typed numbers see one type in every line.
std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> digits;
  const auto [end, status] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  std::string text(digits.data(), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Of the slots of all layers, which have equally many.
double dropped_share(const std::vector<LayerLoads>& layers) {
  double sum = 0;
  for (const LayerLoads& layer : layers) sum += layer.dropped;
  return sum / static_cast<double>(layers.size());
}

// Behind the numbers that every model has.
std::string experts_text(const StepMetrics& metrics) {
  if (metrics.expert_loads.empty()) return {};
  std::string text = fmt::format(",\"auxiliary_loss\":{},\"dropped_share\":{},\"expert_loads\":{{",
                                 number(metrics.auxiliary_loss), number(dropped_share(metrics.expert_loads)));
  for (const auto& layer : metrics.expert_loads) {
    text += fmt::format("{}{}:[", text.back() == '{' ? "" : ",", nlohmann::json(layer.layer).dump());
    for (const double share : layer.shares) text += (text.back() == '[' ? "" : ",") + number(share);
    text += "]";
  }
  return text + "}";
}

}  // namespace

std::string metrics_line(const StepMetrics& metrics) {
  std::string line = "{";
  for_each_table([&](const auto& table) {
    for (const auto& field : table) {
      line += fmt::format("{}\"{}\":{}", line.size() > 1 ? "," : "", field.name, number(metrics.*field.member));
    }
  });
  if (metrics.model_flops_per_second > 0) {
    line += fmt::format(",\"model_flops_per_second\":{}", number(metrics.model_flops_per_second));
  }
  return line + experts_text(metrics) + "}";
}

std::string eval_line(std::int64_t step, const EvalMetrics& metrics) {
  std::string line = fmt::format("{{\"step\":{}", step);
  for (const auto& [name, value] : metrics) {
    line += fmt::format(",{}:{}", nlohmann::json(name).dump(), number(value));
  }
  return line + "}";
}

}  // namespace orthant
