// Weights of a folder on the ranks of a mesh: each rank reads what it holds.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <mutex>

#include "base/error_text.h"
#include "checkpoint/model_on_disk.h"
#include "orthant/checkpoint/hugging_face_import.h"
#include "orthant/checkpoint/large_buffer.h"
#include "orthant/checkpoint/pretrained.h"
#include "orthant/comm/thread_ranks.h"
#include "orthant/layout/pieces.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace pretrained_ranks_test {

struct RankCase {
  const char* mesh;
  int zero = 0;
};
const std::vector<RankCase> kCases = {{"tp=2"},      {"tp=4"},           {"fsdp=3", 3},
                                      {"fsdp=2", 0}, {"tp=2,fsdp=2", 3}, {"dp=2,tp=2"}};

// A rank's buffers of the model that is trained, resolved on the mesh.
struct RankStore {
  RankStore(const ModelConfig& config, const RankCase& ranks, int rank, const comm::Store& board)
      : mesh(Mesh::parse(ranks.mesh)), graph(resolved_graph(build_spec(config, {}), {}, mesh.degree(Axis::tp))) {
    TrainerOptions trainer;
    trainer.policy.zero = ranks.zero;
    comm::CommOptions options;
    options.backend = comm::BackendKind::shm;
    options.timeout_seconds = 20;
    const auto groups = trainer_groups(graph, mesh, trainer);
    communicator = std::make_unique<comm::Communicator>(mesh, rank, board, options, groups.axes, groups.subsets);
    StoreOptions store;
    store.policy = trainer.policy;
    store.communicator = communicator.get();
    parameters = std::make_unique<ParameterStore>(graph, mesh, rank, Precision{}, make_large_buffer, std::move(store));
  }

  Mesh mesh;
  GraphSpec graph;
  std::unique_ptr<comm::Communicator> communicator;
  std::unique_ptr<ParameterStore> parameters;
};

// What the folder holds of a parameter, whole and in our orientation.
at::Tensor stored(const ModelOnDisk& disk, const std::string& parameter) {
  const auto name = hugging_face_name(tensor_names(disk.config), parameter, false).value();
  const auto& tensor = disk.tensors.at(name.tensor);
  return name.transposed ? tensor.t() : tensor;
}

// Elements of the parameters that are not what the folder holds, and of padding that is not zero.
std::int64_t wrong_elements(const RankStore& store, const ModelOnDisk& disk) {
  std::int64_t wrong = 0;
  for (const auto& buffer : store.parameters->buffers()) {
    const auto owned = buffer->owned();
    auto rest = buffer->master().values().clone();
    for (const auto& piece : pieces_of(buffer->layout(), owned)) {
      auto box = stored(disk, piece.tensor);
      for (std::size_t d = 0; d < piece.lengths.size(); ++d) {
        box = box.narrow(static_cast<std::int64_t>(d), piece.offsets[d], piece.lengths[d]);
      }
      const auto expected = box.reshape({-1}).narrow(0, piece.span().begin, piece.elements()).to(at::kFloat);
      const auto held = rest.narrow(0, piece.local_offset - owned.begin, piece.elements());
      wrong += held.ne(expected).sum().item<std::int64_t>();
      held.zero_();
    }
    wrong += rest.ne(0).sum().item<std::int64_t>();
  }
  return wrong;
}

std::int64_t bytes_to_read(const PretrainedWeights& weights, const ParameterStore& parameters) {
  std::int64_t bytes = 0;
  for (const auto& buffer : parameters.buffers()) bytes += weights.bytes_to_read(buffer->layout(), buffer->owned());
  return bytes;
}

// Of the tensors that the model uses: those that tp cuts, and those that every rank has whole.
struct FileBytes {
  std::int64_t cut = 0;
  std::int64_t whole = 0;
};
FileBytes file_bytes(const GraphSpec& resolved, const ModelOnDisk& disk) {
  FileBytes bytes;
  for (const auto& unit : resolved.units) {
    for (const auto& parameter : unit.parameters) {
      const auto size = static_cast<std::int64_t>(stored(disk, parameter.name).nbytes());
      (parameter.tp ? bytes.cut : bytes.whole) += size;
    }
  }
  return bytes;
}

TEST(PretrainedRanks, ReadWhatTheyHoldAndNoMore) {
  for (const char* config : {kUnevenLlama, kUnevenGpt2, kUnevenBert}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      ModelOnDisk disk(config);
      for (auto& [name, tensor] : disk.tensors) tensor = tensor.to(type);
      disk.write();
      for (const auto& ranks : kCases) {
        SCOPED_TRACE(std::string(ranks.mesh) + " " + config);
        std::mutex mutex;
        std::int64_t all = 0;
        std::int64_t most = 0;
        FileBytes file;
        comm::run_thread_ranks(Mesh::parse(ranks.mesh).world_size(), [&](int rank, const comm::Store& board) {
          const RankStore store(disk.config, ranks, rank, board);
          const PretrainedWeights weights(store.graph, {{disk.folder, &tensor_names(disk.config)}});
          EXPECT_EQ(weights.bytes_read(), 0);
          weights.load(*store.parameters);
          const std::lock_guard lock(mutex);
          EXPECT_EQ(wrong_elements(store, disk), 0) << "rank " << rank;
          EXPECT_EQ(weights.bytes_read(), bytes_to_read(weights, *store.parameters)) << "rank " << rank;
          all += weights.bytes_read();
          most = std::max(most, weights.bytes_read());
          file = file_bytes(store.graph, disk);
        });
        const auto degree = Mesh::parse(ranks.mesh).degree(Axis::tp);
        if (std::string(ranks.mesh) == "tp=2") {
          EXPECT_EQ(all, file.cut + degree * file.whole);
          EXPECT_LT(static_cast<double>(most),
                    1.05 * static_cast<double>(file.cut) / 2 + static_cast<double>(file.whole));
        } else if (ranks.zero == 3) {  // each element of a shard once, whole parameters once per tp rank
          EXPECT_EQ(all, file.cut + degree * file.whole);
        }
      }
    }
  }
}

TEST(PretrainedRanks, ReadPartsOfACheckpoint) {
  ModelOnDisk disk(kUnevenGpt2);
  disk.write();
  const auto folder = disk.folder.string() + "-imported";
  std::filesystem::remove_all(folder);
  import_hugging_face(disk.folder, folder);
  for (const auto& ranks : kCases) {
    SCOPED_TRACE(ranks.mesh);
    comm::run_thread_ranks(Mesh::parse(ranks.mesh).world_size(), [&](int rank, const comm::Store& board) {
      const RankStore store(disk.config, ranks, rank, board);
      const ControlGroup group(std::shared_ptr<const comm::Communicator>(store.communicator.get(), [](const auto*) {}));
      const PretrainedWeights weights(store.graph, {{folder}}, group);
      weights.load(*store.parameters);
      EXPECT_EQ(wrong_elements(store, disk), 0) << "rank " << rank;
      EXPECT_EQ(weights.bytes_read(), bytes_to_read(weights, *store.parameters)) << "rank " << rank;
    });
  }
  std::filesystem::remove_all(folder);
}

TEST(PretrainedRanks, CompareTheirPartsOfATiedHead) {
  ModelOnDisk disk(kTiedLlama);
  disk.write_unequal_head();
  const auto errors = comm::try_thread_ranks(2, [&](int rank, const comm::Store& board) {
    const RankStore store(disk.config, {"tp=2"}, rank, board);
    const PretrainedWeights weights(store.graph, {{disk.folder, &tensor_names(disk.config)}});
    weights.fill(*store.parameters);
    EXPECT_EQ(rank, 0);
    EXPECT_EQ(weights.bytes_read(), bytes_to_read(weights, *store.parameters));
  });
  EXPECT_EQ(errors[0], nullptr);
  ASSERT_NE(errors[1], nullptr);
  EXPECT_EQ(error_text<DataError>([&] { std::rethrow_exception(errors[1]); }),
            disk.folder.string() +
                ": lm_head.weight differs from model.embed_tokens.weight, to which config.json ties it\n"
                "  fix: set tie_word_embeddings to false in config.json");
}

}  // namespace pretrained_ranks_test
}  // namespace orthant
