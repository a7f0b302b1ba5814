// Numbers of a step that are read after its exchanges were broken off.
#include "orthant/train/pending_step.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "orthant/base/error.h"

namespace orthant {
namespace pending_step_test {

TEST(PendingStep, DoesNotGiveNumbersThatMeanNothing) {
  const auto numbers = at::ones({9}, at::kDouble);
  const PendingStep sound(numbers, 1, [] {});
  EXPECT_EQ(sound.get().loss, 1);
  const PendingStep broken(numbers, 1, [] { throw CommError("rank 3 is gone"); });
  EXPECT_THROW(broken.peek(), CommError);
  EXPECT_THROW(broken.get(), CommError);
  EXPECT_FALSE(broken.was_read());
}

}  // namespace pending_step_test
}  // namespace orthant
