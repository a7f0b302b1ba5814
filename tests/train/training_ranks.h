// Small trainings by a configuration on the ranks of a mesh, as threads of the test process.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "orthant/comm/thread_ranks.h"
#include "orthant/train/run.h"
#include "orthant/train/run_config.h"

namespace orthant {

// A mesh, and what its fsdp axis shards.
struct MeshCase {
  const char* mesh;
  int zero = 0;
};

inline const std::vector<MeshCase> kMeshes = {{"dp=1", 0},        {"dp=2", 0},   {"fsdp=2", 1}, {"fsdp=3", 3},
                                              {"dp=2,fsdp=2", 2}, {"fsdp=4", 3}, {"tp=2", 0},   {"tp=2,fsdp=2", 3}};

inline std::string case_name(const MeshCase& mesh) {
  return std::string(mesh.mesh) + " zero " + std::to_string(mesh.zero);
}

// In float64. `file` may be empty: the default configuration.
inline RunConfig small_config(const std::string& file, const std::vector<std::string>& settings, const MeshCase& mesh) {
  auto overrides = settings;
  for (const char* part : {"params", "compute", "reduce"}) {
    overrides.push_back("precision." + std::string(part) + "=float64");
  }
  overrides.push_back("parallel.zero=" + std::to_string(mesh.zero));
  const auto degrees = Mesh::parse(mesh.mesh);
  for (const auto axis : {Axis::dp, Axis::fsdp, Axis::cp, Axis::tp, Axis::ep}) {
    overrides.push_back("mesh." + std::string(axis_name(axis)) + "=" + std::to_string(degrees.degree(axis)));
  }
  return read_run_config(load_run_document(file, overrides));
}

inline RunConfig tiny_llama(const MeshCase& mesh) {
  return small_config(
      ORTHANT_SOURCE_DIR "/configs/llama_tiny.json",
      {"model.num_hidden_layers=2", "model.hidden_size=16", "model.intermediate_size=20", "model.num_attention_heads=2",
       "model.num_key_value_heads=1", "model.vocab_size=53", "data.sequence_length=8", "data.samples=48",
       "data.eval_fraction=0.25", "train.global_batch_size=12", "train.steps=20", "lr_schedule.warmup_steps=3"},
      mesh);
}

// The configuration of every rank has its communicator. Gloo's threads take most of the time of a small model.
inline std::vector<std::exception_ptr> try_on_ranks(const RunConfig& config,
                                                    const std::function<void(const RunConfig&)>& body,
                                                    comm::BackendKind backend = comm::BackendKind::shm,
                                                    const comm::WrapTransport& wrap = {}) {
  if (config.mesh.world_size() == 1) {
    body(config);
    return {nullptr};
  }
  return comm::try_thread_ranks(config.mesh.world_size(), [&](int rank, comm::Store store) {
    auto mine = config;
    comm::CommOptions options;
    options.backend = backend;
    options.wrap = wrap;
    options.timeout_seconds = 20;
    const auto groups = trainer_groups(run_spec(config), config.mesh, config.trainer);
    mine.trainer.communicator =
        std::make_shared<comm::Communicator>(config.mesh, rank, store, options, groups.axes, groups.subsets);
    body(mine);
  });
}

inline void on_ranks(const RunConfig& config, const std::function<void(const RunConfig&)>& body,
                     comm::BackendKind backend = comm::BackendKind::shm, const comm::WrapTransport& wrap = {}) {
  const auto errors = try_on_ranks(config, body, backend, wrap);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    try {
      if (errors[rank]) std::rethrow_exception(errors[rank]);
    } catch (const std::exception& error) {
      ADD_FAILURE() << config.mesh.to_string() << " rank " << rank << ": " << error.what();
    }
  }
}

inline int rank_of(const RunConfig& config) {
  return config.trainer.communicator ? config.trainer.communicator->rank() : 0;
}

// What a group's counters of one operation grew by.
inline void expect_calls(std::int64_t calls, std::int64_t bytes, const comm::Counters& before,
                         const comm::Counters& after, comm::Op op) {
  EXPECT_EQ(after.of(op).calls - before.of(op).calls, calls) << comm::name_of(op);
  EXPECT_EQ(after.of(op).bytes - before.of(op).bytes, bytes) << comm::name_of(op);
}

// Goes away with the object.
struct TestFolder {
  explicit TestFolder(const std::string& name)
      : path(std::filesystem::path(testing::TempDir()) / (name + "-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~TestFolder() { std::filesystem::remove_all(path); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::filesystem::path path;
};

}  // namespace orthant
