// Every rank adds its number over all ranks. Start it with: orthant launch --nproc 4 -- ./all_reduce
#include <ATen/ATen.h>
#include <orthant/orthant.h>

#include <iostream>

int main() {
  const auto job = orthant::join();
  const orthant::Mesh mesh(orthant::Degrees{{orthant::Axis::dp, job.world_size}});
  const auto communicator = orthant::comm::make_communicator(mesh, job, {});
  auto sum = at::full({1}, job.rank, at::kLong);
  communicator->world().all_reduce(sum).wait();
  communicator->close();
  std::cout << "rank " << job.rank << " of " << job.world_size << ": sum " << sum.item<int64_t>() << std::endl;
}
