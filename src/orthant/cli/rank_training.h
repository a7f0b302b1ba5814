// What a rank needs before it can train by a configuration: the other ranks. Joins the job's store once; every training
// of the command (parity has two) then has a communicator of its own over the first ranks of the job.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/cli/rank_command.h"
#include "orthant/train/run_config.h"

namespace orthant::cli {

class RankTraining {
 public:
  // Blocks until connected.
  explicit RankTraining(const RankContext& rank);

  // Whether this rank takes part in a training on that mesh: the first ranks of the job do.
  bool takes_part(const Mesh& mesh) const { return rank_.job.rank < mesh.world_size(); }

  // What every rank brings along, by rank; what this one brings alone when the job has one rank. Collective over the
  // ranks of the mesh.
  std::vector<std::string> gather_texts(const Mesh& mesh, const std::string& name, const std::string& text) const;
  // Before a rank throws what all throw because of these texts: until all have read them.
  void await_readers_of(const Mesh& mesh, const std::string& name) const;

  // Puts device and communicator into the configuration. `resolved` is its text: when ranks have different ones, all of
  // them throw a ConfigError that names the first key that differs. `name` tells trainings of one command apart.
  // `wrap` goes around its transports. Collective over the ranks that take part.
  void prepare(RunConfig& config, const std::string& resolved, const std::string& name,
               const comm::WrapTransport& wrap = {});

 private:
  const RankContext& rank_;
  std::optional<comm::Store> store_;
};

// ConfigError for a device or backend that ranks of this run cannot have here, and for settings that the device does
// not have, before a rank is started.
void check_backend(const RankOptions& ranks, const Context& context, const RunConfig& config);

// ConfigError for a backend that moves nothing, where the numbers matter.
void refuse_fake_backend(const RankOptions& ranks, const Mesh& mesh);

// The exit code of a rank that need not say an error, since another rank does; nothing where this one must.
std::optional<int> said_elsewhere(const RankContext& rank, const Error& error);

// What two resolved configurations first disagree in: "optimizer.lr is 0.001 on rank 0 and 0.002 on rank 3"; empty when
// they agree.
std::string first_difference(const std::string& first, const std::string& other, int other_rank);

}  // namespace orthant::cli
