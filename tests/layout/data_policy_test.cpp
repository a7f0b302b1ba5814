#include "orthant/layout/data_policy.h"

#include <gtest/gtest.h>

#include "base/error_text.h"

namespace orthant {
namespace data_policy_test {

TEST(DataPolicy, ReadsNumbersAndNamesOfZero) {
  EXPECT_EQ(parse_zero("0"), 0);
  EXPECT_EQ(parse_zero("1"), 1);
  EXPECT_EQ(parse_zero("2"), 2);
  EXPECT_EQ(parse_zero("3"), 3);
  EXPECT_EQ(parse_zero("NO_SHARD"), 0);
  EXPECT_EQ(parse_zero("SHARD_GRAD_OP"), 2);
  EXPECT_EQ(parse_zero("FULL_SHARD"), 3);
}

TEST(DataPolicy, RefusesAnotherZeroWithTheNearestName) {
  const auto text = error_text<ConfigError>([] { parse_zero("FULL_SHART"); });
  EXPECT_NE(text.find("parallel.zero: unknown value \"FULL_SHART\""), std::string::npos) << text;
  EXPECT_NE(text.find("did you mean \"FULL_SHARD\"?"), std::string::npos) << text;
  const auto number = error_text<ConfigError>([] { parse_zero("4"); });
  EXPECT_NE(number.find("parallel.zero: unknown value \"4\""), std::string::npos) << number;
  EXPECT_NE(number.find("0, 1, 2, 3, NO_SHARD, SHARD_GRAD_OP, FULL_SHARD"), std::string::npos) << number;
}

TEST(DataPolicy, ReadsOffloadNamesAndWritesThem) {
  for (const Offload offload : {Offload::none, Offload::optimizer, Offload::params}) {
    EXPECT_EQ(parse_offload(offload_name(offload)), offload);
  }
  EXPECT_EQ(offload_name(Offload::optimizer), "optimizer");
  const auto text = error_text<ConfigError>([] { parse_offload("optimiser"); });
  EXPECT_NE(text.find("parallel.offload: unknown value \"optimiser\""), std::string::npos) << text;
  EXPECT_NE(text.find("did you mean \"optimizer\"?"), std::string::npos) << text;
}

TEST(DataPolicy, WithoutShardsEveryPolicyIsZeroNought) {
  const DataPolicy asked{.zero = 3, .accumulate_sharded = true, .limit_all_gathers = 4};
  const auto found = effective_policy(asked, Mesh::parse("dp=4"));
  EXPECT_EQ(found, (DataPolicy{.zero = 0, .accumulate_sharded = false, .limit_all_gathers = 4}));
  EXPECT_FALSE(found.shards_state());
}

TEST(DataPolicy, WithShardsAPolicyIsWhatWasAsked) {
  for (int zero = 0; zero <= 3; ++zero) {
    const DataPolicy asked{.zero = zero, .accumulate_sharded = zero >= 2};
    const auto found = effective_policy(asked, Mesh::parse("dp=2,fsdp=2"));
    EXPECT_EQ(found, asked);
    EXPECT_EQ(found.shards_state(), zero >= 1);
    EXPECT_EQ(found.shards_gradients(), zero >= 2);
    EXPECT_EQ(found.shards_parameters(), zero >= 3);
  }
}

TEST(DataPolicy, RefusesShardedAccumulationOfWholeGradients) {
  const auto text =
      error_text<ConfigError>([] { effective_policy({.zero = 1, .accumulate_sharded = true}, Mesh::parse("fsdp=2")); });
  EXPECT_NE(text.find("parallel.accumulate is sharded with parallel.zero 1: gradients have no shards there"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("set parallel.zero=2 or 3, or parallel.accumulate=full"), std::string::npos) << text;
}

TEST(DataPolicy, ReplicasAreDpAndUncutFsdpOfDegreesAboveOne) {
  const auto axes = [](int zero, const char* mesh) { return copy_axes({.zero = zero}, Mesh::parse(mesh)).name(); };
  EXPECT_EQ(axes(0, "dp=2,fsdp=2"), "dp+fsdp");
  EXPECT_EQ(axes(0, "fsdp=2"), "fsdp");
  EXPECT_EQ(axes(0, "dp=4"), "dp");
  EXPECT_EQ(axes(0, "dp=1"), "none");
  for (int zero = 1; zero <= 3; ++zero) {
    EXPECT_EQ(axes(zero, "dp=2,fsdp=2"), "dp");
    EXPECT_EQ(axes(zero, "fsdp=2"), "none");
  }
}

TEST(DataPolicy, ShardsOfDpAreAnFsdpAxisInItsPlace) {
  EXPECT_EQ(with_shards_of_dp(Mesh::parse("pp=2,dp=4,tp=2")).to_string(), "pp=2,fsdp=4,tp=2");
  EXPECT_EQ(with_shards_of_dp(Mesh::parse("dp=2,fsdp=2")).to_string(), "dp=2,fsdp=2");
  EXPECT_EQ(with_shards_of_dp(Mesh::parse("pp=2")).to_string(), "pp=2");
  for (const char* order : {"", "pp,tp,dp", "dp,pp,tp", "fsdp,pp,tp,dp", "tp,dp,pp,fsdp"}) {
    SCOPED_TRACE(order);
    const auto before = Mesh::parse("pp=2,dp=3,tp=2", order);
    const auto after = with_shards_of_dp(before);
    EXPECT_EQ(after.degree(Axis::dp), 1);
    EXPECT_EQ(after.groups(Axis::fsdp), before.groups(Axis::dp));
    EXPECT_EQ(after.groups(Axis::pp), before.groups(Axis::pp));
    EXPECT_EQ(after.groups(Axis::tp), before.groups(Axis::tp));
    for (int rank = 0; rank < before.world_size(); ++rank) {
      EXPECT_EQ(after.coordinate(rank)[Axis::fsdp], before.coordinate(rank)[Axis::dp]);
    }
  }
}

TEST(DataPolicy, ShardsSpanFsdpAndCpAsOneAxisOfParameters) {
  const Mesh mesh = Mesh::parse("pp=2,dp=2,fsdp=3,cp=2,tp=2");
  const DataPolicy spans{.zero = 3}, apart{.zero = 3, .shard_over_context = false};
  const Mesh found = parameter_mesh(mesh, spans);
  EXPECT_EQ(found, Mesh::parse("pp=2,dp=2,fsdp=6,tp=2"));
  EXPECT_EQ(parameter_mesh(mesh, apart), mesh);
  EXPECT_EQ(shard_axes(spans, mesh), (AxisSet{Axis::fsdp, Axis::cp}));
  EXPECT_EQ(copy_axes(spans, mesh), AxisSet{Axis::dp});
  EXPECT_EQ(copy_axes(apart, mesh), (AxisSet{Axis::dp, Axis::cp}));
  EXPECT_EQ(copy_axes({.zero = 0}, mesh), (AxisSet{Axis::dp, Axis::fsdp, Axis::cp}));
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    EXPECT_EQ(found.group_of(rank, Axis::fsdp), mesh.group_of(rank, shard_axes(spans, mesh)));
    EXPECT_EQ(found.coordinate(rank)[Axis::fsdp], mesh.index_in_group(rank, shard_axes(spans, mesh)));
  }
}

TEST(DataPolicy, ParametersAreWholeOverCpWithoutAnFsdpAxis) {
  const Mesh mesh = Mesh::parse("dp=2,cp=4");
  EXPECT_EQ(parameter_mesh(mesh, {.zero = 3}), mesh);
  EXPECT_EQ(copy_axes(effective_policy({.zero = 3}, mesh), mesh), (AxisSet{Axis::dp, Axis::cp}));
}

TEST(DataPolicy, RefusesShardsOverAxesWithAnotherBetweenThem) {
  const Mesh mesh = Mesh::parse("dp=2,fsdp=2,cp=2", "pp,fsdp,dp,cp,tp");
  const auto text = error_text<ConfigError>([&] { parameter_mesh(mesh, {.zero = 3}); });
  EXPECT_NE(text.find("shards span fsdp and cp, and another axis lies between them in the order pp,fsdp,dp,cp,tp"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("parallel.shard_over_context=false"), std::string::npos) << text;
  EXPECT_EQ(parameter_mesh(mesh, {.zero = 3, .shard_over_context = false}), mesh);
  EXPECT_NO_THROW(parameter_mesh(Mesh::parse("fsdp=2,cp=2", "pp,fsdp,dp,cp,tp"), {.zero = 3}));
  EXPECT_NO_THROW(parameter_mesh(Mesh::parse("fsdp=2,cp=2,tp=2", "pp,dp,cp,fsdp,tp"), {.zero = 3}));
}

}  // namespace data_policy_test
}  // namespace orthant
