// The keys of the section `parallel` that speak of data parallelism.
#pragma once

#include "orthant/base/json_reader.h"
#include "orthant/train/trainer.h"

namespace orthant {

// Whether `parallel` gives a `zero` of 1 to 3, which shards over dp on a mesh without fsdp (with_shards_of_dp). A
// default does not: dp ranks are replicas then.
bool shards_over_dp(JsonReader section, const Mesh& mesh);

// zero, accumulate, units, bucket_mb, limit_all_gathers, keep_gathered, offload, comm_hook. A setting of an axis of
// degree 1 is checked and has no effect. ConfigError.
void read_data_parallel(JsonReader& section, const Mesh& mesh, TrainerOptions& trainer);

}  // namespace orthant
