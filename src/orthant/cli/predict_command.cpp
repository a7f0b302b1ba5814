// orthant predict: what a trained model says of each row of a table, or of each document of a text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/printable.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_scoring.h"
#include "orthant/train/prediction_file.h"
#include "orthant/train/result_table.h"

namespace orthant::cli {
namespace {

struct PredictOptionsGiven {
  std::string model;
  std::string data;
  std::string out;
  std::string key_file;
  ReadingOptions reading;
  std::optional<std::int64_t> sequence_length;
  bool json = false;
};

void print_prediction(const PredictOptionsGiven& given, const RunConfig& config, const ScoringResult& result,
                      double seconds) {
  if (given.json) {
    std::cout << json_text(nlohmann::ordered_json{
                     {"model", given.model},
                     {"kind", model_kind(config.model)},
                     {"weights", result.weights},
                     {"step", result.step < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(result.step)},
                     {"data", given.data},
                     {"out", given.out},
                     {"rows", result.rows},
                     {"columns", result.columns},
                     {"mesh", mesh_json(config.mesh)},
                     {"world_size", config.mesh.world_size()},
                     {"parameters", result.parameters},
                     {"bytes_read", result.bytes_read},
                     {"seconds", seconds}})
              << std::endl;
    return;
  }
  std::cout << printable(fmt::format("{}: {} rows of {} by {} ({})", given.out, result.rows,
                                     fmt::join(result.columns, ", "), result.weights, format_seconds(seconds)))
            << std::endl;
}

}  // namespace

int run_predict(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Scores every row of a table by a trained classifier (predicted label, probability of each class), or every "
      "document of a text by a language model (tokens, loss, perplexity). Any mesh reads the checkpoint of any other.",
      "orthant predict");
  PredictOptionsGiven given;
  RankOptions ranks;
  app.add_option(
         "--model", given.model,
         "folder of a run (its newest whole checkpoint), a checkpoint, an exported model, or a Hugging Face folder")
      .required();
  app.add_option("--data", given.data,
                 "for a classifier a table, with or without labels; for a language model a text, a table with texts, "
                 "or a folder that "
                 "prepare-text made")
      .required();
  app.add_option("--out", given.out, "file to write: .csv, .tsv or .jsonl; one that is there is replaced").required();
  add_reading_options(app, given.reading);
  app.add_option("--sequence-length", given.sequence_length,
                 "tokens that a language model sees at once (default: the run's)")
      .check(NumberRange(std::int64_t{1}, std::int64_t{1} << 20));
  app.add_option("--key-file", given.key_file,
                 "file of the key that the checkpoint is tagged with (default: the run's)");
  app.add_flag("--json", given.json, "one JSON document on stdout");
  add_rank_options(app, ranks);
  if (!parse(app, arguments, context, "orthant predict --model runs/first --data new_rows.csv --out scores.csv"))
    return 0;
  refuse_empty(app, {"--model", "--data", "--out", "--key-file"});
  check_prediction_path("--out", given.out, given.data);
  ScoringSettings settings;
  settings.data = given.data;
  settings.by_document = true;
  set_reading(app, given.reading, settings);
  settings.sequence_length = given.sequence_length;
  settings.key_file = given.key_file;
  const auto job = make_scoring_job(find_scored_model(given.model), settings, ranks, context);
  return score_on_ranks(
      job, ranks, context, {{"--model", given.model}, {"--out", given.out}},
      [&](const RunConfig& config, const ScoringReports& reports) {
        return predict_file(config, job.model, given.out, reports);
      },
      [&](const RunConfig& config, const ScoringResult& result, double seconds) {
        print_prediction(given, config, result, seconds);
      });
}

}  // namespace orthant::cli
