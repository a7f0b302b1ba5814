// Exports by several ranks: each writes its shards, none holds more than a block of the model, and the folder is that
// of one rank.
#include "orthant/checkpoint/hugging_face_export.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "base/error_text.h"
#include "checkpoint/model_on_disk.h"
#include "ops/live_bytes.h"
#include "orthant/checkpoint/hugging_face_import.h"
#include "orthant/comm/thread_ranks.h"
#include "orthant/files/path_facts.h"
#include "orthant/train/trainer_options.h"

namespace orthant {
namespace hugging_face_export_test {

namespace fs = std::filesystem;

// 3.6 MB of float32, of which the words are 512 kB.
constexpr const char* kLargerLlama = R"({"model_type": "llama", "hidden_size": 128, "num_attention_heads": 4,
  "num_hidden_layers": 4, "intermediate_size": 256, "vocab_size": 1000, "max_position_embeddings": 32})";

struct ExportedModel {
  explicit ExportedModel(const std::string& config) : disk(config), checkpoint(disk.folder / "step-0") {
    disk.write();
    import_hugging_face(disk.folder, checkpoint);
  }
  ModelOnDisk disk;
  fs::path checkpoint;  // inside the folder, which the test's end removes
};

ExportResult export_on(int world_size, const ExportedModel& model, const fs::path& out, const ExportOptions& options) {
  std::mutex mutex;
  ExportResult first;
  comm::run_thread_ranks(world_size, [&](int rank, const comm::Store& board) {
    comm::CommOptions comm;
    comm.backend = comm::BackendKind::shm;
    comm.timeout_seconds = 20;
    const ControlGroup ranks(std::make_shared<comm::Communicator>(Mesh(Degrees{{Axis::dp, world_size}}), rank, board,
                                                                  comm, std::vector<comm::GroupRequest>{}));
    auto result = export_hugging_face(model.checkpoint, out, options, ranks);
    const std::lock_guard lock(mutex);
    if (rank == 0) first = std::move(result);
  });
  return first;
}

std::map<std::string, std::string> bytes_by_tensor(const fs::path& folder) {
  std::map<std::string, std::string> found;
  const auto tensors = TensorFolder::open(folder);
  for (const auto& tensor : tensors.tensors()) {
    auto& bytes = found[tensor.entry.name];
    bytes.resize(static_cast<std::size_t>(tensor_bytes(tensor.entry)));
    tensors.read(tensor.entry.name, std::as_writable_bytes(std::span(bytes)));
  }
  return found;
}

TEST(HuggingFaceExport, RanksWriteTheShardsInTurnAndTheFolderIsThatOfOneRank) {
  for (const char* config : {kUnevenLlama, kUnevenGpt2, kUnevenBert, kTiedLlama}) {
    SCOPED_TRACE(config);
    const ExportedModel model(config);
    const auto whole = model.disk.folder / "whole";
    export_hugging_face(model.checkpoint, whole);
    const ExportOptions options{.max_shard_bytes = 2000};
    const auto shards = model.disk.folder / "shards";
    const auto result = export_on(3, model, shards, options);
    EXPECT_EQ(bytes_by_tensor(shards), bytes_by_tensor(whole));
    EXPECT_EQ(read_file(shards / "config.json"), read_file(whole / "config.json"));
    ASSERT_EQ(result.bytes_per_rank.size(), 3);
    std::int64_t sum = 0;
    for (const auto bytes : result.bytes_per_rank) {
      EXPECT_GT(bytes, 0);
      sum += bytes;
    }
    EXPECT_EQ(sum, result.bytes);
    auto named = names_in_folder(shards);
    auto told = result.files;
    std::ranges::sort(named);
    std::ranges::sort(told);
    EXPECT_EQ(told, named);
  }
}

TEST(HuggingFaceExport, HoldsNoMoreThanAShardOfTheModel) {
  const ExportedModel model(kLargerLlama);
  auto& live = nn::LiveBytes::instance();
  for (const std::int64_t shard : {std::int64_t{64} << 10, std::int64_t{300'000}}) {
    live.reset_peak();
    const auto before = live.now();
    const auto out = model.disk.folder / std::to_string(shard);
    const auto result = export_hugging_face(model.checkpoint, out, {.max_shard_bytes = shard});
    EXPECT_GT(result.bytes, 10 * shard);
    EXPECT_LE(live.peak() - before, shard + 1024) << "of " << result.bytes;
    // Every rank keeps to it: all of them together hold as many blocks as there are ranks.
    live.reset_peak();
    const auto many = export_on(4, model, out.string() + "-ranks", {.max_shard_bytes = shard});
    EXPECT_LE(live.peak() - before, 4 * (shard + 1024)) << "of " << many.bytes;
  }
}

TEST(HuggingFaceExport, LeavesNothingWhenItFailsAndClearsAwayWhatAKilledOneLeft) {
  const ExportedModel model(kTiedLlama);
  const auto out = model.disk.folder / "out";
  const auto left = model.disk.folder / "out.partial-1";
  const auto other = model.disk.folder / "other.partial-1";
  for (const auto& folder : {left, other}) {
    fs::create_directory(folder);
    write_file_atomically(folder / "model-00001-of-00002.safetensors", "half");
  }
  export_hugging_face(model.checkpoint, out);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_NE(error_text<DataError>([&] { export_on(2, model, out, {}); }).find("exists already"), std::string::npos);
  for (const auto& name : names_in_folder(model.disk.folder)) {
    EXPECT_FALSE(name.starts_with("out.partial")) << name;
  }
}

}  // namespace hugging_face_export_test
}  // namespace orthant
