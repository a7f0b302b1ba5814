// Trainers of a test's own graph on the ranks of a mesh, as threads of the test process.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "orthant/checkpoint/reader.h"
#include "orthant/comm/thread_ranks.h"
#include "orthant/runtime/module_graph.h"
#include "orthant/train/trainer.h"
#include "orthant/train/whole_tensors.h"

namespace orthant::test {

// Shared memory: its sums over ranks are made in rank order, those of Gloo are not.
inline comm::CommOptions quick_comm() {
  comm::CommOptions options;
  options.backend = comm::BackendKind::shm;
  options.timeout_seconds = 20;
  return options;
}

using TrainerBody = std::function<void(Trainer&)>;

// The trainer of this rank, by `make`; `communicator` is null on one rank.
using MakeTrainer = std::function<std::unique_ptr<Trainer>(std::shared_ptr<const comm::Communicator> communicator)>;

inline void with_trainers(const Mesh& mesh, const RankGroups& groups, const comm::CommOptions& comm,
                          const MakeTrainer& make, const TrainerBody& body) {
  if (mesh.world_size() == 1) {
    body(*make(nullptr));
    return;
  }
  comm::run_thread_ranks(mesh.world_size(), [&](int rank, comm::Store store) {
    const auto communicator =
        std::make_shared<comm::Communicator>(mesh, rank, store, comm, groups.axes, groups.subsets);
    body(*make(communicator));
    communicator->close();  // tells of a call that nobody waited for
  });
}

// Of a spec and its units.
inline void on_trainers(const GraphSpec& graph, const MakeUnits& make_units, const Mesh& mesh,
                        const TrainerOptions& options, const TrainerBody& body,
                        const comm::CommOptions& comm = quick_comm()) {
  const auto make = [&](std::shared_ptr<const comm::Communicator> communicator) {
    auto own = options;
    own.communicator = std::move(communicator);
    return std::make_unique<Trainer>(graph, make_units, mesh, own);
  };
  with_trainers(mesh, trainer_groups(graph, mesh, options), comm, make, body);
}

// Of a user's modules; each rank makes its own.
inline void on_module_trainers(const std::function<Graph()>& make_graph, const Mesh& mesh,
                               const TrainerOptions& options, const TrainerBody& body,
                               const comm::CommOptions& comm = quick_comm()) {
  std::mutex making;  // modules draw their first values from one generator
  const auto make = [&](std::shared_ptr<const comm::Communicator> communicator) {
    auto own = options;
    own.communicator = std::move(communicator);
    const auto graph = [&] {
      const std::lock_guard lock(making);
      return make_graph();
    }();
    return std::make_unique<Trainer>(graph, mesh, own);
  };
  with_trainers(mesh, trainer_groups(GraphSpec(), mesh, options), comm, make, body);
}

// What a training came to.
struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::uint64_t hash = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Every rank gets the same global batch. Collective.
inline Outcome train_steps(Trainer& trainer, const Batch& batch, int steps) {
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    const auto numbers = trainer.step(trainer.own_rows(batch)).get();
    outcome.losses.push_back(numbers.loss);
    outcome.norms.push_back(numbers.grad_norm);
  }
  outcome.hash = trainer.weights_hash();
  return outcome;
}

// Whole parameters and optimizer state by the names of a checkpoint. Collective.
inline std::map<std::string, at::Tensor> whole_state(const Trainer& trainer) {
  auto weights = whole_weights(trainer);
  EXPECT_TRUE(weights.copies_equal);
  auto all = std::move(weights.tensors);
  const auto& optimizer = trainer.optimizer();
  for (std::size_t s = 0; s < optimizer.state_names().size(); ++s) {
    const auto states = whole_tensors(trainer, Covered::trainable, trainer.options().precision.params,
                                      [&](std::size_t b) { return optimizer.state(s, b); });
    EXPECT_TRUE(states.copies_equal);
    for (const auto& [name, tensor] : states.tensors) {
      all[std::string(kOptimizerPrefix) + optimizer.state_names()[s] + "." + name] = tensor;
    }
  }
  return all;
}

inline std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  out.precision(17);
  for (std::size_t i = 0; i < outcome.losses.size(); ++i) {
    out << "loss " << outcome.losses[i] << " norm " << outcome.norms[i] << "; ";
  }
  return out << "hash " << outcome.hash;
}

}  // namespace orthant::test
