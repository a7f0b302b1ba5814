// A rank that makes one call unlike the others', under checks: mismatch_program KIND ODD_RANK. For system tests between
// processes.
#include <ATen/ATen.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "orthant/orthant.h"

int main(int argc, char** argv) {
  const std::string kind = argc > 2 ? argv[1] : "";
  const int odd_rank = argc > 2 ? std::atoi(argv[2]) : -1;
  try {
    const auto job = orthant::join();
    const orthant::Mesh mesh(orthant::Degrees{{orthant::Axis::dp, job.world_size}});
    orthant::comm::CommOptions options;
    options.check = true;
    options.timeout_seconds = 60;
    const auto communicator = orthant::comm::make_communicator(mesh, job, options);
    auto world = communicator->world();
    for (int i = 0; i < 6; ++i) {
      const bool odd = i == 3 && job.rank == odd_rank;
      if (odd && kind == "exit") _exit(0);
      if (odd && kind == "missing") continue;
      if (odd && kind == "operation") world.broadcast(at::ones({64}), 0).wait();
      const auto dtype = odd && kind == "dtype" ? at::kDouble : at::kFloat;
      world.all_reduce(at::ones({odd && kind == "shape" ? 65 : 64}, dtype)).wait();
    }
    communicator->close();
  } catch (const orthant::Error& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(error.exit_code());
  }
}
