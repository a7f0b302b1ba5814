#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "orthant/models/llama/variant.h"
#include "orthant/models/qwen3/config.h"

namespace orthant {
namespace {

// Those of a Llama, and the norms of heads.
const NameTable& qwen3_names(const ModelConfig&) {
  static const std::vector<ModuleRow> kBody = [] {
    std::vector<ModuleRow> rows(llama_names().body.begin(), llama_names().body.end());
    rows.push_back({"layers.*.attention.q_norm", "layers.*.self_attn.q_norm"});
    rows.push_back({"layers.*.attention.k_norm", "layers.*.self_attn.k_norm"});
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

void read_qwen3_keys(JsonReader& reader, LlamaConfig&) {
  refuse_true(reader, "use_sliding_window", "a sliding window in some of the layers");
}

void write_qwen3_keys(const LlamaConfig&, nlohmann::ordered_json& json) {
  json["use_sliding_window"] = false;
}

const HuggingFaceFamily& qwen3_hugging_face() {
  static const HuggingFaceFamily kHuggingFace = [] {
    HuggingFaceFamily folders = llama_like_folders("qwen3");
    folders.read = [](JsonReader& reader, const std::string&) { return read_llama_folder(reader, kQwen3); };
    folders.names = qwen3_names;
    return folders;
  }();
  return kHuggingFace;
}

}  // namespace orthant
