#include "orthant/checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "checkpoint/model_on_disk.h"
#include "orthant/checkpoint/rank_file.h"
#include "orthant/checkpoint/reader.h"
#include "orthant/checkpoint/saver.h"
#include "orthant/checkpoint/stored_model.h"
#include "orthant/files/xxhash.h"
#include "orthant/models/llama/config.h"
#include "orthant/runtime/unit.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace checkpoint_test {

namespace fs = std::filesystem;

constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 12, "num_attention_heads": 2,
  "num_hidden_layers": 1, "intermediate_size": 20, "vocab_size": 31, "max_position_embeddings": 32})";

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() : folder_(fs::path(testing::TempDir()) / ("orthant-checkpoint-" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
  }
  ~Checkpoint() override { fs::remove_all(folder_); }

  std::unique_ptr<Trainer> make_trainer(std::uint64_t seed) const {
    const auto config = parse_hugging_face_config(kLlama, "config.json");
    TrainerOptions options;
    options.seed = seed;
    return std::make_unique<Trainer>(
        build_spec(config, {.rows = 1, .sequence = 8}),
        [&](ParameterStore& store, Tables& tables) { return build_units(store, tables); }, Mesh(), options);
  }

  void write_manifest(const Manifest& manifest) const {
    write_file_atomically(folder_ / kManifestFile, to_json(manifest));
  }

  std::string refusal() const {
    return error_text<DataError>([&] { verify_checkpoint(folder_.string()); });
  }

  fs::path folder_;
};

TEST_F(Checkpoint, WithOtherFilesIsVerifiedReadAndLoaded) {
  const auto trainer = make_trainer(1);
  trainer->optimizer().state(0, 0).fill_(3);
  trainer->set_steps_done(7);
  save_checkpoint(*trainer, {}, folder_.string(), {{"preprocessing.json", "{}"}});
  EXPECT_EQ(verify_checkpoint(folder_.string()).files.size(), 2U);
  std::size_t parameters = 0;
  for (const auto& unit : trainer->graph().units) parameters += unit.parameters.size();
  EXPECT_EQ(open_weights(folder_)->entries().size(), parameters);
  const auto other = make_trainer(2);
  EXPECT_NE(other->weights_hash(), trainer->weights_hash());
  EXPECT_TRUE(load_checkpoint(*other, folder_.string()).notes.empty());
  EXPECT_EQ(other->weights_hash(), trainer->weights_hash());
  const auto again = folder_.string() + "-again";
  save_checkpoint(*other, {}, again, {{"preprocessing.json", "{}"}});
  EXPECT_EQ(read_manifest(again).files, read_manifest(folder_).files);  // optimizer state too
  fs::remove_all(again);
  EXPECT_EQ(other->steps_done(), 7);
}

TEST_F(Checkpoint, ThatIsDamagedIsRefusedWithARemedyAndNothingChanges) {
  const auto trainer = make_trainer(1);
  save_checkpoint(*trainer, {}, folder_.string(), {{"preprocessing.json", "{}"}});
  const auto whole = read_manifest(folder_);
  const std::string changed =
      "\n  fix: the file was cut short or changed: copy the checkpoint again, or use another one of the run";
  write_file_atomically(folder_ / "preprocessing.json", "{} ");
  EXPECT_EQ(refusal(),
            (folder_ / "preprocessing.json").string() + ": 3 bytes, the manifest promises 2 bytes" + changed);
  write_file_atomically(folder_ / "preprocessing.json", "[]");
  EXPECT_TRUE(refusal().ends_with(whole.files.front().xxh64.front() + " for the 8 MiB from byte 0 on" + changed))
      << refusal();
  write_file_atomically(folder_ / "preprocessing.json", "{}");

  auto manifest = whole;
  manifest.tensors.front().dtype = DType::bfloat16;
  write_manifest(manifest);
  EXPECT_TRUE(
      refusal().ends_with("elements of BF16\n  fix: the manifest and its files do not belong together: copy the "
                          "checkpoint again, or use another"))
      << refusal();
  const auto other = make_trainer(2);
  const auto hash = other->weights_hash();
  EXPECT_THROW(load_checkpoint(*other, folder_.string()), DataError);
  EXPECT_EQ(other->weights_hash(), hash);

  manifest = whole;
  manifest.tensors.front().pieces.front().file = "preprocessing.json";
  write_manifest(manifest);
  EXPECT_NE(refusal().find("lie in preprocessing.json, which is no .safetensors file"), std::string::npos) << refusal();
}

// Who copies a file's tags from another checkpoint of the same key has no tags of this one.
TEST_F(Checkpoint, TagsOfAFileOfAnotherStepAreRefused) {
  const auto trainer = make_trainer(1);
  const auto key = std::make_shared<const TagKey>(std::vector<std::byte>(32, std::byte{7}));
  const auto save = [&](std::int64_t step) {
    trainer->set_steps_done(step);
    CheckpointSaver saver(*trainer);
    SavedBeside beside;
    beside.files["data.json"] = "{}";
    beside.key = key;
    saver.begin((folder_ / ("step-" + std::to_string(step))).string(), std::move(beside));
    ASSERT_FALSE(saver.finish()->failed);
  };
  save(1);
  save(2);
  const CheckpointAccess access{IoPatience(), key};
  const auto path = folder_ / "step-2";
  auto manifest = verify_checkpoint(path.string(), access);
  const auto other = verify_checkpoint((folder_ / "step-1").string(), access);
  ASSERT_EQ(manifest.files.size(), 2U);
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    ASSERT_EQ(manifest.files[i].xxh64, other.files[i].xxh64);
    auto forged = manifest;
    forged.files[i].hmac = other.files[i].hmac;
    orthant::write_manifest(path, forged, {key, manifest.id, manifest.step});
    const auto text = error_text<AuthenticityError>([&] { verify_checkpoint(path.string(), access); });
    EXPECT_NE(text.find(manifest.files[i].name + ": the tag of "), std::string::npos) << text;
  }
  orthant::write_manifest(path, manifest, {key, manifest.id, manifest.step});
  verify_checkpoint(path.string(), access);
}

TEST_F(Checkpoint, ThatIsNoneIsRefusedWithARemedy) {
  EXPECT_EQ(refusal(), folder_.string() +
                           ": no such checkpoint folder\n  fix: name a folder step-N; a run has them in its folder "
                           "checkpoints");
  fs::create_directories(folder_);
  EXPECT_EQ(refusal(), folder_.string() + ": no checkpoint, it has no manifest.json\n  fix: name a folder step-N");
}

TEST_F(Checkpoint, TokenizerFilesAreCopiedFromAFolderOrAFile) {
  const auto from = folder_ / "from";
  const auto to = folder_ / "to";
  fs::create_directories(from);
  fs::create_directories(to);
  write_file_atomically(from / "tokenizer.json", "new");
  write_file_atomically(from / "words.txt", "a");
  write_file_atomically(to / "tokenizer.json", "old");
  EXPECT_EQ(copy_tokenizer_files(from, to), std::vector<std::string>{"tokenizer.json"});
  EXPECT_EQ(read_file(to / "tokenizer.json"), "new");
  EXPECT_EQ(copy_tokenizer_files(from / "words.txt", to), std::vector<std::string>{"vocab.txt"});
  write_file_atomically(from / "pieces.model", "x");
  EXPECT_EQ(copy_tokenizer_files(from / "pieces.model", from), std::vector<std::string>{"tokenizer.model"});
  EXPECT_EQ(copy_tokenizer_files(to, to), (std::vector<std::string>{"tokenizer.json", "vocab.txt"}));
  const auto text = error_text<DataError>([&] { copy_tokenizer_files(from, folder_ / "none"); });
  EXPECT_TRUE(text.ends_with("\n  fix: check the path, and that its folder exists")) << text;
}

}  // namespace checkpoint_test
}  // namespace orthant
