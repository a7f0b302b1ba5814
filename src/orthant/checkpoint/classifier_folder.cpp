#include "orthant/checkpoint/classifier_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/checkpoint/stored_model.h"
#include "orthant/models/family.h"

namespace orthant {
namespace {

std::string model_type(const Family& family) {
  return fmt::format("orthant_{}", family.name);
}

// Another reader's tensors under other names.
class RenamedReader : public WeightReader {
 public:
  // `names`: theirs by ours. Tensors without another name keep their own.
  RenamedReader(std::shared_ptr<const WeightReader> reader, const std::map<std::string, std::string>& names)
      : reader_(std::move(reader)), theirs_(names) {
    std::map<std::string, std::string> ours;
    for (const auto& [mine, stored] : names) ours.emplace(stored, mine);
    for (auto entry : reader_->entries()) {
      if (const auto found = ours.find(entry.name); found != ours.end()) entry.name = found->second;
      entries_.push_back(std::move(entry));
    }
  }

  const std::vector<TensorEntry>& entries() const override { return entries_; }
  void read(const std::string& tensor, std::int64_t offset, std::span<std::byte> out) const override {
    reader_->read(stored_name(tensor), offset, out);
  }
  void read_box(const TensorEntry& entry, const TensorBox& box, std::span<std::byte> out) const override {
    auto stored = entry;
    stored.name = stored_name(entry.name);
    reader_->read_box(stored, box, out);
  }

 private:
  const std::string& stored_name(const std::string& name) const {
    const auto found = theirs_.find(name);
    return found == theirs_.end() ? name : found->second;
  }

  std::shared_ptr<const WeightReader> reader_;
  std::map<std::string, std::string> theirs_;
  std::vector<TensorEntry> entries_;
};

}  // namespace

bool is_classifier_folder(const nlohmann::json& config) {
  if (!is_run_config(config) || !config.contains("model_type")) return false;
  return std::ranges::any_of(families(), [&](const Family* family) {
    return family->task == Task::classification && config["model_type"] == model_type(*family);
  });
}

std::string classifier_config_text(nlohmann::json run, const Family& family, const std::string& source, DType dtype) {
  if (!is_run_config(run)) {
    throw DataError(
        fmt::format("{}: is not the configuration of a run, which a {} model is exported with", source, family.name),
        {.remedy = "give the config.json of the run that wrote the checkpoint"});
  }
  drop_model_paths(run["model"]);
  nlohmann::ordered_json config{{"model_type", model_type(family)},
                                {"dtype", dtype_name(dtype)},
                                {"model", run["model"]},
                                {"train", {{"global_batch_size", microbatch_rows(run, source)}}}};
  for (const char* section : {"seed", "precision", "data"}) {
    if (run.contains(section)) config[section] = run[section];
  }
  if (!config.contains("data") || !config["data"].is_object()) return json_text(config, 2) + "\n";
  auto& data = config["data"];
  for (const char* key :
       {"path", "eval_path", "eval_fraction", "samples", "log_samples", "class_weights", "tokenizer"}) {
    data.erase(key);
  }
  for (const char* tower : {"primary", "secondary"}) {
    data[fmt::format("{}_tokenizer", tower)] = fmt::format("tokenizers/{}", tower);
  }
  return json_text(config, 2) + "\n";
}

std::shared_ptr<const WeightReader> open_classifier_folder(const std::filesystem::path& folder,
                                                           const ModelConfig& config, const ControlGroup& ranks) {
  std::map<std::string, std::string> names;
  for (const auto& unit : build_spec(config, {.rows = 1, .sequence = 1}).units) {
    for (const auto& parameter : unit.parameters) {
      names.emplace(parameter.name, config.family().tensor_name(config, parameter.name));
    }
  }
  return std::make_shared<RenamedReader>(open_weights(folder, ranks), names);
}

}  // namespace orthant
