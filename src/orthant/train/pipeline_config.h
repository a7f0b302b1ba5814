// The keys of the section `parallel` that speak of the pipeline, and what an automatic cut must know of a rank's
// memory.
#pragma once

#include "orthant/base/json_reader.h"
#include "orthant/graph/spec.h"
#include "orthant/models/model_config.h"
#include "orthant/parallel/data/precision.h"
#include "orthant/schedule/pipeline.h"

namespace orthant {

// schedule, virtual_stages, split, placement, split_costs, split_memory_gb. What only the model and the mesh can tell
// is left to make_pipeline(). Reads the file of split_costs. ConfigError.
PipelineSettings read_pipeline(JsonReader& section, const ModelConfig& model);

// What each unit needs of the bytes that split_memory_gb allows a rank: its state, tied parameters counted with every
// unit that uses them and nothing divided over fsdp, and its activations. Nothing when there is no bound. `graph` is
// resolved over tp; `optimizer_copies` are moments of the size of the parameters.
void set_memory_bound(PipelineSettings& settings, const GraphSpec& graph, const Precision& precision,
                      int optimizer_copies, Recompute recompute);

}  // namespace orthant
