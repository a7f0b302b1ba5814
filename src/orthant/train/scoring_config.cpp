#include "orthant/train/scoring_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/json_document.h"
#include "orthant/base/json_reader.h"
#include "orthant/checkpoint/classifier_folder.h"
#include "orthant/checkpoint/pointers.h"
#include "orthant/checkpoint/retention.h"
#include "orthant/checkpoint/stored_model.h"
#include "orthant/checkpoint/weight_reader.h"
#include "orthant/data/data_kind.h"
#include "orthant/files/path_facts.h"
#include "orthant/launch/scripts.h"
#include "orthant/layout/rows.h"
#include "orthant/models/hugging_face.h"
#include "orthant/text/table_reader.h"
#include "orthant/train/run_tokenizers.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";
constexpr std::int64_t kMostPositions = 2048;  // of a model's folder, which says only what it could take

// Of a folder without a run: the text of its tokenizer, at a length that fits.
nlohmann::json config_of_folder(const fs::path& folder) {
  const auto model = read_hugging_face_config(folder);
  if (!holds_tokenizer_files(folder)) {
    throw DataError(fmt::format("{}: has no tokenizer, without which no text can be read", folder.string()),
                    {.remedy = "put the model's tokenizer.json (or vocab.txt) into the folder"});
  }
  return {{"model", {{"path", folder.string()}}},
          {"data",
           {{"kind", "text"},
            {"tokenizer", folder.string()},
            {"sequence_length", std::min(max_sequence(model), kMostPositions)}}}};
}

nlohmann::json config_of_run(const fs::path& run) {
  const auto file = run / kConfigFile;
  if (!is_there(file)) {
    throw DataError(fmt::format("{}: no config.json says which model this is", run.string()),
                    {.remedy = "name the folder of a run, which orthant train made, or a checkpoint inside it"});
  }
  auto config = read_config_json(file);
  if (is_run_config(config)) return config;
  throw DataError(fmt::format("{}: is not the configuration of a run: it has no section \"model\"", file.string()),
                  {.remedy = "name the folder of a run, which orthant train made, or a checkpoint inside it"});
}

[[noreturn]] void refuse_without_checkpoint(const fs::path& run) {
  throw DataError(fmt::format("{}: the run has no checkpoint", run.string()),
                  {.remedy = "train it to its end, or with checkpoint.save_every, or name another run"});
}

std::vector<std::string> checkpoints_of(const fs::path& run) {
  std::vector<std::string> paths;
  for (auto& found : list_checkpoints((run / "checkpoints").string())) paths.push_back(std::move(found.path));
  return paths;
}

// The run's data section; an evaluation pads where training does not.
nlohmann::json data_section(const ScoredModel& model) {
  auto data = run_section(model.config, "data");
  if (const auto padding = data.find("padding"); padding != data.end() && *padding == "none") *padding = "longest";
  return data;
}

// Machines without products in float8 score, too.
nlohmann::json precision_section(const ScoredModel& model) {
  auto precision = run_section(model.config, "precision");
  const auto compute = precision.find("compute");
  if (compute != precision.end() && *compute == kFloat8Name) *compute = dtype_name(DType::bfloat16);
  return precision;
}

// The data that the run itself was evaluated on.
nlohmann::json held_out_data(const ScoredModel& model, const ScoringSettings& settings) {
  auto data = data_section(model);
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("{}: {}", model.folder.string(), why), {.remedy = "name a file with --data"});
  };
  if (is_classifier_folder(model.config)) refuse("an exported model, which has no data of its own");
  if (settings.separator || settings.text_column || settings.bad_rows) {
    throw ConfigError("--separator, --text-column or --bad-rows without --data: the run's own data is read as it was",
                      {.remedy = "leave them out, or name a file with --data"});
  }
  const auto fraction = data.find("eval_fraction");
  const bool part = fraction != data.end() && fraction->is_number() && fraction->get<double>() > 0;
  const auto path = data.find("eval_path");
  if (!part && (path == data.end() || path->is_null()))
    refuse("the run held nothing out: data.eval_fraction is 0, and there is no data.eval_path");
  data.erase("log_samples");
  return data;
}

nlohmann::json scored_data(const ScoredModel& model, const ScoringSettings& settings) {
  auto data = data_section(model);
  const auto kind = data.contains("kind") && data["kind"].is_string() ? data["kind"].get<std::string>() : "tokens";
  if (kind != "text" && kind != kTableKind) {
    throw ConfigError(
        fmt::format("{} was trained on generated data (data.kind {}): nothing says how to read {} for it",
                    model.run.string(), kind, settings.data),
        {.remedy = fmt::format("use a run on files of your own: data.kind {} (a table) or text", kTableKind)});
  }
  if (kind == kTableKind && !is_table(settings.data)) {
    throw ConfigError(fmt::format("{} classifies rows of tables, and {} is none", model.folder.string(), settings.data),
                      {.remedy = "name a table: .csv, .tsv, .jsonl, .ndjson or .json"});
  }
  for (const char* key : {"path", "eval_path", "eval_fraction", "class_weights", "log_samples", "samples"}) {
    data.erase(key);
  }
  data["path"] = settings.data;
  const bool text_options = settings.separator || settings.text_column || settings.sequence_length;
  if (kind == kTableKind && text_options) {
    throw ConfigError(
        fmt::format("--separator, --text-column or --sequence-length for {}, a classifier of rows of a table",
                    model.folder.string()),
        {.remedy = "leave them out: the model's columns and lengths are known"});
  }
  if (kind == "text" && settings.bad_rows) {
    throw ConfigError(fmt::format("--bad-rows for {}, a language model", model.folder.string()),
                      {.remedy = "leave it out: rows of a table of texts are all read"});
  }
  if (settings.bad_rows) data["bad_rows"] = *settings.bad_rows;
  if (settings.separator) data["separator"] = *settings.separator;
  if (settings.text_column) {
    data["text_column"] = *settings.text_column;
    data.erase("ids_column");
  }
  if (settings.sequence_length) data["sequence_length"] = *settings.sequence_length;
  return data;
}

}  // namespace

ScoredModel find_scored_run(const fs::path& run, const std::string& checkpoint) {
  if (const fs::path named = pointed_checkpoint(run.string()); is_checkpoint(named)) {
    throw DataError(fmt::format("{}: a checkpoint, not the folder of a run", run.string()),
                    {.remedy = fmt::format("use --run {} --checkpoint {}",
                                           launch::shell_quote(real_path(named).parent_path().parent_path().string()),
                                           launch::shell_quote(run.string()))});
  }
  if (!is_folder(run)) {
    throw DataError(fmt::format("{}: there is no such folder", run.string()),
                    {.remedy = "name the folder of a run, such as runs/NAME-1"});
  }
  ScoredModel model{.folder = run, .run = run, .config = config_of_run(run)};
  if (is_classifier_folder(model.config)) {
    if (checkpoint.empty()) return model;
    throw DataError(fmt::format("{}: an exported model, which has no checkpoints", run.string()),
                    {.remedy = "leave --checkpoint out"});
  }
  model.chooses = checkpoint.empty();
  model.checkpoints =
      checkpoint.empty() ? checkpoints_of(run) : std::vector<std::string>{pointed_checkpoint(checkpoint)};
  if (model.checkpoints.empty()) refuse_without_checkpoint(run);
  return model;
}

ScoredModel find_scored_model(const fs::path& path) {
  const fs::path folder = pointed_checkpoint(path.string());
  if (!is_folder(folder)) {
    throw DataError(fmt::format("{}: there is no such folder", folder.string()),
                    {.remedy = "name a checkpoint, the folder of a run, or of a Hugging Face model"});
  }
  if (is_checkpoint(folder)) {
    const auto run = real_path(folder).parent_path().parent_path();
    ScoredModel model{.folder = folder, .checkpoints = {folder.string()}};
    if (is_there(folder / kConfigFile)) {
      model.config = config_of_folder(folder);  // an imported one has its model beside it
    } else {
      model.run = run;
      model.config = config_of_run(run);
    }
    return model;
  }
  if (!checkpoints_of(folder).empty()) return find_scored_run(folder, "");
  if (!is_there(folder / kConfigFile)) {
    throw DataError(fmt::format("{}: holds neither a checkpoint nor a model (config.json)", folder.string()),
                    {.remedy = "name a checkpoint, the folder of a run, or of a Hugging Face model"});
  }
  if (is_run_config(read_config_json(folder / kConfigFile)))
    return find_scored_run(folder, "");  // an exported classifier
  return {.folder = folder, .config = config_of_folder(folder)};
}

nlohmann::json scoring_config(const ScoredModel& model, const ScoringSettings& settings) {
  const auto data = settings.data.empty() ? held_out_data(model, settings) : scored_data(model, settings);
  const bool one_row = model.run.empty() || (settings.by_document && data.value("kind", "") == "text");
  const auto rows = one_row ? 1 : microbatch_rows(model.config, (model.run / kConfigFile).string());
  nlohmann::json scoring{{"name", "scoring"},
                         {"model", run_section(model.config, "model")},
                         {"data", data},
                         {"mesh", {{"order", order_text(settings.mesh.order())}}},
                         {"precision", precision_section(model)},
                         {"train", {{"global_batch_size", rows * num_replicas(settings.mesh)}, {"steps", 1}}}};
  if (model.config.contains("seed")) scoring["seed"] = model.config["seed"];
  if (!model.run.empty()) drop_model_paths(scoring["model"]);
  scoring["model"]["freeze"] = {"*"};
  for (const auto axis : kAxes) scoring["mesh"][std::string(axis_name(axis))] = settings.mesh.degree(axis);
  const auto checkpoint = run_section(model.config, "checkpoint");
  scoring["checkpoint"] = nlohmann::json::object();
  for (const char* key : {"key_file", "retry_seconds"}) {
    if (checkpoint.contains(key)) scoring["checkpoint"][key] = checkpoint[key];
  }
  if (!settings.key_file.empty()) scoring["checkpoint"]["key_file"] = settings.key_file;
  return scoring;
}

RunConfig read_scoring_config(const ScoredModel& model, const nlohmann::json& config) {
  const auto source = ((model.run.empty() ? model.folder : model.run) / kConfigFile).string();
  auto read = read_run_config(JsonDocument::parse(config.dump(), {.source = source}));
  read.trainer.trains = false;
  if (!model.run.empty()) prefer_kept_tokenizers(read, model.run);
  trainer_pipeline(run_spec(read), read.mesh, read.trainer);
  return read;
}

}  // namespace orthant
