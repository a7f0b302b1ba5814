#include "orthant/models/qwen3/config.h"

#include <array>
#include <nlohmann/json.hpp>

#include "orthant/models/llama/variant.h"

namespace orthant {
namespace {

constexpr std::array<LlamaRow, 7> kQwen3Rows = {{
    {"qwen3-0.6b", 1024, 28, 16, 8, 3072, 151936, 40960, 1e6, 0, 128, true},
    {"qwen3-1.7b", 2048, 28, 16, 8, 6144, 151936, 40960, 1e6, 0, 128, true},
    {"qwen3-4b", 2560, 36, 32, 8, 9728, 151936, 40960, 1e6, 0, 128, true},
    {"qwen3-8b", 4096, 36, 32, 8, 12288, 151936, 40960, 1e6, 0, 128},
    {"qwen3-14b", 5120, 40, 40, 8, 17408, 151936, 40960, 1e6, 0, 128},
    {"qwen3-32b", 5120, 64, 64, 8, 25600, 151936, 40960, 1e6, 0, 128},
    {"qwen3-tiny", 64, 2, 4, 2, 192, 256, 512, 1e4, 0, 32},
}};

constexpr std::array<ModuleRow, 2> kQwen3Modules = {{
    {"layers.*.attention.q_norm", "layers.*.self_attn.q_norm"},
    {"layers.*.attention.k_norm", "layers.*.self_attn.k_norm"},
}};

LlamaConfig qwen3_defaults() {
  LlamaConfig config;
  config.variant = &kQwen3;
  config.head_dim = 128;
  config.intermediate_size = 22016;
  config.vocab_size = 151936;
  config.max_position_embeddings = 32768;
  return config;
}

}  // namespace

void read_qwen_keys(JsonReader& reader, LlamaConfig&) {
  refuse_true(reader, "use_sliding_window", "a sliding window in some of the layers");
}

void write_qwen_keys(const LlamaConfig&, nlohmann::ordered_json& json) {
  json["use_sliding_window"] = false;
}

const Family& qwen3_family() {
  return llama_family_of<kQwen3>();
}

constinit const LlamaVariant kQwen3 = {.name = "qwen3",
                                       .family = qwen3_family,
                                       .defaults = qwen3_defaults,
                                       .class_name = "Qwen3",
                                       .presets = kQwen3Rows,
                                       .modules = kQwen3Modules,
                                       .norms_heads = true,
                                       .read_keys = read_qwen_keys,
                                       .write_keys = write_qwen_keys};

}  // namespace orthant
