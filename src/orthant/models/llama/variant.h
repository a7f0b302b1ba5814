// What sets a family apart that is a Llama but for an option or two: a constant, from which all else follows. Such a
// family has a folder of its own with the constant, its defaults, its presets and its keys of Hugging Face.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/models/family.h"
#include "orthant/models/hugging_face_family.h"
#include "orthant/models/llama/config.h"

namespace orthant {

// A preset.
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

struct LlamaVariant {
  std::string_view name;                // of the family, and of its type in config.json
  const Family& (*family)() = nullptr;  // <name>_family
  LlamaConfig (*defaults)() = nullptr;  // which are Hugging Face's
  std::string_view class_name;          // "Llama" of LlamaForCausalLM
  std::span<const LlamaRow> presets = {};
  double preset_eps = 1e-6;                 // of the presets' norms
  std::span<const ModuleRow> modules = {};  // besides a Llama's
  bool norms_heads = false;                 // of queries and keys, before their rotation
  bool output_bias = true;                  // of attention, where its other projections have theirs
  // Which of these keys there are.
  std::string_view attention_bias = "attention_bias";
  bool mlp_bias = false;
  bool sliding_window = false;
  // Keys of experts, of a model section and of a config.json; null: all its layers are dense.
  void (*read_experts)(JsonReader& reader, LlamaConfig& config) = nullptr;
  // More keys of a config.json, and two that say the same in different generations.
  void (*read_keys)(JsonReader& reader, LlamaConfig& config) = nullptr;
  void (*write_keys)(const LlamaConfig& config, nlohmann::ordered_json& json) = nullptr;
  std::array<std::string_view, 2> one_meaning = {};
};

// The key mlp_only_layers; null: none.
void read_dense_layers(JsonReader& reader, std::vector<std::int64_t>& layers);

// What llama_family_of() is made of: all but what needs the variant in a function without arguments.
Family llama_like_family(const LlamaVariant& variant);
HuggingFaceFamily llama_like_folders(const LlamaVariant& variant);
ModelConfig read_llama_folder(JsonReader& reader, const LlamaVariant& variant);
std::vector<ModuleRow> llama_modules(const LlamaVariant& variant);
NameTable llama_names(const std::vector<ModuleRow>& modules);
std::vector<Preset> llama_presets(const LlamaVariant& variant);

template <const LlamaVariant& variant>
const Family& llama_family_of() {
  static const HuggingFaceFamily kFolders = [] {
    HuggingFaceFamily folders = llama_like_folders(variant);
    folders.read = [](JsonReader& reader, const std::string&) { return read_llama_folder(reader, variant); };
    folders.names = [](const ModelConfig&) -> const NameTable& {
      static const std::vector<ModuleRow> kModules = llama_modules(variant);
      static const NameTable kNames = llama_names(kModules);
      return kNames;
    };
    return folders;
  }();
  static const Family kFamily = [] {
    Family family = llama_like_family(variant);
    family.read = [](JsonReader& section, const ModelConfig* folder) -> ModelConfig {
      return read_llama(section, folder != nullptr ? get<LlamaConfig>(*folder) : variant.defaults());
    };
    family.presets = [] { return llama_presets(variant); };
    family.hugging_face = &kFolders;
    return family;
  }();
  return kFamily;
}

}  // namespace orthant
