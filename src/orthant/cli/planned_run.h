// How `orthant train` is told of a model that was planned: the line to paste, and the configuration that
// `orthant plan --write-config` writes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "orthant/plan/estimate/plan_settings.h"

namespace orthant::cli {

// What --model named.
struct PlannedModel {
  enum class Form {
    configuration,  // a file that `orthant train --config` takes
    named,          // a preset or folder that `orthant init` takes
    described,      // a preset of a classifier or a file with a model alone: `train` is told with --set
  };
  std::string name;  // as it was written
  Form form = Form::configuration;
  std::vector<std::string> assignments;  // of a described one: "model.kind=llama", ...
};

// The name has been found by find_plan_model().
PlannedModel planned_model(const std::string& name);

// The line without --write-config.
RunLine run_line(const PlannedModel& model);

// Keys that the planned configuration sets, such as "parallel.zero"; none of other forms.
std::vector<std::string> configured_keys(const PlannedModel& model);

// A configuration that trains the model by the plan: the planned one with the plan's settings, or one made for this
// model on generated data. `card`: the run will find a GPU. ConfigError when `train` would refuse it.
nlohmann::ordered_json config_of_plan(const PlannedModel& model, const PlanSettings& settings, bool card);

}  // namespace orthant::cli
