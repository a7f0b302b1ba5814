#include "orthant/checkpoint/pretrained.h"
#include "orthant/models/model_config.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "checkpoint/model_on_disk.h"
#include "orthant/checkpoint/hugging_face_export.h"
#include "orthant/checkpoint/hugging_face_import.h"
#include "orthant/checkpoint/large_buffer.h"
#include "orthant/checkpoint/reader.h"
#include "orthant/models/llama/config.h"
#include "orthant/runtime/unit.h"
#include "orthant/train/inference.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace pretrained_test {

constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 12, "num_attention_heads": 2,
  "num_hidden_layers": 2, "intermediate_size": 20, "vocab_size": 31, "max_position_embeddings": 32})";
constexpr const char* kGpt2 = R"({"model_type": "gpt2", "n_embd": 12, "n_head": 2, "n_layer": 2, "vocab_size": 31,
  "n_positions": 16, "n_inner": 23})";
constexpr const char* kBert = R"({"model_type": "bert", "hidden_size": 12, "num_attention_heads": 2,
  "num_hidden_layers": 2, "intermediate_size": 20, "vocab_size": 31, "max_position_embeddings": 16})";

at::Tensor parameter(const ParameterStore& store, std::string_view name) {
  for (const auto& buffer : store.buffers()) {
    if (const auto* entry = buffer->layout().find(name)) return buffer->master_view(*entry);
  }
  throw InternalError("no such parameter");
}

ParameterStore make_store(const GraphSpec& spec, DType dtype) {
  return ParameterStore(spec, Mesh(), 0, {dtype, dtype, dtype}, make_large_buffer);
}

TEST(PretrainedWeights, AreConvertedAndTurned) {
  for (const char* stored : {"F32", "BF16", "F16", "F64"}) {
    ModelOnDisk disk(kGpt2);
    for (auto& [name, tensor] : disk.tensors) tensor = tensor.to(scalar_type(stored_dtype({name, stored, {}})));
    disk.write();
    const auto spec = build_spec(disk.config, {});
    for (const auto dtype : {DType::float32, DType::float64}) {
      auto store = make_store(spec, dtype);
      PretrainedWeights(spec, {{disk.folder, &tensor_names(disk.config)}}).load(store);
      const auto fc = disk.tensors.at("transformer.h.1.mlp.c_fc.weight").to(scalar_type(dtype));
      EXPECT_TRUE(at::equal(parameter(store, "layers.1.mlp.c_fc.weight"), fc.t())) << stored;
      EXPECT_TRUE(at::equal(parameter(store, "layers.1.mlp.c_fc.bias"),
                            disk.tensors.at("transformer.h.1.mlp.c_fc.bias").to(scalar_type(dtype))));
      EXPECT_TRUE(at::equal(parameter(store, "embed.wte.weight"),
                            disk.tensors.at("transformer.wte.weight").to(scalar_type(dtype))));
    }
  }
}

TEST(PretrainedWeights, TellWhatIsMissingAndWhatIsNotUsed) {
  ModelOnDisk disk(kBert);
  std::erase_if(disk.tensors, [](const auto& item) {
    return item.first.starts_with("cls.") || item.first.starts_with("bert.pooler.");
  });
  disk.tensors["classifier.weight"] = at::zeros({2, 12});
  disk.write();
  const PretrainedWeights weights(build_spec(disk.config, {}), {{disk.folder, &tensor_names(disk.config)}});
  EXPECT_TRUE(weights.reads("embed.word.weight"));
  EXPECT_FALSE(weights.reads("head.bias"));
  EXPECT_EQ(weights.notes(),
            (std::vector<std::string>{"not in the folder, drawn from the seed: head.dense.weight, head.dense.bias, "
                                      "head.norm.weight, head.norm.bias, head.bias",
                                      disk.folder.string() + ": not used: classifier.weight"}));
}

TEST(PretrainedWeights, RefuseATiedHeadThatDiffers) {
  ModelOnDisk disk(R"({"model_type": "llama", "hidden_size": 12, "num_attention_heads": 2, "num_hidden_layers": 1,
                       "intermediate_size": 20, "vocab_size": 31, "tie_word_embeddings": true})");
  disk.tensors["lm_head.weight"] = disk.tensors.at("model.embed_tokens.weight").clone();
  disk.write();
  const auto spec = build_spec(disk.config, {});
  auto store = make_store(spec, DType::float32);
  EXPECT_NO_THROW(PretrainedWeights(spec, {{disk.folder, &tensor_names(disk.config)}}).load(store));
  disk.tensors["lm_head.weight"][30][11] += 1;
  disk.write();
  const PretrainedWeights weights(spec, {{disk.folder, &tensor_names(disk.config)}});
  EXPECT_EQ(error_text<DataError>([&] { weights.load(store); }),
            disk.folder.string() +
                ": lm_head.weight differs from model.embed_tokens.weight, to which config.json ties it\n"
                "  fix: set tie_word_embeddings to false in config.json");
}

TEST(Import, GivesATrainerItsWeightsAndAFreshOptimizer) {
  ModelOnDisk disk(kLlama);
  disk.write();
  const auto imported = disk.folder.string() + "-imported";
  std::filesystem::remove_all(imported);
  import_hugging_face(disk.folder, imported, DType::bfloat16);
  const auto make_trainer = [](const ModelConfig& config) {
    TrainerOptions options;
    options.seed = 5;
    return std::make_unique<Trainer>(
        build_spec(config, {.rows = 1, .sequence = 8}),
        [&](ParameterStore& store, Tables& tables) { return build_units(store, tables); }, Mesh(), options);
  };
  const auto trainer = make_trainer(disk.config);
  trainer->optimizer().state(0, 0).fill_(1);
  trainer->load(imported);
  EXPECT_TRUE(at::equal(parameter(trainer->parameters(), "layers.0.mlp.w2.weight"),
                        disk.tensors.at("model.layers.0.mlp.down_proj.weight").to(at::kBFloat16).to(at::kFloat)));
  EXPECT_EQ(trainer->optimizer().state(0, 0).abs().max().item<float>(), 0);
  EXPECT_EQ(trainer->steps_done(), 0);
  auto other = get<LlamaConfig>(disk.config);
  other.vocab_size = 32;
  const auto text = error_text<DataError>([&] { make_trainer(other)->load(imported); });
  EXPECT_NE(text.find("the weights do not fit the model (2 differences)"), std::string::npos) << text;
  EXPECT_NE(text.find("embed.weight: [31, 12] there, [32, 12] in this model"), std::string::npos) << text;
  std::filesystem::remove_all(imported);
}

// An imported checkpoint whose manifest has forgotten these tensors.
std::string imported_without(const ModelOnDisk& disk, const std::vector<std::string>& names) {
  const auto folder = disk.folder.string() + "-imported";
  std::filesystem::remove_all(folder);
  import_hugging_face(disk.folder, folder);
  auto manifest = read_manifest(folder);
  std::erase_if(manifest.tensors, [&](const auto& tensor) { return std::ranges::count(names, tensor.name) > 0; });
  write_file_atomically(std::filesystem::path(folder) / kManifestFile, to_json(manifest));
  return folder;
}

TEST(PretrainedWeights, OfACheckpointMayLackATaskHeadButNotTheLastNorm) {
  struct Case {
    const char* config;
    std::vector<std::string> head;
    std::string norm;
  };
  const std::vector<Case> cases = {{kLlama, {"head.weight"}, "head.norm.weight"},
                                   {kGpt2, {}, "head.ln_f.bias"},
                                   {kBert, {"head.norm.weight", "head.bias"}, "layers.1.mlp.norm.weight"}};
  for (const auto& [config, head, norm] : cases) {
    ModelOnDisk disk(config);
    disk.write();
    const auto spec = build_spec(disk.config, {});
    if (!head.empty()) {
      EXPECT_EQ(PretrainedWeights(spec, {{imported_without(disk, head)}}).absent(), head);
    }
    ASSERT_NO_THROW(spec.parameter(norm));
    const auto folder = imported_without(disk, {norm});
    const auto text = error_text<DataError>([&] { PretrainedWeights(spec, {{folder}}); });
    EXPECT_NE(text.find(norm + ": missing, [12] expected"), std::string::npos) << text;
    std::filesystem::remove_all(folder);
  }
}

TEST(PretrainedWeights, ComeFromACheckpointThatAModelNames) {
  ModelOnDisk disk(kLlama);
  disk.write();
  const auto folder = imported_without(disk, {});
  auto config = get<LlamaConfig>(disk.config);
  config.path = folder;
  const auto spec = build_spec(config, {});
  auto store = make_store(spec, DType::float32);
  PretrainedWeights(spec, pretrained_sources(config)).load(store);
  EXPECT_TRUE(
      at::equal(parameter(store, "layers.0.mlp.w2.weight"), disk.tensors.at("model.layers.0.mlp.down_proj.weight")));
  std::filesystem::remove_all(folder);
}

TEST(Import, LackingAHeadIsToldWhenTrainingGoesOn) {
  ModelOnDisk disk(kLlama);
  disk.tensors.erase("lm_head.weight");
  disk.write();
  const auto folder = imported_without(disk, {});
  TrainerOptions options;
  options.seed = 5;
  Trainer trainer(
      build_spec(disk.config, {.rows = 1, .sequence = 8}),
      [&](ParameterStore& store, Tables& tables) { return build_units(store, tables); }, Mesh(), options);
  EXPECT_EQ(load_checkpoint(trainer, folder).notes,
            std::vector<std::string>{"not in the folder, drawn from the seed: head.weight"});
  std::filesystem::remove_all(folder);
}

TEST(LargeBuffer, IsZeroAlignedAndOfAnySize) {
  for (const std::int64_t elements : {0, 1, 1000, 1 << 20, (5 << 20) + 3}) {
    const auto buffer = make_large_buffer(elements, at::kFloat);
    EXPECT_EQ(buffer.numel(), elements);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.const_data_ptr()) % 64, 0U);
    if (elements > 0) EXPECT_EQ(buffer.abs().max().item<float>(), 0);
    buffer.fill_(1);
  }
}

}  // namespace pretrained_test
}  // namespace orthant
