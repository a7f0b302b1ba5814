#include "orthant/launch/shared_devices.h"

#include <gtest/gtest.h>

#include "orthant/launch/local_ranks.h"

namespace orthant::launch {
namespace shared_devices_test {

TEST(SharedDevices, EachRankHasAnIdentityAndAPartOfTheMemory) {
  Environment environment;
  share_devices(environment, /*rank=*/3, /*num_nodes=*/1, /*ranks_per_device=*/4);
  const Environment expected = {{"NCCL_HOSTID", "orthant-rank-3"},
                                {"NCCL_IB_DISABLE", "1"},
                                {"NCCL_SOCKET_IFNAME", "lo"},
                                {"PYTORCH_CUDA_ALLOC_CONF", "per_process_memory_fraction:0.2250"}};
  EXPECT_EQ(environment, expected);
  share_devices(environment, 3, 1, 4);  // a rank that the launcher has set up
  EXPECT_EQ(environment, expected);
}

TEST(SharedDevices, WhatTheUserHasSetStays) {
  Environment environment = {
      {"NCCL_HOSTID", "mine"}, {"NCCL_SOCKET_IFNAME", "eth0"}, {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}};
  share_devices(environment, 0, 1, 2);
  EXPECT_EQ(environment.at("NCCL_HOSTID"), "mine");
  EXPECT_EQ(environment.at("NCCL_SOCKET_IFNAME"), "eth0");
  EXPECT_EQ(environment.at("PYTORCH_CUDA_ALLOC_CONF"), "expandable_segments:True,per_process_memory_fraction:0.4500");
}

TEST(SharedDevices, RanksOfSeveralHostsDoNotTalkOverLoopback) {
  Environment environment;
  share_devices(environment, 0, /*num_nodes=*/2, 2);
  EXPECT_FALSE(environment.contains("NCCL_SOCKET_IFNAME"));
}

TEST(SharedDevices, OneRankPerDeviceNeedsNothing) {
  Environment environment;
  share_devices(environment, 0, 1, 1);
  EXPECT_TRUE(environment.empty());
  EXPECT_EQ(shared_devices_text(1), "");
}

TEST(SharedDevices, TheLauncherSetsThemByGlobalRank) {
  const auto environment = rank_environment({}, {.rank_offset = 4, .num_nodes = 2, .ranks_per_device = 2},
                                            /*num_ranks=*/4, /*local_rank=*/1);
  EXPECT_EQ(environment.at("NCCL_HOSTID"), "orthant-rank-5");
  EXPECT_EQ(
      shared_devices_text(2),
      "2 ranks share a GPU: each has an NCCL_HOSTID of its own and 45% of the device's memory; what they exchange "
      "goes through sockets");
}

}  // namespace shared_devices_test
}  // namespace orthant::launch
