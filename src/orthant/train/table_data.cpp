#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/data/classifier_table.h"
#include "orthant/data/label_typos.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/models/family.h"
#include "orthant/train/file_data.h"
#include "orthant/train/model_folders.h"

namespace orthant {
namespace {

// Pretrained weights mean nothing with the ids of another tokenizer.
void check_own_tokenizer(const Tokenizer& tokenizer, const std::string& name, const Tower& tower) {
  if (!tower.path || name == *tower.path || !is_folder(*tower.path)) return;
  const auto folder = std::filesystem::path(*tower.path);
  if (!is_there(folder / "tokenizer.json") && !is_there(folder / "vocab.txt")) return;
  if (real_path(name).parent_path() == real_path(folder)) return;
  const auto saved = Tokenizer::load(folder);
  if (saved.fingerprint() == tokenizer.fingerprint()) return;
  throw ConfigError(fmt::format("data.{}_tokenizer {} is not the tokenizer that model.{}.path {} was trained with",
                                tower.name, name, tower.name, *tower.path),
                    {.remedy = fmt::format("set data.{}_tokenizer={}", tower.name, *tower.path)});
}

// The tower's text column with its tokenizer, which fits the tower.
TableText text_of(const DataConfig& data, const Tower& tower) {
  const bool primary = tower.name == "primary";
  const auto& table = data.table;
  TableText text;
  text.column = primary ? table.primary_text : table.secondary_text;
  text.length = primary || data.secondary_length == 0 ? data.sequence_length : data.secondary_length;
  auto name = primary ? table.primary_tokenizer : table.secondary_tokenizer;
  if (name.empty() && tower.path) name = *tower.path;
  text.tokenizer_name = name;
  std::vector<std::string> columns = {table.primary_text};
  if (!table.secondary_text.empty()) columns.push_back(table.secondary_text);
  text.tokenizer =
      Tokenizer::load(require_tokenizer(name, fmt::format("data.{}_tokenizer", tower.name), table.path, columns));
  check_own_tokenizer(*text.tokenizer, name, tower);
  if (text.tokenizer->vocab_size() > tower.vocab_size) {
    throw ConfigError(fmt::format("model.{}.vocab_size is {}, but tokenizer {} has ids up to {}", tower.name,
                                  tower.vocab_size, name, text.tokenizer->vocab_size() - 1),
                      {.remedy = fmt::format("set model.{}.vocab_size={}", tower.name, text.tokenizer->vocab_size())});
  }
  const auto pad = text.tokenizer->special().pad.value_or(0);
  if (tower.counts_tokens && pad != tower.pad_token_id) {
    throw ConfigError(fmt::format("model.{}.pad_token_id is {}, but tokenizer {} pads with {}: positions would be "
                                  "counted wrongly",
                                  tower.name, tower.pad_token_id, name, pad),
                      {.remedy = fmt::format("set model.{}.pad_token_id={}", tower.name, pad)});
  }
  return text;
}

// What the model's sizes are and should be, all at once.
struct WrongSizes {
  std::vector<std::string> found;
  std::vector<std::string> settings;  // that mend them

  void refuse() const {
    if (found.empty()) return;
    throw ConfigError(fmt::format("{}", fmt::join(found, "; ")),
                      {.remedy = fmt::format("set {}", fmt::join(settings, " and "))});
  }
};

void check_columns(const TableSource& table, const Classifier& model, WrongSizes& wrong) {
  const auto columns = static_cast<std::int64_t>(table.tabular.size());
  const auto width = model.columns.value_or(0);
  if (width == columns) return;
  wrong.found.push_back(fmt::format("model.tabular.input_dim is {}, but data.tabular names {} columns ({})", width,
                                    columns, fmt::join(table.tabular, ", ")));
  wrong.settings.push_back(columns == 0 ? "model.tabular=null" : fmt::format("model.tabular.input_dim={}", columns));
}

void check_labels(const TableSource& table, const Classifier& model, const std::vector<std::string>& labels,
                  WrongSizes& wrong) {
  const auto classes = static_cast<std::int64_t>(labels.size());
  if (classes == model.num_labels) return;
  wrong.found.push_back(fmt::format("model.num_labels is {}, but column {} of {} has {} labels: {}", model.num_labels,
                                    table.label, table.path, classes, fmt::join(labels, ", ")));
  wrong.settings.push_back(fmt::format("model.num_labels={}", classes));
}

ClassifierTableOptions table_options(const RunConfig& config, const Classifier& model) {
  const auto& table = config.data.table;
  if (!model.class_weights.empty() && (!table.class_weights.empty() || table.balanced_class_weights)) {
    throw ConfigError("model.class_weights and data.class_weights are both given", {.remedy = "set one of them"});
  }
  ClassifierTableOptions options;
  options.path = table.path;
  options.eval_path = table.eval_path;
  options.primary = text_of(config.data, model.towers.at(0));
  options.secondary = text_of(config.data, model.towers.at(1));
  options.tabular = table.tabular;
  options.label = table.label;
  options.labels = table.labels;
  options.class_weights = table.class_weights.empty() ? model.class_weights : table.class_weights;
  options.balanced_class_weights = table.balanced_class_weights;
  options.eval_fraction = config.data.eval_fraction;
  options.seed = config.trainer.seed;
  options.skip_bad_rows = table.skip_bad_rows;
  return options;
}

// Labels that were found, not listed, and look like spellings of another.
std::vector<LabelTypo> typos_of(const ClassifierTables& tables) {
  auto counts = tables.train->label_counts();
  if (tables.eval) std::ranges::transform(counts, tables.eval->label_counts(), counts.begin(), std::plus<>());
  std::vector<ColumnValue> labels;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    labels.push_back({.text = tables.preprocessing.labels[i], .count = counts[i]});
  }
  std::ranges::stable_sort(labels, std::greater<>(), &ColumnValue::count);
  return label_typos(labels);
}

std::vector<std::string> notes_of(const ClassifierTables& tables, const Classifier& model, const TableSource& source) {
  const auto& path = source.path;
  std::vector<std::string> notes;
  notes.push_back(fmt::format("{}: {} rows to train on, {} to evaluate on", path, tables.train->size(),
                              tables.eval ? tables.eval->size() : 0));
  for (const auto& tower : model.towers) {
    if (!tower.path) notes.push_back(fmt::format("model.{}: no path, its weights are drawn from the seed", tower.name));
  }
  if (const auto typos = source.labels.empty() ? typos_of(tables) : std::vector<LabelTypo>(); !typos.empty()) {
    notes.push_back(
        fmt::format("WARNING: labels may be misspelt: {}; each is a class of its own. Mend the table, or "
                    "list the classes in data.labels",
                    describe_typos(typos)));
  }
  if (tables.skipped.count == 0) return notes;
  notes.push_back(fmt::format("{} (data.bad_rows skip); the first:", left_out_text(tables.skipped)));
  for (const auto& reason : tables.skipped.reasons) notes.push_back("  " + reason);
  return notes;
}

}  // namespace

ReadTable read_table(const RunConfig& config, const Classifier& model) {
  return {read_classifier_tables(table_options(config, model)),
          fmt::format("{:016x}", xxh64_of_file(config.data.table.path))};
}

RunData table_data(RunConfig& config, const Classifier& model, const ReadTable& table) {
  const auto& tables = table.tables;
  WrongSizes wrong;
  check_columns(config.data.table, model, wrong);
  check_labels(config.data.table, model, tables.preprocessing.labels, wrong);
  wrong.refuse();
  config.model.family().set_class_weights(config.model, tables.preprocessing.class_weights);
  RunData data;
  data.train = tables.train;
  data.eval = tables.eval;
  data.num_labels = model.num_labels;
  data.saved_files[kPreprocessingFile] = to_json(tables.preprocessing);
  const nlohmann::json facts{{"rows", tables.train->size()},
                             {"eval_fraction", config.data.eval_fraction},
                             {"files", nlohmann::json::array({config.data.table.path})},
                             {"table", table.hash}};
  data.saved_files[kDataFile] = facts.dump(1) + "\n";
  data.notes = notes_of(tables, model, config.data.table);
  return data;
}

TableToScore table_to_score(const RunConfig& config, const Classifier& model, const std::filesystem::path& checkpoint,
                            bool labels_optional) {
  const auto saved = checkpoint / kPreprocessingFile;
  if (!is_there(saved)) {
    throw DataError(
        fmt::format("{}: no {} says how rows are prepared for the model", checkpoint.string(), kPreprocessingFile),
        {.remedy = fmt::format("use a checkpoint of a run with data.kind {}", kTableKind)});
  }
  WrongSizes wrong;
  check_columns(config.data.table, model, wrong);
  wrong.refuse();
  auto options = table_options(config, model);
  options.preprocessing = load_preprocessing(saved);
  options.preprocessing_source = saved.string();
  options.labels_optional = labels_optional;
  options.label_remedy = "evaluate needs labels; to score rows without them use orthant predict";
  options.skip_remedy = "leave such rows out with --bad-rows skip";
  auto table = read_table_to_score(options);
  const auto classes = static_cast<std::int64_t>(table.preprocessing.labels.size());
  if (classes == model.num_labels) return table;
  throw DataError(
      fmt::format("{}: names {} labels, and the model has {} classes", saved.string(), classes, model.num_labels),
      {.remedy = "use the checkpoint with the config.json of its run"});
}

}  // namespace orthant
