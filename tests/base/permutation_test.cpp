#include "orthant/base/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "base/error_text.h"

namespace orthant {
namespace permutation_test {

TEST(Permutation, IsABijectionForEverySizeUpTo2000) {
  for (std::uint64_t size = 1; size <= 2000; ++size) {
    const Permutation permutation(size, 7, size % 5);
    std::vector<bool> seen(size, false);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t image = permutation(i);
      ASSERT_LT(image, size);
      ASSERT_FALSE(seen[image]) << "size " << size << " index " << i;
      seen[image] = true;
    }
  }
}

TEST(Permutation, IsABijectionForALargeSize) {
  constexpr std::uint64_t kSize = (1 << 20) + 1;
  const Permutation permutation(kSize, 1, 0);
  std::vector<bool> seen(kSize, false);
  for (std::uint64_t i = 0; i < kSize; ++i) {
    const std::uint64_t image = permutation(i);
    ASSERT_LT(image, kSize);
    ASSERT_FALSE(seen[image]);
    seen[image] = true;
  }
}

TEST(Permutation, KeepsHugeSizesInRangeAndApart) {
  for (const std::uint64_t size : {(std::uint64_t{1} << 40) + 3, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    const Permutation permutation(size, 3, 4);
    std::set<std::uint64_t> images;
    for (std::uint64_t i = 0; i < 2000; ++i) {
      const std::uint64_t image = permutation(i % 2 == 0 ? i : size - i);
      ASSERT_LT(image, size);
      ASSERT_TRUE(images.insert(image).second);
    }
  }
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  const auto order = [](std::uint64_t seed, std::uint64_t epoch) {
    std::vector<std::uint64_t> images;
    for (std::uint64_t i = 0; i < 100; ++i) images.push_back(Permutation(100, seed, epoch)(i));
    return images;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
}

TEST(Permutation, SendsAnIndexEverywhereAboutEquallyOften) {
  for (const std::uint64_t size : {2, 3, 5, 12, 37}) {
    constexpr std::uint64_t kEpochs = 20'000;
    std::vector<double> counts(size * size, 0);
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const Permutation permutation(size, 11, epoch);
      for (std::uint64_t i = 0; i < size; ++i) ++counts[i * size + permutation(i)];
    }
    const double expected = static_cast<double>(kEpochs) / static_cast<double>(size);
    for (const double count : counts) EXPECT_NEAR(count, expected, 6 * std::sqrt(expected)) << "size " << size;
  }
}

TEST(Permutation, RefusesNoElementsAndIndicesOutside) {
  EXPECT_EQ(error_text<InternalError>([] { Permutation(0, 1, 1); }), "a permutation of no elements was asked for");
  EXPECT_EQ(error_text<InternalError>([] { Permutation(5, 1, 1)(5); }), "index 5 of a permutation of 5 elements");
}

}  // namespace permutation_test
}  // namespace orthant
