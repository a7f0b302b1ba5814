// Comparison of batches bit for bit, for tests on determinism.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "orthant/data/batch.h"

namespace orthant::test {

inline void expect_same_fields(const Fields& left, const Fields& right) {
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, value] : left) {
    ASSERT_TRUE(right.contains(name)) << name;
    EXPECT_EQ(value.scalar_type(), right.at(name).scalar_type()) << name;
    EXPECT_TRUE(at::equal(value, right.at(name))) << name;
  }
}

inline void expect_same_batch(const Batch& left, const Batch& right) {
  SCOPED_TRACE(testing::Message() << "step " << left.step << " against step " << right.step);
  EXPECT_EQ(left.rows, right.rows);
  EXPECT_EQ(left.first_row, right.first_row);
  EXPECT_EQ(left.step, right.step);
  EXPECT_EQ(left.epoch, right.epoch);
  EXPECT_EQ(left.last_of_epoch, right.last_of_epoch);
  EXPECT_EQ(left.samples, right.samples);
  EXPECT_EQ(left.tokens, right.tokens);
  EXPECT_EQ(left.weight_sum, right.weight_sum);
  expect_same_fields(left.fields, right.fields);
}

}  // namespace orthant::test
