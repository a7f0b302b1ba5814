#include "orthant/models/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orthant/base/nearest.h"

namespace orthant {
namespace {

struct LlamaRow {
  std::string_view name;
  std::int64_t hidden, layers, heads, kv_heads, inner, vocab, positions;
  double theta;
  double scaling = 0;          // factor of Llama 3.1's rotary scaling; 0: none
  std::int64_t head_size = 0;  // 0: hidden / heads
  bool tied = false;
  std::int64_t window = 0;
};

constexpr std::int64_t kLlama3Positions = 8192;  // of Llama 3's first training

constexpr std::array<LlamaRow, 11> kLlamaRows = {{
    {"llama2-7b", 4096, 32, 32, 32, 11008, 32000, 4096, 1e4},
    {"llama2-13b", 5120, 40, 40, 40, 13824, 32000, 4096, 1e4},
    {"llama2-70b", 8192, 80, 64, 8, 28672, 32000, 4096, 1e4},
    {"llama3-8b", 4096, 32, 32, 8, 14336, 128256, 8192, 5e5},
    {"llama3-70b", 8192, 80, 64, 8, 28672, 128256, 8192, 5e5},
    {"llama3.1-8b", 4096, 32, 32, 8, 14336, 128256, 131072, 5e5, 8},
    {"llama3.1-70b", 8192, 80, 64, 8, 28672, 128256, 131072, 5e5, 8},
    {"llama3-405b", 16384, 126, 128, 8, 53248, 128256, 131072, 5e5, 8},
    {"llama-1b", 2048, 22, 32, 4, 5632, 32000, 2048, 1e4},
    {"llama-tiny", 64, 2, 4, 2, 192, 256, 512, 1e4},
    {"llama-16", 32, 14, 4, 2, 96, 256, 512, 1e4},
}};

constexpr std::array<LlamaRow, 7> kQwen3Rows = {{
    {"qwen3-0.6b", 1024, 28, 16, 8, 3072, 151936, 40960, 1e6, 0, 128, true},
    {"qwen3-1.7b", 2048, 28, 16, 8, 6144, 151936, 40960, 1e6, 0, 128, true},
    {"qwen3-4b", 2560, 36, 32, 8, 9728, 151936, 40960, 1e6, 0, 128, true},
    {"qwen3-8b", 4096, 36, 32, 8, 12288, 151936, 40960, 1e6, 0, 128},
    {"qwen3-14b", 5120, 40, 40, 8, 17408, 151936, 40960, 1e6, 0, 128},
    {"qwen3-32b", 5120, 64, 64, 8, 25600, 151936, 40960, 1e6, 0, 128},
    {"qwen3-tiny", 64, 2, 4, 2, 192, 256, 512, 1e4, 0, 32},
}};

constexpr std::array<LlamaRow, 2> kMistralRows = {{
    {"mistral-7b", 4096, 32, 32, 8, 14336, 32000, 32768, 1e4, 0, 0, false, 4096},
    {"mistral-tiny", 64, 2, 4, 2, 192, 256, 512, 1e4, 0, 0, false, 16},
}};

struct BertRow {
  std::string_view name;
  std::int64_t hidden, layers, heads, inner, vocab, positions, types;
  double eps;
  std::int64_t pad, offset;
};

constexpr std::array<BertRow, 7> kBertRows = {{
    {"bert-base-cased", 768, 12, 12, 3072, 28996, 512, 2, 1e-12, 0, 0},
    {"bert-large-cased", 1024, 24, 16, 4096, 28996, 512, 2, 1e-12, 0, 0},
    {"bert-base-uncased", 768, 12, 12, 3072, 30522, 512, 2, 1e-12, 0, 0},
    {"bert-large-uncased", 1024, 24, 16, 4096, 30522, 512, 2, 1e-12, 0, 0},
    {"roberta-base", 768, 12, 12, 3072, 50265, 514, 1, 1e-5, 1, 2},
    {"roberta-large", 1024, 24, 16, 4096, 50265, 514, 1, 1e-5, 1, 2},
    {"bert-tiny", 64, 2, 2, 256, 1024, 128, 2, 1e-12, 0, 0},
}};

struct TrimodalRow {
  std::string_view name;
  std::int64_t tower_layers;  // of two towers that are bert-tiny otherwise
};

constexpr std::array<TrimodalRow, 2> kTrimodalRows = {{{"trimodal-tiny", 2}, {"trimodal-16", 5}}};

struct Gpt2Row {
  std::string_view name;
  std::int64_t hidden, layers, heads, vocab, positions;
};

// After GPT-2's own: the sizes of Narayanan 2021 (table 1) and Korthikanti 2022 (table 3), whose vocabulary is padded.
constexpr std::array<Gpt2Row, 17> kGpt2Rows = {{
    {"gpt2", 768, 12, 12, 50257, 1024},
    {"gpt2-medium", 1024, 24, 16, 50257, 1024},
    {"gpt2-large", 1280, 36, 20, 50257, 1024},
    {"gpt2-xl", 1600, 48, 25, 50257, 1024},
    {"gpt2-tiny", 64, 2, 4, 256, 512},
    {"gpt-1.7b", 2304, 24, 24, 51200, 2048},
    {"gpt-3.6b", 3072, 30, 32, 51200, 2048},
    {"gpt-7.5b", 4096, 36, 32, 51200, 2048},
    {"gpt-18.4b", 6144, 40, 48, 51200, 2048},
    {"gpt-22b", 6144, 48, 64, 51200, 2048},
    {"gpt-39.1b", 8192, 48, 64, 51200, 2048},
    {"gpt-76.1b", 10240, 60, 80, 51200, 2048},
    {"gpt-145.6b", 12288, 80, 96, 51200, 2048},
    {"gpt3-175b", 12288, 96, 96, 51200, 2048},
    {"gpt-310.1b", 16384, 96, 128, 51200, 2048},
    {"mt-nlg-530b", 20480, 105, 128, 51200, 2048},
    {"gpt-1t", 25600, 128, 160, 51200, 2048},
}};

struct EncoderLmRow {
  std::string_view name;
  std::int64_t hidden, layers, heads, inner, vocab;
};

constexpr std::array<EncoderLmRow, 2> kEncoderLmRows = {{
    {"encoder-lm", 4096, 8, 16, 4096, 32768},
    {"encoder-lm-tiny", 64, 2, 4, 64, 256},
}};

template <typename Rows>
auto row_named(const Rows& rows, std::string_view name) {
  return std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
}

template <typename Rows>
std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

// Of a preset asked for by a program.
template <typename Rows>
const auto& require_row(const Rows& rows, PresetFamily family, std::string_view name) {
  refuse(find_preset_problem(family, name), family_name(family));
  return *row_named(rows, name);
}

}  // namespace

PresetFamily preset_family(LlamaFamily family) {
  switch (family) {
    case LlamaFamily::qwen3:
      return PresetFamily::qwen3;
    case LlamaFamily::mistral:
      return PresetFamily::mistral;
    case LlamaFamily::llama:
      break;
  }
  return PresetFamily::llama;
}

std::string_view family_name(PresetFamily family) {
  constexpr std::array<std::string_view, kPresetFamilies.size()> kNames = {"llama",      "bert",  "trimodal", "gpt2",
                                                                           "encoder_lm", "qwen3", "mistral"};
  return kNames[static_cast<std::size_t>(family)];
}

std::vector<std::string> preset_names(PresetFamily family) {
  switch (family) {
    case PresetFamily::llama:
      return names_of(kLlamaRows);
    case PresetFamily::bert:
      return names_of(kBertRows);
    case PresetFamily::trimodal:
      return names_of(kTrimodalRows);
    case PresetFamily::gpt2:
      return names_of(kGpt2Rows);
    case PresetFamily::qwen3:
      return names_of(kQwen3Rows);
    case PresetFamily::mistral:
      return names_of(kMistralRows);
    case PresetFamily::encoder_lm:
      break;
  }
  return names_of(kEncoderLmRows);
}

std::optional<PresetFamily> family_of_preset(std::string_view name) {
  for (const auto family : kPresetFamilies) {
    const auto names = preset_names(family);
    if (std::find(names.begin(), names.end(), name) != names.end()) return family;
  }
  return std::nullopt;
}

Problem find_preset_problem(PresetFamily family, std::string_view name) {
  const auto found = family_of_preset(name);
  if (found == family) return std::nullopt;
  const std::string message = found ? fmt::format("\"{}\" is a {} preset; a {} preset is expected here", name,
                                                  family_name(*found), family_name(family))
                                    : fmt::format("unknown preset \"{}\"", name);
  return ConfigProblem{"preset", message, did_you_mean(name, preset_names(family))};
}

namespace {

LlamaConfig preset_of(const LlamaRow& row, LlamaFamily family) {
  LlamaConfig config;
  config.family = family;
  config.hidden_size = row.hidden;
  config.num_hidden_layers = row.layers;
  config.num_attention_heads = row.heads;
  config.num_key_value_heads = row.kv_heads;
  config.head_dim = row.head_size != 0 ? row.head_size : row.hidden / row.heads;
  config.intermediate_size = row.inner;
  config.vocab_size = row.vocab;
  config.max_position_embeddings = row.positions;
  config.rope_theta = row.theta;
  config.rms_norm_eps = family == LlamaFamily::qwen3 ? 1e-6 : 1e-5;
  config.tie_word_embeddings = row.tied;
  config.sliding_window = row.window;
  if (row.scaling != 0) {
    config.rope_scaling.kind = RopeScaling::Kind::llama3;
    config.rope_scaling.factor = row.scaling;
    config.rope_scaling.original_max_position_embeddings = kLlama3Positions;
  }
  return config;
}

}  // namespace

LlamaConfig llama_preset(std::string_view name) {
  const auto family = family_of_preset(name);
  if (family == PresetFamily::qwen3) return preset_of(*row_named(kQwen3Rows, name), LlamaFamily::qwen3);
  if (family == PresetFamily::mistral) return preset_of(*row_named(kMistralRows, name), LlamaFamily::mistral);
  return preset_of(require_row(kLlamaRows, PresetFamily::llama, name), LlamaFamily::llama);
}

BertConfig bert_preset(std::string_view name) {
  const BertRow& row = require_row(kBertRows, PresetFamily::bert, name);
  BertConfig config;
  config.hidden_size = row.hidden;
  config.num_hidden_layers = row.layers;
  config.num_attention_heads = row.heads;
  config.intermediate_size = row.inner;
  config.vocab_size = row.vocab;
  config.max_position_embeddings = row.positions;
  config.type_vocab_size = row.types;
  config.layer_norm_eps = row.eps;
  config.pad_token_id = row.pad;
  config.position_offset = row.offset;
  return config;
}

TrimodalConfig trimodal_preset(std::string_view name) {
  const TrimodalRow& row = require_row(kTrimodalRows, PresetFamily::trimodal, name);
  TrimodalConfig config;
  config.primary = bert_preset("bert-tiny");
  config.primary.num_hidden_layers = row.tower_layers;
  config.secondary = config.primary;
  config.tabular = TabularConfig{16, 32};
  config.fusion.hidden_size = 64;
  config.projection = 32;
  return config;
}

Gpt2Config gpt2_preset(std::string_view name) {
  const Gpt2Row& row = require_row(kGpt2Rows, PresetFamily::gpt2, name);
  Gpt2Config config;
  config.hidden_size = row.hidden;
  config.num_hidden_layers = row.layers;
  config.num_attention_heads = row.heads;
  config.intermediate_size = 4 * row.hidden;
  config.vocab_size = row.vocab;
  config.max_position_embeddings = row.positions;
  return config;
}

EncoderLmConfig encoder_lm_preset(std::string_view name) {
  const EncoderLmRow& row = require_row(kEncoderLmRows, PresetFamily::encoder_lm, name);
  EncoderLmConfig config;
  config.hidden_size = row.hidden;
  config.num_hidden_layers = row.layers;
  config.num_attention_heads = row.heads;
  config.intermediate_size = row.inner;
  config.vocab_size = row.vocab;
  return config;
}

}  // namespace orthant
