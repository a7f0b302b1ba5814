// orthant evaluate: the metrics of a run's model on what it held out, or on another file.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/printable.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_scoring.h"
#include "orthant/train/result_table.h"

namespace orthant::cli {
namespace {

struct EvaluateOptionsGiven {
  std::string run;
  std::string data;
  std::string checkpoint;
  std::string key_file;
  ReadingOptions reading;
  bool json = false;
};

void print_metrics(const EvaluateOptionsGiven& given, const RunConfig& config, const ScoringResult& result,
                   double seconds) {
  if (given.json) {
    auto eval = nlohmann::ordered_json::object();
    for (const auto& [name, value] : result.metrics) eval[name] = value;
    std::cout << json_text(nlohmann::ordered_json{
                     {"run", given.run},
                     {"checkpoint", result.weights},
                     {"step", result.step < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(result.step)},
                     {"data", given.data.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(given.data)},
                     {"samples", result.rows},
                     {"eval", eval},
                     {"mesh", mesh_json(config.mesh)},
                     {"world_size", config.mesh.world_size()},
                     {"parameters", result.parameters},
                     {"seconds", seconds}})
              << std::endl;
    return;
  }
  const auto step = result.step < 0 ? std::string() : fmt::format(" at step {}", result.step);
  std::cout << fmt::format("{}{} on {}: {} samples ({})\n", printable(given.run), step,
                           given.data.empty() ? "the part it held out" : printable(given.data), result.rows,
                           format_seconds(seconds));
  for (const auto& [name, value] : result.metrics) std::cout << fmt::format("  {:10} {:.6g}\n", name, value);
  std::cout << std::flush;
}

}  // namespace

int run_evaluate(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Measures the newest checkpoint of a run on the part of its data that it held out, or on another file: loss, "
      "accuracy, F1 and AUC of a classifier, loss and perplexity of a language model. Any mesh reads the checkpoint of "
      "any other.",
      "orthant evaluate");
  EvaluateOptionsGiven given;
  RankOptions ranks;
  app.add_option("--run", given.run, help::kEvaluatedRun).required();
  app.add_option("--data", given.data,
                 "table or text, or a folder that prepare-text made (default: what the run held out of its data)");
  app.add_option("--checkpoint", given.checkpoint,
                 "a checkpoint of the run, such as runs/first/checkpoints/best (default: the newest whole one)");
  add_reading_options(app, given.reading);
  app.add_option("--key-file", given.key_file,
                 "file of the key that the checkpoint is tagged with (default: the run's)");
  app.add_flag("--json", given.json, "one JSON document on stdout");
  add_rank_options(app, ranks);
  if (!parse(app, arguments, context,
             "orthant evaluate --run runs/first\n  orthant evaluate --run runs/first --data held_out.csv"))
    return 0;
  refuse_empty(app, {"--run", "--data", "--checkpoint", "--key-file"});
  ScoringSettings settings;
  settings.data = given.data;
  settings.key_file = given.key_file;
  set_reading(app, given.reading, settings);
  const auto job = make_scoring_job(find_scored_run(given.run, given.checkpoint), settings, ranks, context);
  return score_on_ranks(
      job, ranks, context, {{"--run", given.run}, {"--checkpoint", given.checkpoint}},
      [&](const RunConfig& config, const ScoringReports& reports) {
        return given.data.empty() ? evaluate_held_out(config, job.model, reports)
                                  : evaluate_file(config, job.model, reports);
      },
      [&](const RunConfig& config, const ScoringResult& result, double seconds) {
        print_metrics(given, config, result, seconds);
      });
}

}  // namespace orthant::cli
