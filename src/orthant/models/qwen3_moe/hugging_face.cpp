#include <nlohmann/json.hpp>
#include <vector>

#include "orthant/models/hugging_face.h"
#include "orthant/models/llama/variant.h"
#include "orthant/models/qwen3/config.h"
#include "orthant/models/qwen3_moe/config.h"

namespace orthant {
namespace {

// Those of a Qwen3, and experts.
const NameTable& qwen3_moe_names(const ModelConfig& config) {
  static const std::vector<ModuleRow> kBody = [&] {
    const NameTable& dense = qwen3_hugging_face().names(config);
    std::vector<ModuleRow> rows(dense.body.begin(), dense.body.end());
    rows.push_back({"layers.*.router", "layers.*.mlp.gate"});
    rows.push_back({"layers.*.experts.*.w1", "layers.*.mlp.experts.*.gate_proj"});
    rows.push_back({"layers.*.experts.*.w2", "layers.*.mlp.experts.*.down_proj"});
    rows.push_back({"layers.*.experts.*.w3", "layers.*.mlp.experts.*.up_proj"});
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

// Newer files call the number of experts num_local_experts.
void read_qwen3_moe_keys(JsonReader& reader, LlamaConfig& config) {
  read_qwen3_keys(reader, config);
  config.experts.count = reader.find<std::int64_t>("num_local_experts").value_or(config.experts.count);
}

void write_qwen3_moe_keys(const LlamaConfig& config, nlohmann::ordered_json& json) {
  write_qwen3_keys(config, json);
  json["num_experts"] = config.experts.count;
  json["num_experts_per_tok"] = config.experts.per_token;
  json["moe_intermediate_size"] = config.expert_inner();
  json["norm_topk_prob"] = config.experts.normalised;
  json["decoder_sparse_step"] = config.experts.step;
  json["mlp_only_layers"] = config.experts.dense_layers;
}

const HuggingFaceFamily& qwen3_moe_hugging_face() {
  static const HuggingFaceFamily kHuggingFace = [] {
    HuggingFaceFamily folders = llama_like_folders("qwen3_moe");
    folders.read = [](JsonReader& reader, const std::string&) { return read_llama_folder(reader, kQwen3Moe); };
    folders.names = qwen3_moe_names;
    folders.one_meaning.push_back({"num_experts", "num_local_experts"});
    return folders;
  }();
  return kHuggingFace;
}

}  // namespace orthant
