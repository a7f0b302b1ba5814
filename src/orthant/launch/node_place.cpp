#include "orthant/launch/node_place.h"

namespace orthant::launch {

ProgramJob job_at(const Place& place, const NodeOptions& options, std::vector<Fd>& store_connections) {
  ProgramJob job;
  job.rank_offset = place.rank_offset;
  job.world_size = place.world_size;
  job.node_rank = options.node_rank;
  job.num_nodes = place.num_nodes;
  job.node_index = place.node_index;
  job.master_address = place.master_address;
  job.master_port = place.master_port;
  for (auto& connection : store_connections) job.store_connections.push_back(connection.release());
  store_connections.clear();
  job.run_id = options.run_id;
  job.job_name = place.job;
  job.restart_count = place.attempt;
  job.max_restarts = options.max_restarts;
  return job;
}

}  // namespace orthant::launch
