// What processes on NCCL have besides operations: each runs these tests, as those of group_operations_test.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "comm/ranks.h"
#include "orthant/base/error.h"

namespace orthant::comm {
namespace nccl_ranks_test {

using test::like;

TEST(NcclRanks, AreToldOfACallThatOneOfThemMakesUnlikeTheOthers) {
  const auto& job = test::job_of_process();
  const bool odd = job.rank == job.world_size - 1;
  const Mesh mesh(Degrees{{Axis::dp, job.world_size}});
  Communicator communicator(mesh, job.rank, test::kSharedCommunicators->store_of("mismatch"),
                            test::quick(/*check=*/true, BackendKind::nccl));
  auto world = communicator.world();
  world.all_reduce(at::ones({64}, like(at::kFloat))).wait();
  const auto began = std::chrono::steady_clock::now();
  try {
    world.all_reduce(at::ones({odd ? 65 : 64}, like(at::kFloat))).wait();
    FAIL() << "nobody was told";
  } catch (const CommError& error) {
    EXPECT_NE(error.message().find("do not match"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("nccl_ranks_test.cpp"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("rank " + std::to_string(job.world_size - 1)), std::string::npos) << error.message();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(4));
}

// A message that waits holds up neither collectives nor messages the other way. Kernels have run once before it: Note
// [Starting kernels] in comm/nccl.cpp.
TEST(NcclRanks, HaveReceivesThatHoldNothingUp) {
  auto& communicator = test::kSharedCommunicators->get(Mesh(Degrees{{Axis::dp, test::job_of_process().world_size}}),
                                                       test::quick(/*check=*/false, BackendKind::nccl));
  auto world = communicator.world();
  world.connect({{0, 1}, {1, 0}});
  const auto received = at::zeros({5}, like(at::kFloat)), sent = at::full({5}, 7 + world.index(), like(at::kFloat));
  const auto sum = [&] {
    const auto tensor = at::ones({3}, like(at::kFloat));
    world.all_reduce(tensor).wait();
    return tensor.eq(world.size()).all().item<bool>();
  };
  EXPECT_TRUE(sum());
  const bool sends = world.index() < 2;
  Work arriving;
  if (sends) arriving = world.receive(received, 1 - world.index());
  EXPECT_TRUE(sum());
  if (!sends) return;
  world.send(sent, 1 - world.index()).wait();
  arriving.wait();
  EXPECT_TRUE(received.eq(8 - world.index()).all().item<bool>());
}

}  // namespace nccl_ranks_test
}  // namespace orthant::comm
