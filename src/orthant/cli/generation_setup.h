// How commands that generate text name their model, its numbers and its cache, and what each of their ranks makes of
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "orthant/checkpoint/stored_model.h"
#include "orthant/cli/rank_command.h"
#include "orthant/comm/control_group.h"
#include "orthant/generate/generation_options.h"

namespace orthant::cli {

class OptionParser;

struct GenerationSetup {
  std::string model;
  std::string config;
  std::string dtype = "float32";
  std::int64_t cache_tokens = 0;
  std::int64_t max_batch = 64;
  std::int64_t prefill_chunk = 0;  // 0: as the device likes it
};

void add_generation_options(OptionParser& app, GenerationSetup& setup);

// What can be refused before ranks are started: ConfigError, DataError. Refuses a dry run, too.
void check_generation_setup(const GenerationSetup& setup, const RankOptions& ranks);

// On a rank: the model that is found and the ranks that are connected. Collective over the mesh.
class GenerationRank {
 public:
  GenerationRank(const GenerationSetup& setup, RankContext& rank);

  const StoredModel& model() const { return model_; }
  const GenerationOptions& options() const { return options_; }
  const ControlGroup& ranks() const { return ranks_; }
  void close();

 private:
  std::shared_ptr<comm::Communicator> communicator_;  // null on one rank
  ControlGroup ranks_;
  StoredModel model_;
  GenerationOptions options_;
};

}  // namespace orthant::cli
