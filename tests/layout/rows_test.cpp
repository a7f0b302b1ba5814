#include "orthant/layout/rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "mesh/thrown_error.h"
#include "orthant/base/error.h"

namespace orthant {
namespace rows_test {

using test::thrown_text;

TEST(ReplicaRows, FullBatchesHaveNoPadding) {
  EXPECT_EQ(replica_rows(12, {.replicas = 2, .replica = 1, .microbatches = 3}),
            (ReplicaRows{.real = {6, 12}, .microbatch_rows = 2, .padded_rows = 6, .padding_row = 11}));
}

TEST(ReplicaRows, SmallerBatchesKeepTheShapeAndEndInCopiesOfTheLastRow) {
  // Rows 0 to 2 of 5 go to replica 0, rows 3 and 4 to replica 1.
  EXPECT_EQ(replica_rows(5, {.replicas = 2, .replica = 0, .microbatches = 2, .microbatch_rows = 2}),
            (ReplicaRows{.real = {0, 3}, .microbatch_rows = 2, .padded_rows = 4, .padding_row = 2}));
  EXPECT_EQ(replica_rows(5, {.replicas = 2, .replica = 1, .microbatches = 2, .microbatch_rows = 2}),
            (ReplicaRows{.real = {3, 5}, .microbatch_rows = 2, .padded_rows = 4, .padding_row = 4}));
}

TEST(ReplicaRows, UnsetMicrobatchRowsAreAsFewAsHoldTheReplicasRows) {
  EXPECT_EQ(replica_rows(7, {.microbatches = 3}).microbatch_rows, 3);
  EXPECT_EQ(replica_rows(6, {.microbatches = 3}).microbatch_rows, 2);
  EXPECT_EQ(replica_rows(1, {.microbatches = 3}).microbatch_rows, 1);
}

TEST(ReplicaRows, ReplicasWithoutRowsCopyTheLastRowBeforeThem) {
  // Rows 0 and 1 of 2 go to replicas 0 and 2 of 4.
  EXPECT_EQ(replica_rows(2, {.replicas = 4, .replica = 1, .microbatches = 2}),
            (ReplicaRows{.real = {1, 1}, .microbatch_rows = 1, .padded_rows = 2, .padding_row = 0}));
  EXPECT_EQ(replica_rows(2, {.replicas = 4, .replica = 3, .microbatches = 2, .microbatch_rows = 3}),
            (ReplicaRows{.real = {2, 2}, .microbatch_rows = 3, .padded_rows = 6, .padding_row = 1}));
}

// Cuts a replica's padded rows into microbatches and counts in `held` how often each global row is real in them.
void count_rows(std::int64_t batch, const RowShare& share, std::vector<int>& held) {
  const ReplicaRows rows = replica_rows(batch, share);
  ASSERT_GE(rows.microbatch_rows, 1);
  ASSERT_EQ(rows.padded_rows, rows.microbatch_rows * share.microbatches);
  ASSERT_LE(rows.real.size(), rows.padded_rows);
  ASSERT_GE(rows.padding_row, 0);
  ASSERT_LT(rows.padding_row, batch);
  if (share.microbatch_rows > 0) {
    ASSERT_EQ(rows.microbatch_rows, share.microbatch_rows);
  } else if (rows.microbatch_rows > 1) {
    ASSERT_GT(rows.real.size(), (rows.microbatch_rows - 1) * share.microbatches) << "fewer rows would do";
  }
  for (std::int64_t m = 0; m < share.microbatches; ++m) {
    const std::int64_t first_row = rows.real.begin + m * rows.microbatch_rows;
    for (std::int64_t i = 0; i < rows.microbatch_rows && first_row + i < rows.real.end; ++i) {
      ASSERT_EQ((first_row + i) * share.replicas / batch, share.replica);
      ++held.at(static_cast<std::size_t>(first_row + i));
    }
  }
}

TEST(ReplicaRows, EveryRowIsRealInOneMicrobatchOfItsReplicaAtFirstRowPlusI) {
  for (std::int64_t replicas = 1; replicas <= 7; ++replicas) {
    for (std::int64_t microbatches = 1; microbatches <= 5; ++microbatches) {
      for (std::int64_t size = 0; size <= 4; ++size) {
        const std::int64_t largest = replicas * microbatches * (size > 0 ? size : 3);
        for (std::int64_t batch = 1; batch <= largest; ++batch) {
          std::vector<int> held(static_cast<std::size_t>(batch));
          for (std::int64_t replica = 0; replica < replicas; ++replica) {
            SCOPED_TRACE(fmt::format("batch {}, replica {} of {}, {} microbatches of {}", batch, replica, replicas,
                                     microbatches, size));
            ASSERT_NO_FATAL_FAILURE(count_rows(batch, {replicas, replica, microbatches, size}, held));
          }
          ASSERT_EQ(held, std::vector<int>(static_cast<std::size_t>(batch), 1))
              << fmt::format("batch {}, {} replicas, {} microbatches of {}", batch, replicas, microbatches, size);
        }
      }
    }
  }
}

TEST(ReplicaRows, RefuseMoreRowsThanFitOnEveryReplica) {
  // Replica 2 has 3 of 10 rows, which would fit.
  for (const std::int64_t replica : {0, 1, 2}) {
    EXPECT_EQ(thrown_text([&] {
                replica_rows(10, {.replicas = 3, .replica = replica, .microbatches = 3, .microbatch_rows = 1});
              }),
              "a global batch of 10 over 3 replicas is up to 4 rows a replica, but 3 microbatches of 1 rows hold 3\n"
              "set microbatch_rows to 2");
  }
}

TEST(ReplicaRows, RefuseSharesThatCannotBe) {
  EXPECT_EQ(thrown_text<InternalError>([] { replica_rows(0, {.replicas = 2, .microbatches = 3}); }),
            "no rows for replica 0 of 2: a batch of 0 in 3 microbatches of 0\n");
  EXPECT_THROW(replica_rows(4, {.replicas = 2, .replica = 2}), InternalError);
  EXPECT_THROW(replica_rows(4, {.replica = -1}), InternalError);
  EXPECT_THROW(replica_rows(4, {.microbatches = 0}), InternalError);
  EXPECT_THROW(replica_rows(4, {.microbatch_rows = -1}), InternalError);
}

TEST(Replicas, CountOverDpThenFsdpWhateverTheOrder) {
  const Mesh mesh = Mesh::parse("pp=2,dp=2,fsdp=3,cp=2,tp=2", "tp,fsdp,dp,pp,cp");
  EXPECT_EQ(num_replicas(mesh), 6);
  Coordinate at;
  at[Axis::dp] = 1;
  at[Axis::fsdp] = 2;
  at[Axis::tp] = 1;
  at[Axis::cp] = 1;
  EXPECT_EQ(replica_index(mesh, at), 5);
  at[Axis::fsdp] = 0;
  EXPECT_EQ(replica_index(mesh, at), 3);
}

}  // namespace rows_test
}  // namespace orthant
