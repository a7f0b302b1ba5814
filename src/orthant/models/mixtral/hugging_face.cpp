#include <nlohmann/json.hpp>
#include <vector>

#include "orthant/models/llama/variant.h"
#include "orthant/models/mistral/config.h"
#include "orthant/models/mixtral/config.h"

namespace orthant {
namespace {

// Those of a Llama, and experts in place of its MLP.
const NameTable& mixtral_names(const ModelConfig&) {
  static const std::vector<ModuleRow> kBody = [] {
    std::vector<ModuleRow> rows(llama_names().body.begin(), llama_names().body.end());
    rows.push_back({"layers.*.router", "layers.*.block_sparse_moe.gate"});
    rows.push_back({"layers.*.experts.*.w1", "layers.*.block_sparse_moe.experts.*.w1"});
    rows.push_back({"layers.*.experts.*.w2", "layers.*.block_sparse_moe.experts.*.w2"});
    rows.push_back({"layers.*.experts.*.w3", "layers.*.block_sparse_moe.experts.*.w3"});
    return rows;
  }();
  static const NameTable kNames = [] {
    NameTable names = llama_names();
    names.body = kBody;
    return names;
  }();
  return kNames;
}

}  // namespace

void read_mixtral_keys(JsonReader& reader, LlamaConfig& config) {
  read_mistral_keys(reader, config);
  if (reader.find<double>("router_jitter_noise").value_or(0) != 0) {
    reader.fail("router_jitter_noise", "noise on what routers read is not supported", "set router_jitter_noise to 0");
  }
}

void write_mixtral_keys(const LlamaConfig& config, nlohmann::ordered_json& json) {
  write_mistral_keys(config, json);
  json["num_local_experts"] = config.experts.count;
  json["num_experts_per_tok"] = config.experts.per_token;
}

const HuggingFaceFamily& mixtral_hugging_face() {
  static const HuggingFaceFamily kHuggingFace = [] {
    HuggingFaceFamily folders = llama_like_folders("mixtral");
    folders.read = [](JsonReader& reader, const std::string&) { return read_llama_folder(reader, kMixtral); };
    folders.names = mixtral_names;
    return folders;
  }();
  return kHuggingFace;
}

}  // namespace orthant
