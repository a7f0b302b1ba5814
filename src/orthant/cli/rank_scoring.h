// What the commands that score a file share: the model they are given, what can be refused before ranks are started,
// and the ranks.
#pragma once

#include <functional>
#include <string>

#include "orthant/cli/rank_command.h"
#include "orthant/train/scoring.h"

namespace orthant::cli {

struct ScoringJob {
  ScoredModel model;
  nlohmann::json text;  // of the configuration
  RunConfig config;
};

// Options that say how to read the file, and their values for the settings.
struct ReadingOptions {
  std::string separator;
  std::string text_column;
  std::string bad_rows;
};
void add_reading_options(OptionParser& app, ReadingOptions& given);
void set_reading(const OptionParser& app, const ReadingOptions& given, ScoringSettings& settings);

// The configuration of these settings on the mesh of the options, which the launcher's world fills where they name
// none. The mesh is put into `ranks`. ConfigError, DataError.
ScoringJob make_scoring_job(ScoredModel model, ScoringSettings settings, RankOptions& ranks, const Context& context);

// Runs `score` on every rank, with a configuration that knows device and peers, and `tell` on rank 0 with what came of
// it and the seconds it took. `more` is what ranks must agree on besides the configuration.
int score_on_ranks(
    const ScoringJob& job, const RankOptions& ranks, Context& context, const nlohmann::json& more,
    const std::function<ScoringResult(const RunConfig& config, const ScoringReports& reports)>& score,
    const std::function<void(const RunConfig& config, const ScoringResult& result, double seconds)>& tell);

}  // namespace orthant::cli
