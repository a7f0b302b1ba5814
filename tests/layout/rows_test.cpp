#include "orthant/layout/rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mesh/thrown_error.h"
#include "orthant/base/error.h"

namespace orthant {
namespace {

using test::thrown_text;

TEST(MicrobatchRows, FullBatchesHaveNoPadding) {
  EXPECT_EQ(microbatch_rows(12, 2, 1, 3, 2), (std::vector<MicrobatchRows>{{6, 2, 2, 7}, {8, 2, 2, 9}, {10, 2, 2, 11}}));
}

TEST(MicrobatchRows, SmallerBatchesAreFilledWithCopies) {
  // Rows 0 to 2 of 5 go to replica 0, rows 3 and 4 to replica 1.
  EXPECT_EQ(microbatch_rows(5, 2, 0, 2, 2), (std::vector<MicrobatchRows>{{0, 1, 2, 0}, {1, 2, 2, 2}}));
  EXPECT_EQ(microbatch_rows(5, 2, 1, 2, 2), (std::vector<MicrobatchRows>{{3, 1, 2, 3}, {4, 1, 2, 4}}));
  const MicrobatchRows rows = microbatch_rows(5, 2, 1, 2, 2)[0];
  EXPECT_EQ(rows.row(0), 3);
  EXPECT_EQ(rows.row(1), 3);
}

TEST(MicrobatchRows, ReplicasWithoutRowsCopyARealOne) {
  for (const MicrobatchRows& rows : microbatch_rows(1, 4, 3, 2, 3)) {
    EXPECT_EQ(rows.real_rows, 0);
    EXPECT_EQ(rows.rows, 3);
    EXPECT_EQ(rows.row(2), 0);
  }
}

TEST(MicrobatchRows, EveryRowIsRealOnceAndAtItsReplica) {
  for (int replicas = 1; replicas <= 7; ++replicas) {
    for (int microbatches = 1; microbatches <= 5; ++microbatches) {
      for (std::int64_t size = 1; size <= 4; ++size) {
        for (std::int64_t batch = 1; batch <= replicas * microbatches * size; ++batch) {
          std::int64_t next = 0;
          for (int replica = 0; replica < replicas; ++replica) {
            for (const MicrobatchRows& rows : microbatch_rows(batch, replicas, replica, microbatches, size)) {
              SCOPED_TRACE(fmt::format("batch {} replica {} of {}", batch, replica, replicas));
              ASSERT_EQ(rows.rows, size);
              ASSERT_LE(rows.real_rows, size);
              for (std::int64_t i = 0; i < rows.rows; ++i) {
                ASSERT_GE(rows.row(i), 0);
                ASSERT_LT(rows.row(i), batch);
                if (i >= rows.real_rows) continue;
                ASSERT_EQ(rows.row(i), next);
                ASSERT_EQ(next * replicas / batch, replica);
                ++next;
              }
            }
          }
          ASSERT_EQ(next, batch);
        }
      }
    }
  }
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

TEST(MicrobatchRows, RefuseMoreRowsThanFit) {
  EXPECT_EQ(thrown_text([] { microbatch_rows(13, 2, 0, 3, 2); }),
            "a global batch of 13 rows does not fit 2 replicas x 3 microbatches x 2 rows = 12\n"
            "set train.global_batch_size to 12, or parallel.microbatches to 4");
  EXPECT_EQ(thrown_text<InternalError>([] { microbatch_rows(0, 2, 0, 3, 2); }),
            "no rows for replica 0 of 2: a batch of 0 in 3 microbatches of 2\n");
}

}  // namespace
}  // namespace orthant
