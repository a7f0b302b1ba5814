#include "orthant/cli/plan_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/plan/stacks/stack.h"

namespace orthant::cli {
namespace {

void set_reserve(Hardware& hardware, double percent) {
  hardware.reserve_bytes = std::llround(percent / 100 * static_cast<double>(hardware.memory_bytes));
  hardware.reserve_share = 0;
}

}  // namespace

void add_plan_options(OptionParser& app, PlanOptions& options) {
  app.add_option("--model", options.model, help::kPlannedModel);
  app.add_option("--gpu", options.card, "name of a card (h100-80gb, ...), or a JSON file of a machine");
  app.add_option("--gpus-per-node", options.cards_per_node, "cards that share a node (default: the card's, mostly 8)");
  app.add_option("--global-batch", options.global_batch, "rows of a step, over all replicas");
  app.add_option("--seq", options.sequence, "tokens of a row");
  app.add_option("--params", options.params, "dtype that the optimizer keeps (default float32)");
  app.add_option("--compute", options.compute,
                 "dtype of products and activations (default bfloat16); estimate takes float8, too");
  app.add_option("--grads", options.gradients, "dtype of gradients: float32 or bfloat16 (default float32)");
  app.add_option("--tokens", options.tokens, "tokens to train on, such as 15e12: adds days and cost");
  app.add_option("--reserve", options.reserve,
                 "percent of a card's memory that no tensor may have (default: the card's)")
      .check(NumberRange(0.0, 90.0));
  app.add_option("--html", options.html, "write a page for browsers to this file");
  app.add_flag("--json", options.json, "one JSON document on stdout");
}

std::string known_names() {
  constexpr std::size_t kWidth = 110;
  std::string text;
  const auto list = [&](std::string_view title, const std::vector<std::string>& names) {
    text += fmt::format("\n\n{}:\n ", title);
    std::size_t column = 1;
    for (const auto& name : names) {
      if (column + name.size() + 1 > kWidth) {
        text += "\n ";
        column = 1;
      }
      text += " " + name;
      column += 1 + name.size();
    }
  };
  list("Models", plan_model_names());
  list("Cards", hardware_names());
  list("Stacks of orthant estimate", stack_names());
  return text;
}

void require_option(const OptionParser& app, const std::string& name) {
  if (app.count(name) > 0) return;
  throw ConfigError(fmt::format("{}: {} is missing", app.get_name(), name),
                    {.remedy = fmt::format("add {}; {} --help has an example", name, app.get_name())});
}

PlanModel asked_model(const PlanOptions& options) {
  return find_plan_model(options.model);
}

Hardware asked_hardware(const PlanOptions& options) {
  Hardware hardware = find_hardware(options.card);
  if (options.reserve) set_reserve(hardware, *options.reserve);
  if (!options.cards_per_node) return hardware;
  if (*options.cards_per_node < 1) {
    throw ConfigError(fmt::format("--gpus-per-node {}: a node has at least one card", *options.cards_per_node),
                      {.remedy = "use the number of cards of one machine, e.g. 8"});
  }
  hardware.cards_per_node = *options.cards_per_node;
  return hardware;
}

void keep_some_free(const PlanOptions& options, Hardware& hardware) {
  constexpr double kPercent = 5;
  if (!options.reserve && hardware.reserve_bytes == 0 && hardware.reserve_share == 0) set_reserve(hardware, kPercent);
}

void check_compute(DType compute, const Hardware& hardware) {
  if (hardware.on_host || bytes_of(compute) == 2) return;
  throw ConfigError(
      fmt::format("--compute {}: the speed of {} is known for 16 bits", dtype_name(compute), hardware.name),
      {.remedy = "use bfloat16 or float16"});
}

void check_tokens(const OptionParser& app, double tokens) {
  if (app.count("--tokens") == 0 || (tokens >= 1 && tokens <= 1e18)) return;
  throw ConfigError(fmt::format("--tokens {}: no number of tokens to train on", tokens),
                    {.remedy = "use 1 to 1e18, such as 15e12"});
}

DType asked_dtype(const std::string& option, const std::string& name) {
  static const std::vector<std::string> kFloats = {"float64", "float32", "bfloat16", "float16"};
  if (std::ranges::find(kFloats, name) != kFloats.end()) return parse_dtype(name);
  throw ConfigError(fmt::format("{} {}: not a dtype to train in", option, name),
                    {.remedy = did_you_mean(name, kFloats)});
}

std::string budget_text(const Budget& budget, double tokens) {
  std::string text = fmt::format("{:.3g} tokens take {:.3g} days", tokens, budget.days);
  if (budget.dollars > 0) {
    text += budget.dollars < 1e6 ? fmt::format(" and {:.0f} dollars", budget.dollars)
                                 : fmt::format(" and {:.3g} million dollars", budget.dollars / 1e6);
  }
  return text;
}

}  // namespace orthant::cli
