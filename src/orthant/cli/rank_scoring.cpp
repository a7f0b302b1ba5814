#include "orthant/cli/rank_scoring.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/base/nearest.h"
#include "orthant/cli/data.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_training.h"
#include "orthant/files/path_facts.h"

namespace orthant::cli {

void add_reading_options(OptionParser& app, ReadingOptions& given) {
  app.add_option("--separator", given.separator,
                 "what ends a document of a text file: file, blank-line or line (default: the run's)");
  app.add_option("--text-column", given.text_column,
                 "column of the texts in a table, for a language model (default: the run's)");
  app.add_option("--bad-rows", given.bad_rows,
                 "what a bad row of a classifier's table does: stop, or skip it (default: the run's)");
}

void set_reading(const OptionParser& app, const ReadingOptions& given, ScoringSettings& settings) {
  refuse_empty(app, {"--separator", "--text-column", "--bad-rows"});
  const std::vector<std::string> choices = {"stop", "skip"};
  if (!given.bad_rows.empty() && std::ranges::find(choices, given.bad_rows) == choices.end()) {
    throw ConfigError(fmt::format("--bad-rows {}: there is no such choice", given.bad_rows),
                      {.remedy = did_you_mean(given.bad_rows, choices)});
  }
  if (!given.separator.empty()) settings.separator = given.separator;
  if (!given.text_column.empty()) settings.text_column = given.text_column;
  if (!given.bad_rows.empty()) settings.bad_rows = given.bad_rows;
}

ScoringJob make_scoring_job(ScoredModel model, ScoringSettings settings, RankOptions& ranks, const Context& context) {
  if (!settings.data.empty() && !is_there(settings.data)) {
    throw DataError(fmt::format("{}: there is no such file", settings.data),
                    {.remedy = "name a table (.csv, .tsv, .jsonl, .json) or a text"});
  }
  const auto launched = job_of_launcher(ranks, context.environment);
  const int world_size = launched ? launched->world_size : 1;
  settings.mesh =
      ranks.mesh.empty() ? Mesh(Degrees{{Axis::dp, world_size}}, ranks.order) : Mesh::parse(ranks.mesh, ranks.order);
  ranks.mesh = settings.mesh.to_string();
  ScoringJob job{std::move(model), {}, {}};
  job.text = scoring_config(job.model, settings);
  job.config = read_scoring_config(job.model, job.text);
  check_backend(ranks, context, job.config);
  if (!ranks.dry_run) refuse_fake_backend(ranks, job.config.mesh);
  return job;
}

int score_on_ranks(
    const ScoringJob& job, const RankOptions& ranks, Context& context, const nlohmann::json& more,
    const std::function<ScoringResult(const RunConfig& config, const ScoringReports& reports)>& score,
    const std::function<void(const RunConfig& config, const ScoringResult& result, double seconds)>& tell) {
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) {
    const auto began = std::chrono::steady_clock::now();
    auto config = job.config;
    auto compared = job.text;
    compared.update(more);
    RankTraining training(rank);
    training.prepare(config, json_text(compared), "score");
    std::optional<LiveRows> live;
    ScoringReports reports;
    reports.note = [&](const std::string& text) {
      if (rank.is_first()) rank.log.info(text);
    };
    if (rank.is_first()) {
      live.emplace();
      reports.progress = [&](std::int64_t rows) { live->show(rows); };
    }
    ScoringResult result;
    try {
      result = score(config, reports);
    } catch (const Error& error) {
      if (const auto code = said_elsewhere(rank, error)) return *code;
      throw;
    }
    live.reset();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - began;
    if (rank.is_first()) tell(config, result, taken.count());
    return 0;
  });
}

}  // namespace orthant::cli
