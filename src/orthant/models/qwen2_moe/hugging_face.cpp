#include <nlohmann/json.hpp>
#include <vector>

#include "orthant/models/hugging_face.h"
#include "orthant/models/llama/variant.h"
#include "orthant/models/qwen2_moe/config.h"
#include "orthant/models/qwen3/config.h"

namespace orthant {
namespace {

// Those of a Llama, and experts.
const NameTable& qwen2_moe_names(const ModelConfig&) {
  static const std::vector<ModuleRow> kBody = [] {
    std::vector<ModuleRow> rows(llama_names().body.begin(), llama_names().body.end());
    rows.push_back({"layers.*.router", "layers.*.mlp.gate"});
    rows.push_back({"layers.*.experts.*.w1", "layers.*.mlp.experts.*.gate_proj"});
    rows.push_back({"layers.*.experts.*.w2", "layers.*.mlp.experts.*.down_proj"});
    rows.push_back({"layers.*.experts.*.w3", "layers.*.mlp.experts.*.up_proj"});
    rows.push_back({"layers.*.shared_expert.w1", "layers.*.mlp.shared_expert.gate_proj"});
    rows.push_back({"layers.*.shared_expert.w2", "layers.*.mlp.shared_expert.down_proj"});
    rows.push_back({"layers.*.shared_expert.w3", "layers.*.mlp.shared_expert.up_proj"});
    rows.push_back({"layers.*.shared_expert_gate", "layers.*.mlp.shared_expert_gate"});
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

void read_qwen2_moe_keys(JsonReader& reader, LlamaConfig& config) {
  read_qwen3_keys(reader, config);
}

void write_qwen2_moe_keys(const LlamaConfig& config, nlohmann::ordered_json& json) {
  write_qwen3_keys(config, json);
  json["num_experts"] = config.experts.count;
  json["num_experts_per_tok"] = config.experts.per_token;
  json["moe_intermediate_size"] = config.expert_inner();
  json["shared_expert_intermediate_size"] = config.experts.shared_inner;
  json["norm_topk_prob"] = config.experts.normalised;
  json["decoder_sparse_step"] = config.experts.step;
  json["mlp_only_layers"] = config.experts.dense_layers;
}

const HuggingFaceFamily& qwen2_moe_hugging_face() {
  static const HuggingFaceFamily kHuggingFace = [] {
    HuggingFaceFamily folders = llama_like_folders("qwen2_moe");
    folders.read = [](JsonReader& reader, const std::string&) { return read_llama_folder(reader, kQwen2Moe); };
    folders.names = qwen2_moe_names;
    return folders;
  }();
  return kHuggingFace;
}

}  // namespace orthant
