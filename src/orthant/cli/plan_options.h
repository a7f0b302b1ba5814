// What `orthant plan` and `orthant estimate` both ask for, and what both do with a plan besides printing it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "orthant/graph/dtype.h"
#include "orthant/plan/estimate/hardware.h"
#include "orthant/plan/estimate/plan.h"
#include "orthant/plan/estimate/plan_model.h"

namespace orthant::cli {

class OptionParser;

struct PlanOptions {
  std::string model;
  std::string card;
  std::optional<int> cards_per_node;  // nothing: the card's own
  std::int64_t global_batch = 0;
  std::int64_t sequence = 0;
  std::string params = "float32";
  std::string compute = "bfloat16";
  std::string gradients = "float32";
  double tokens = 0;              // to train on; 0: not said
  std::optional<double> reserve;  // percent of a card; nothing: the card's own
  std::string html;
  bool json = false;
};

void add_plan_options(OptionParser& app, PlanOptions& options);

// What --model, --gpu and --stack know by name, to follow the example in --help.
std::string known_names();

// ConfigError that names the option when it was not given.
void require_option(const OptionParser& app, const std::string& name);

// ConfigError with the nearest name; that of the card with --gpus-per-node.
PlanModel asked_model(const PlanOptions& options);
Hardware asked_hardware(const PlanOptions& options);

// ConfigError for a dtype whose speed the machine's figures do not tell, and for tokens that are none.
// A card whose description keeps no reserve, such as a host's share of memory, keeps 5% free of tensors.
void keep_some_free(const PlanOptions& options, Hardware& hardware);

void check_compute(DType compute, const Hardware& hardware);
void check_tokens(const OptionParser& app, double tokens);

// Of --params, --compute and --grads.
DType asked_dtype(const std::string& option, const std::string& name);

// "1.5e+13 tokens take 31.2 days and 3.1 million dollars"; without a price no dollars.
std::string budget_text(const Budget& budget, double tokens);

}  // namespace orthant::cli
