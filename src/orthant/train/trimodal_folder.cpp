#include "orthant/train/trimodal_folder.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/models/hugging_face_names.h"
#include "orthant/train/scoring_config.h"
#include "orthant/train/stored_model.h"

namespace orthant {
namespace {

constexpr const char* kModelType = "orthant_trimodal";

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

bool is_trimodal_folder(const nlohmann::json& config) {
  return is_run_config(config) && config.contains("model_type") && config["model_type"] == kModelType;
}

std::string trimodal_tensor_name(const TrimodalConfig& config, const std::string& parameter) {
  for (const auto& [prefix, tower] : {std::pair("primary.", &config.primary), {"secondary.", &config.secondary}}) {
    if (!parameter.starts_with(prefix)) continue;
    const auto name = hugging_face_name(tensor_family(*tower), parameter.substr(std::string(prefix).size()), true);
    if (name) return prefix + name->tensor;
  }
  return parameter;
}

std::string trimodal_config_text(nlohmann::json run, const std::string& source, DType dtype) {
  if (!is_run_config(run)) {
    throw DataError(
        fmt::format("{}: is not the configuration of a run, which a trimodal model is exported with", source),
        {.remedy = "give the config.json of the run that wrote the checkpoint"});
  }
  drop_model_paths(run["model"]);
  nlohmann::ordered_json config{{"model_type", kModelType},
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

std::shared_ptr<const WeightReader> open_trimodal_folder(const std::filesystem::path& folder,
                                                         const TrimodalConfig& config, const ControlGroup& ranks) {
  std::map<std::string, std::string> names;
  for (const auto& unit : trimodal_spec(config, {.rows = 1, .sequence = 1}).units) {
    for (const auto& parameter : unit.parameters) {
      names.emplace(parameter.name, trimodal_tensor_name(config, parameter.name));
    }
  }
  return std::make_shared<RenamedReader>(open_weights(folder, ranks), names);
}

}  // namespace orthant
