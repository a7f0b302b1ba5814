#include "orthant/train/scoring.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/checkpoint/classifier_folder.h"
#include "orthant/checkpoint/pretrained.h"
#include "orthant/comm/control_group.h"
#include "orthant/data/token_index.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/train/document_scores.h"
#include "orthant/train/evaluation_pass.h"
#include "orthant/train/file_data.h"
#include "orthant/train/prediction_file.h"
#include "orthant/train/run.h"
#include "orthant/train/same_run.h"

namespace orthant {
namespace {

// A checkpoint's weights, tried again where the file system refuses.
class PatientReader : public WeightReader {
 public:
  PatientReader(CheckpointReader reader, IoPatience patience) : reader_(std::move(reader)), patience_(patience) {}
  const std::vector<TensorEntry>& entries() const override { return reader_.entries(); }
  void read(const std::string& tensor, std::int64_t offset, std::span<std::byte> out) const override {
    patience_.retry([&] { reader_.read(tensor, offset, out); });
  }

 private:
  CheckpointReader reader_;
  IoPatience patience_;
};

std::optional<Classifier> classifier_of(const RunConfig& config) {
  return facts_of(config.model).classifier;
}

// Where the weights are, proved whole; nothing is read of them yet.
struct OpenModel {
  std::filesystem::path folder;
  std::filesystem::path checkpoint = {};  // what says how rows are prepared; empty: a Hugging Face folder
  std::int64_t step = -1;
  std::vector<PretrainedSource> sources = {};
};

// Collective over the world.
OpenModel open_model(const RunConfig& config, const ScoredModel& model, const ControlGroup& ranks,
                     const ScoringReports& reports) {
  if (model.checkpoints.empty()) {
    if (!classifier_of(config)) return {.folder = model.folder, .sources = pretrained_sources(config.model)};
    return {.folder = model.folder,
            .checkpoint = model.folder,
            .sources = {{.folder = model.folder, .opened = open_classifier_folder(model.folder, config.model, ranks)}}};
  }
  CheckpointAccess access{.patience = IoPatience(config.checkpoint.retry_seconds)};
  ranks.together([&] { access.key = checkpoint_key(config); });
  std::string newest_refusal;
  auto reader =
      open_first_whole(model.checkpoints, ranks, access, [&](const std::string& path, const DataError& error) {
        if (!model.chooses) throw;
        if (newest_refusal.empty()) newest_refusal = error.message();
        reports.note(fmt::format("passed over {}: {}", path, error.message()));
      });
  if (!reader) {
    throw DataError(fmt::format("{}: none of its {} checkpoints is whole; the newest: {}", model.run.string(),
                                model.checkpoints.size(), newest_refusal),
                    ranks.alike("copy the run's folder again, or use another run"));
  }
  OpenModel open{.folder = reader->folder(), .checkpoint = reader->folder(), .step = reader->manifest().step};
  if (const auto note = unchecked_tags_note(open.folder, reader->manifest(), access); !note.empty())
    reports.note(fmt::format("WARNING: {}; name it with --key-file", note));
  open.sources = {
      {.folder = open.folder, .opened = std::make_shared<PatientReader>(std::move(*reader), access.patience)}};
  return open;
}

struct LoadedModel {
  std::unique_ptr<Trainer> trainer;
  ScoringResult result;  // as far as it is known
};

// Collective over the world.
LoadedModel load_model(const RunConfig& config, const OpenModel& open, const ControlGroup& ranks) {
  const PretrainedWeights weights(run_spec(config), open.sources, ranks);
  if (!weights.absent().empty()) {
    throw DataError(fmt::format("{}: lacks {}, without which nothing can be scored", open.folder.string(),
                                fmt::join(weights.absent(), ", ")),
                    ranks.alike("use a folder with the head of its task"));
  }
  LoadedModel loaded;
  loaded.trainer = make_trainer(config, weights);
  loaded.result.weights = open.folder.string();
  loaded.result.step = open.step;
  loaded.result.parameters = loaded.trainer->graph().num_parameters();
  loaded.result.bytes_read = weights.bytes_read();
  ranks.enter(JobPhase::step);
  return loaded;
}

// Each rank reads the file itself, on whatever host it is. Collective over the world.
void check_same_files(const std::string& found, const RunConfig& config, const ControlGroup& ranks) {
  if (ranks.alone()) return;
  std::uint64_t hash = 0;
  ranks.together([&] {
    const std::filesystem::path path = classifier_of(config) ? config.data.table.path : config.data.text.path.front();
    hash = xxh64_of_file(is_folder(path) ? path / kTokenIndexFile : path);
  });
  check_same_data(fmt::format("{} with hash {:016x}", found, hash), ranks);
}

void note_skipped(const SkippedRows& skipped, const ScoringReports& reports) {
  if (skipped.count == 0) return;
  reports.note(fmt::format("{} (data.bad_rows or --bad-rows skip); the first:", left_out_text(skipped)));
  for (const auto& reason : skipped.reasons) reports.note("  " + reason);
}

// Losses and logits that are not numbers say nothing of a row.
void check_finite(std::span<const double> values, const std::string& what) {
  if (std::ranges::all_of(values, [](double value) { return std::isfinite(value); })) return;
  throw DataError(fmt::format("{}: the model's answer is not a finite number", what),
                  {.remedy = "its weights have diverged: use an earlier checkpoint"});
}

// Softmax of the logits of one row.
std::vector<double> probabilities(std::span<const double> logits) {
  const double largest = std::ranges::max(logits);
  std::vector<double> found;
  for (const double logit : logits) found.push_back(std::exp(logit - largest));
  const double sum = std::accumulate(found.begin(), found.end(), 0.0);
  for (double& one : found) one /= sum;
  return found;
}

// The file of a prediction, which rank 0 writes. Collective over the world, but add().
class RankedFile {
 public:
  RankedFile(const ControlGroup& ranks, const std::string& path, const std::vector<std::string>& columns)
      : ranks_(ranks) {
    ranks_.together([&] {
      if (ranks_.is_first()) file_.emplace(path, columns);
    });
  }

  void add(std::span<const PredictionCell> cells) { file_->add(cells); }

  void finish() {
    ranks_.together([&] {
      if (file_) file_->finish();
    });
  }

 private:
  const ControlGroup& ranks_;
  std::optional<PredictionFile> file_;
};

ScoringResult predict_table(const RunConfig& config, const OpenModel& open, const std::string& out,
                            const ControlGroup& ranks, const ScoringReports& reports) {
  TableToScore table;
  ranks.together([&] { table = table_to_score(config, *classifier_of(config), open.checkpoint, true); });
  check_same_files(fmt::format("{} rows", table.rows->size()), config, ranks);
  note_skipped(table.skipped, reports);
  if (table.unknown_labels > 0) {
    reports.note(fmt::format("labels of {} rows are none of the model's and left out", table.unknown_labels));
  }
  const auto& labels = table.preprocessing.labels;
  std::vector<std::string> columns = {"row", "prediction"};
  if (table.has_labels) columns.emplace_back("label");
  for (const auto& label : labels) columns.push_back("probability_" + label);
  auto [trainer, result] = load_model(config, open, ranks);
  RankedFile file(ranks, out, columns);
  const auto name = [&](std::int64_t label) {
    return label < 0 ? PredictionCell() : PredictionCell(labels[static_cast<std::size_t>(label)]);
  };
  const auto take = [&](const EvaluatedRows& found) {
    for (std::int64_t r = 0; r < found.rows; ++r) {
      const auto logits = found.values.subspan(static_cast<std::size_t>(r) * labels.size(), labels.size());
      const auto row = table.rows->file_row(found.first_row + r) + 1;
      check_finite(logits, fmt::format("{}: row {}", config.data.table.path, row));
      std::vector<PredictionCell> cells = {row, name(std::ranges::max_element(logits) - logits.begin())};
      if (table.has_labels) cells.push_back(name(table.rows->label(found.first_row + r)));
      for (const double probability : probabilities(logits)) cells.emplace_back(probability);
      file.add(cells);
    }
  };
  evaluate_dataset(*trainer, *table.rows,
                   {.num_labels = static_cast<std::int64_t>(labels.size()),
                    .rows = work_size(config).rows,
                    .take = take,
                    .progress = reports.progress});
  file.finish();
  result.rows = table.rows->size();
  result.columns = std::move(columns);
  return result;
}

ScoringResult predict_text(const RunConfig& config, const OpenModel& open, const std::string& out,
                           const ControlGroup& ranks, const ScoringReports& reports) {
  DocumentsToScore documents;
  ranks.together([&] { documents = documents_to_score(config, open.checkpoint); });
  check_same_files(fmt::format("{} documents, {} samples", documents.documents, documents.samples->size()), config,
                   ranks);
  auto [trainer, result] = load_model(config, open, ranks);
  result.columns = {"row", "tokens", "loss", "perplexity"};
  RankedFile file(ranks, out, result.columns);
  DocumentScores scores(documents.documents, [&](const DocumentScore& score) {
    file.add(
        std::vector<PredictionCell>{score.document + 1, std::llround(score.weight), score.loss(), score.perplexity()});
  });
  const auto take = [&](const EvaluatedRows& found) {
    const auto document = documents.numbers[static_cast<std::size_t>(documents.windows->document_of(found.first_row))];
    check_finite(found.values, fmt::format("{}: document {}", config.data.text.path.front(), document + 1));
    scores.add(document, found.values[0], found.values[1]);
  };
  evaluate_dataset(*trainer, *documents.samples, {.rows = 1, .take = take, .progress = reports.progress});
  ranks.together([&] {
    if (ranks.is_first()) scores.finish();
  });
  file.finish();
  result.rows = documents.documents;
  return result;
}

// Collective over the world.
ScoringResult measure(const RunConfig& config, const OpenModel& open, const Dataset& dataset, const ControlGroup& ranks,
                      const ScoringReports& reports) {
  auto [trainer, result] = load_model(config, open, ranks);
  result.metrics = evaluate_dataset(*trainer, dataset,
                                    {.num_labels = classifier_of(config) ? classifier_of(config)->num_labels : 0,
                                     .rows = work_size(config).rows,
                                     .progress = reports.progress});
  result.rows = dataset.size();
  return result;
}

}  // namespace

ScoringResult predict_file(RunConfig config, const ScoredModel& model, const std::string& out,
                           const ScoringReports& reports) {
  const ControlGroup ranks = control_group(config.trainer);
  const auto open = open_model(config, model, ranks, reports);
  return classifier_of(config) ? predict_table(config, open, out, ranks, reports)
                               : predict_text(config, open, out, ranks, reports);
}

ScoringResult evaluate_file(RunConfig config, const ScoredModel& model, const ScoringReports& reports) {
  const ControlGroup ranks = control_group(config.trainer);
  const auto open = open_model(config, model, ranks, reports);
  std::shared_ptr<const Dataset> dataset;
  SkippedRows skipped;
  ranks.together([&] {
    if (const auto classifier = classifier_of(config)) {
      auto table = table_to_score(config, *classifier, open.checkpoint, /*labels_optional=*/false);
      dataset = table.rows;
      skipped = table.skipped;
    } else {
      dataset = text_to_evaluate(config, open.checkpoint);
    }
  });
  check_same_files(fmt::format("{} samples", dataset->size()), config, ranks);
  note_skipped(skipped, reports);
  return measure(config, open, *dataset, ranks, reports);
}

ScoringResult evaluate_held_out(RunConfig config, const ScoredModel& model, const ScoringReports& reports) {
  const auto ranks = control_group(config.trainer);
  const auto open = open_model(config, model, ranks, reports);
  const auto data = make_run_data(config, ranks);
  ranks.together([&] {
    try {
      compare_with_run(open.checkpoint.string(), model.config.dump(), data.saved_files);
    } catch (const DataError& error) {
      throw DataError(error.message(), {.remedy = "put the run's data back, or name a file with --data"});
    }
  });
  return measure(config, open, *data.eval, ranks, reports);
}

}  // namespace orthant
