#include "orthant/train/measured_plans.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>

#include "orthant/base/error.h"
#include "orthant/base/stable_hash.h"
#include "orthant/comm/control_group.h"

namespace orthant {
namespace {

constexpr const char* kRemedy = "use equal cards with equal libraries on all ranks, or train.product_plans=heuristic";

std::shared_ptr<nn::ProductLibrary> library_of(const TrainerOptions& options) {
  return options.product_library ? options.product_library : nn::device_product_library(options.device);
}

// Of the shapes of all values and parameters, which decide what is multiplied.
std::uint64_t hash_of_sizes(const GraphSpec& graph) {
  std::string text;
  const auto add = [&text](const std::string& name, const Shape& shape) {
    text += fmt::format("{} [{}]\n", name, fmt::join(shape, ", "));
  };
  for (const auto& field : graph.batch_fields) add(field.name, field.shape);
  for (const auto& value : graph.values) add(value.name, value.shape);
  for (const auto& unit : graph.units) {
    for (const auto& parameter : unit.parameters) add(parameter.name, parameter.shape);
  }
  return stable_hash(text);
}

std::string settings_of(const GraphSpec& graph, const TrainerOptions& options, const Mesh& mesh) {
  const auto& precision = options.precision;
  return fmt::format("{} {:016x}, mesh {}, {} microbatches, {}{} into {}", graph.name, hash_of_sizes(graph),
                     mesh.to_string(), options.microbatches, compute_name(precision), precision.tf32 ? " in TF32" : "",
                     dtype_name(precision.reduce));
}

}  // namespace

MeasuredPlans::MeasuredPlans(const GraphSpec& graph, const TrainerOptions& options, const Mesh& mesh)
    : options_(options), settings_(settings_of(graph, options, mesh)), plans_(library_of(options)) {}

nn::ProductPlans* MeasuredPlans::for_step(std::int64_t steps_done) {
  plans_.in_use(steps_done > 0 && table_);
  return &plans_;
}

nn::ProductPlans* MeasuredPlans::for_evaluation(std::int64_t steps_done) {
  return steps_done == 0 || !table_ ? nullptr : for_step(steps_done);
}

std::string MeasuredPlans::refusal(const ProductTable& table) {
  auto& library = plans_.library();
  if (table.library != library.version()) {
    return fmt::format("made by {}, and this is {}", table.library, library.version());
  }
  if (table.card != library.card()) return fmt::format("made for {}, and this is {}", table.card, library.card());
  for (const auto& [product, chosen] : table.plans) {
    if (!library.accepts(product, chosen.plan)) {
      return fmt::format("{} refuses the plan for {}", table.library, to_text(product));
    }
  }
  return {};
}

void MeasuredPlans::use(ProductTable table) {
  if (const auto why = refusal(table); !why.empty()) {
    throw ConfigError(fmt::format("product plans of rank 0 cannot be used: {}", why), {.remedy = kRemedy});
  }
  plans_.set(table.plans);
  table_ = std::move(table);
}

ProductTable MeasuredPlans::measure(const std::vector<std::string>& products) {
  std::set<cuda::Product> all;
  for (const auto& text : products) all.merge(product_set(text));
  auto& library = plans_.library();
  return {library.version(), library.card(), settings_, nn::choose_plans(library, all)};
}

void MeasuredPlans::end_step() {
  if (table_) return;
  const ControlGroup ranks = control_group(options_);
  const auto products = ranks.gather_texts(to_text(plans_.noted()));
  std::string text;
  ranks.together([&] {
    if (!ranks.is_first()) return;
    const auto began = std::chrono::steady_clock::now();
    const auto table = measure(products);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    double fastest = 0, first = 0;
    for (const auto& [product, chosen] : table.plans) {
      fastest += chosen.seconds;
      first += chosen.first_seconds;
    }
    if (options_.say) {
      options_.say(fmt::format(
          "measured plans of {} products in {:.1f} s: {:.3f} ms together, {:.3f} ms by the first plans of {}",
          table.plans.size(), seconds, fastest * 1e3, first * 1e3, table.library));
    }
    if (keep_) keep_(table);
    text = to_text(table);
  });
  text = ranks.from_first(text);
  ranks.together([&] { use(product_table(text, "rank 0")); });
}

}  // namespace orthant
