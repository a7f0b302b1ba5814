#include "orthant/launch/device_variables.h"

#include <gtest/gtest.h>

#include "launch/message_of.h"
#include "orthant/base/error.h"
#include "orthant/launch/local_ranks.h"

namespace orthant::launch {
namespace device_variables_test {

TEST(DeviceVariables, UnderWhichRanksWouldWaitForEverAreRefused) {
  EXPECT_NO_THROW(check_device_variables({}, true, 0));
  EXPECT_NO_THROW(
      check_device_variables({{"CUDA_LAUNCH_BLOCKING", "0"}, {"CUDA_DEVICE_MAX_CONNECTIONS", "32"}}, true, 0));
  EXPECT_EQ(message_of<ConfigError>([] { check_device_variables({{"CUDA_LAUNCH_BLOCKING", "1"}}, false, 0); }),
            "rank 0: CUDA_LAUNCH_BLOCKING=1 over NCCL: every rank would wait inside the receives that it starts early\n"
            "  fix: unset CUDA_LAUNCH_BLOCKING, or use --backend gloo");
}

TEST(DeviceVariables, QueuesThatReceivesAndSendsShareAreRefusedWhereThereAreMessages) {
  const Environment one{{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}};
  EXPECT_NO_THROW(check_device_variables(one, /*sends_messages=*/false, 0));
  EXPECT_EQ(message_of<ConfigError>([&] { check_device_variables(one, /*sends_messages=*/true, 0); }),
            "rank 0: CUDA_DEVICE_MAX_CONNECTIONS=1 over NCCL with messages between ranks: streams share queues of the "
            "device, "
            "where a receive that is started early holds up the send that its peer waits for\n"
            "  fix: unset CUDA_DEVICE_MAX_CONNECTIONS (ranks set 32), or use --backend gloo");
}

TEST(DeviceVariables, GiveEachStreamOfARankAQueueUnlessTheUserHasSetThem) {
  EXPECT_EQ(rank_environment({}, {}, /*num_ranks=*/2, /*local_rank=*/1).at(kQueuesVariable), "32");
  EXPECT_EQ(rank_environment({{kQueuesVariable, "9"}}, {}, 2, 1).at(kQueuesVariable), "9");
}

}  // namespace device_variables_test
}  // namespace orthant::launch
