// What sets a family apart that is a Llama but for an option or two, and what such a family is made of: it has a folder
// of its own with its variant, its defaults, its presets and its keys of Hugging Face.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/models/family.h"
#include "orthant/models/hugging_face_family.h"
#include "orthant/models/llama/config.h"

namespace orthant {

struct LlamaVariant {
  const Family& (*family)() = nullptr;
  LlamaConfig (*defaults)() = nullptr;  // which are Hugging Face's
  std::string_view class_name;          // "Llama" of LlamaForCausalLM
  bool norms_heads = false;             // of queries and keys, before their rotation
  bool output_bias = true;              // of attention, where its other projections have theirs
  // Which of these keys there are.
  std::string_view attention_bias = "attention_bias";
  bool mlp_bias = false;
  bool sliding_window = false;
  // Keys of experts, of a model section and of a config.json; null: all its layers are dense.
  void (*read_experts)(JsonReader& reader, LlamaConfig& config) = nullptr;
  // More keys of a config.json.
  void (*read_keys)(JsonReader& reader, LlamaConfig& config) = nullptr;
  void (*write_keys)(const LlamaConfig& config, nlohmann::ordered_json& json) = nullptr;
};

// The key mlp_only_layers; null: none.
void read_dense_layers(JsonReader& reader, std::vector<std::int64_t>& layers);

// A family with everything that Llamas share; `read` is left, and what lies in its folder.
Family llama_like_family(std::string_view name);

// The same for its folders; `read` is left.
HuggingFaceFamily llama_like_folders(std::string model_type);
ModelConfig read_llama_folder(JsonReader& reader, const LlamaVariant& variant);
const NameTable& llama_names();

struct LlamaRow {
  std::string_view name;
  std::int64_t hidden, layers, heads, kv_heads, inner, vocab, positions;
  double theta;
  double scaling = 0;          // factor of Llama 3.1's rotary scaling; 0: none
  std::int64_t head_size = 0;  // 0: hidden / heads
  bool tied = false;
  std::int64_t window = 0;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_inner = 0;
  std::int64_t shared_inner = 0;
  bool normalised = true;
};
Preset preset_of(const LlamaRow& row, const LlamaVariant& variant, double rms_norm_eps);

}  // namespace orthant
