#include "orthant/graph/dtype.h"

#include <gtest/gtest.h>

#include "base/error_text.h"

namespace orthant {
namespace dtype_test {

TEST(DType, NamesAreReadBack) {
  for (const auto dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float16, DType::int64, DType::int32,
                           DType::uint8, DType::boolean}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
}

TEST(DType, KnowsItsBytes) {
  EXPECT_EQ(bytes_of(DType::float64), 8);
  EXPECT_EQ(bytes_of(DType::float32), 4);
  EXPECT_EQ(bytes_of(DType::bfloat16), 2);
  EXPECT_EQ(bytes_of(DType::float16), 2);
  EXPECT_EQ(bytes_of(DType::int64), 8);
  EXPECT_EQ(bytes_of(DType::int32), 4);
  EXPECT_EQ(bytes_of(DType::uint8), 1);
  EXPECT_EQ(bytes_of(DType::boolean), 1);
}

TEST(DType, SuggestsTheNearestName) {
  EXPECT_EQ(error_text<ConfigError>([] { parse_dtype("bfloat32"); }),
            "unknown dtype \"bfloat32\"\n  fix: "
            "did you mean \"float32\"? (one of float64, float32, bfloat16, float16, int64, int32, uint8, bool)");
}

}  // namespace dtype_test
}  // namespace orthant
