// A small Hugging Face folder with drawn weights, for tests to spoil.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "orthant/checkpoint/checkpoint.h"
#include "orthant/files/tensor_folder.h"
#include "orthant/files/whole_file.h"
#include "orthant/models/hugging_face.h"
#include "orthant/models/hugging_face_names.h"
#include "orthant/nn/scalar_type.h"

namespace orthant {

// Configurations whose heads 2 and 4 ranks share, but not the vocabulary.
inline constexpr const char* kUnevenLlama = R"({"model_type": "llama", "hidden_size": 32, "num_attention_heads": 8,
  "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 43, "vocab_size": 61,
  "max_position_embeddings": 32})";
inline constexpr const char* kUnevenGpt2 =
    R"({"model_type": "gpt2", "n_embd": 24, "n_head": 4, "n_layer": 2, "vocab_size": 59,
  "n_positions": 16, "n_inner": 45})";
inline constexpr const char* kUnevenBert = R"({"model_type": "bert", "hidden_size": 24, "num_attention_heads": 4,
  "num_hidden_layers": 2, "intermediate_size": 45, "vocab_size": 59, "max_position_embeddings": 16})";

inline constexpr const char* kTiedLlama = R"({"model_type": "llama", "hidden_size": 12, "num_attention_heads": 2,
  "num_hidden_layers": 1, "intermediate_size": 20, "vocab_size": 31, "tie_word_embeddings": true})";

struct ModelOnDisk {
  std::filesystem::path folder;
  std::string text;  // of config.json
  ModelConfig config;
  std::map<std::string, at::Tensor> tensors;

  // All that training and the forward pass use.
  explicit ModelOnDisk(const std::string& config_text)
      : folder(std::filesystem::path(testing::TempDir()) / ("orthant-model-" + std::to_string(getpid()))),
        text(config_text),
        config(parse_hugging_face_config(config_text, "config.json")) {
    at::manual_seed(1);
    for (const auto& spec : {build_spec(config, {}), forward_spec(config, {})}) {
      for (const auto& unit : spec.units) {
        for (const auto& parameter : unit.parameters) {
          const auto name = hugging_face_name(tensor_names(config), parameter.name, false).value();
          auto shape = parameter.shape;
          if (name.transposed) std::ranges::reverse(shape);
          tensors[name.tensor] = at::randn(shape) * 0.2;
        }
      }
    }
  }
  ~ModelOnDisk() { std::filesystem::remove_all(folder); }
  ModelOnDisk(const ModelOnDisk&) = delete;
  ModelOnDisk& operator=(const ModelOnDisk&) = delete;

  // Writes a tied head beside the words that differs from them in the last one. Of kTiedLlama.
  void write_unequal_head() {
    tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight").clone();
    tensors["lm_head.weight"][30][11] += 1;
    write();
  }

  void write() const {
    std::filesystem::remove_all(folder);
    std::vector<TensorEntry> entries;
    for (const auto& [name, tensor] : tensors) {
      entries.push_back({name, element_name(dtype_of(tensor.scalar_type())), tensor.sizes().vec()});
    }
    write_tensor_folder(folder, entries, [&](const TensorEntry& entry, const PutBytes& put) {
      const auto values = tensors.at(entry.name).contiguous();
      put({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
    });
    write_file_atomically(folder / "config.json", text);
  }
};

}  // namespace orthant
