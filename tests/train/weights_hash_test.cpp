#include "orthant/train/weights_hash.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <set>

#include "base/error_text.h"

namespace orthant {
namespace weights_hash_test {

TensorBox whole(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), std::vector<std::int64_t>(static_cast<std::size_t>(tensor.dim()), 0),
          tensor.sizes().vec()};
}

std::uint64_t hash_of(std::string_view name, const at::Tensor& tensor) {
  return partial_weights_hash(name, tensor, whole(tensor));
}

at::Tensor sample(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) count *= size;
  return at::arange(count, at::kDouble).mul(0.37).sin().mul(90).view(shape).to(dtype);
}

std::uint64_t bits_of(const at::Tensor& flat, std::int64_t index) {
  std::uint64_t bits = 0;
  const auto size = static_cast<std::size_t>(flat.element_size());
  std::memcpy(&bits, static_cast<const char*>(flat.const_data_ptr()) + static_cast<std::size_t>(index) * size, size);
  return bits;
}

TEST(WeightsHash, IsTheSumOverElementsInEveryDtype) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kChar}) {
    const at::Tensor tensor = sample({3, 5, 7}, dtype);
    std::uint64_t sum = 0;
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      sum += element_hash("layers.0.weight", static_cast<std::uint64_t>(i), bits_of(tensor, i));
    }
    EXPECT_EQ(hash_of("layers.0.weight", tensor), sum) << c10::toString(dtype);
  }
}

TEST(WeightsHash, NeverChanges) {
  const at::Tensor tensor = at::tensor({1.0F, -2.0F, 0.5F, 3.25F});
  EXPECT_EQ(weights_hash_text(hash_of("weight", tensor)), "4c9e6c2294ac2c3e");
  EXPECT_EQ(weights_hash_text(element_hash("weight", 0, 0)), "8c8788c4af6052aa");
}

// Cuts a box at random along random dims until `cuts` are made.
std::vector<TensorBox> random_cut(std::mt19937_64& random, const TensorBox& box, int cuts) {
  std::vector<TensorBox> boxes = {box};
  for (int i = 0; i < cuts; ++i) {
    const std::size_t which = random() % boxes.size();
    const std::size_t d = random() % box.lengths.size();
    const std::int64_t length = boxes[which].lengths[d];
    const auto at = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(length + 1));
    TensorBox rest = boxes[which];
    boxes[which].lengths[d] = at;
    rest.offsets[d] += at;
    rest.lengths[d] = length - at;
    boxes.push_back(rest);
  }
  return boxes;
}

at::Tensor slice(const at::Tensor& tensor, const TensorBox& box) {
  at::Tensor part = tensor;
  for (std::size_t d = 0; d < box.lengths.size(); ++d) {
    part = part.narrow(static_cast<std::int64_t>(d), box.offsets[d], box.lengths[d]);
  }
  return part.contiguous();
}

TEST(WeightsHash, AnyCutIntoBoxesAndRangesSumsToTheSame) {
  std::mt19937_64 random(21);
  const std::vector<std::vector<std::int64_t>> shapes = {{17}, {6, 11}, {4, 5, 6}, {1, 9, 1, 4}, {2, 3, 4, 5}};
  for (const auto& shape : shapes) {
    const at::Tensor tensor = sample(shape);
    const std::uint64_t expected = hash_of("w", tensor);
    for (int round = 0; round < 20; ++round) {
      std::uint64_t sum = 0;
      for (const TensorBox& box : random_cut(random, whole(tensor), round)) {
        const at::Tensor flat = slice(tensor, box).flatten();
        // Each box again as two ranges, as fsdp cuts it.
        const auto at = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(flat.numel() + 1));
        sum += partial_weights_hash("w", flat.narrow(0, 0, at), box);
        sum += partial_weights_hash("w", flat.narrow(0, at, flat.numel() - at), box, at);
      }
      ASSERT_EQ(sum, expected) << "shape of " << shape.size() << " dims, round " << round;
    }
  }
}

TEST(WeightsHash, TellsSwappedElementsNamesAndSignsApart) {
  const at::Tensor tensor = at::tensor({1.0F, 2.0F, 3.0F, 0.0F});
  std::set<std::uint64_t> seen = {
      hash_of("w", tensor),
      hash_of("v", tensor),
      hash_of("w", at::tensor({2.0F, 1.0F, 3.0F, 0.0F})),
      hash_of("w", at::tensor({1.0F, 2.0F, 3.0F, -0.0F})),
      hash_of("w", at::tensor({1.0F, 2.0F, 3.0F, 1e-45F})),
      hash_of("w", at::tensor({0.0F, 1.0F, 2.0F, 3.0F})),
      hash_of("w", tensor.to(at::kDouble)),
  };
  EXPECT_EQ(seen.size(), 7U);
  const at::Tensor other = at::tensor({4.0F, 5.0F, 6.0F, 7.0F});
  EXPECT_NE(hash_of("w", tensor) + hash_of("v", other), hash_of("w", other) + hash_of("v", tensor))
      << "exchanged parameters must not cancel";
}

TEST(WeightsHash, ElementsAreSpreadOverAllBits) {
  std::array<int, 64> ones = {};
  std::set<std::uint64_t> distinct;
  constexpr int kElements = 20000;
  for (int i = 0; i < kElements; ++i) {
    // Near indices and near values, as real weights have.
    const auto index = static_cast<std::uint64_t>(i / 4);
    const std::uint64_t hash = element_hash("w", index, 0x3f800000U + static_cast<std::uint64_t>(i % 4));
    distinct.insert(hash);
    for (std::size_t b = 0; b < 64; ++b) ones[b] += static_cast<int>(hash >> b & 1);
  }
  EXPECT_EQ(distinct.size(), static_cast<std::size_t>(kElements));
  for (std::size_t b = 0; b < 64; ++b) {
    EXPECT_NEAR(ones[b], kElements / 2, 5 * std::sqrt(kElements) / 2) << "bit " << b;
  }
}

TEST(WeightsHash, ReadsATensorInItsOwnOrder) {
  const at::Tensor tensor = sample({4, 6});
  EXPECT_EQ(hash_of("w", tensor.t().contiguous().t()), hash_of("w", tensor));
  EXPECT_EQ(hash_of("w", at::zeros({0, 3})), 0U);
  EXPECT_EQ(hash_of("w", at::full({}, 2.5F)), element_hash("w", 0, std::bit_cast<std::uint32_t>(2.5F)));
}

TEST(WeightsHash, RefusesAPieceThatDoesNotFit) {
  const at::Tensor tensor = at::zeros({6});
  const TensorBox box{{4, 4}, {2, 1}, {2, 3}};
  EXPECT_NO_THROW(partial_weights_hash("layers.0.w", tensor, box));
  const std::string text = error_text<InternalError>([&] { partial_weights_hash("layers.0.w", tensor, box, 1); });
  EXPECT_NE(text.find("weights hash of layers.0.w: 6 elements from 1 on do not fit the box at [2, 1] of lengths [2, 3] "
                      "in a tensor of shape [4, 4]"),
            std::string::npos)
      << text;
  EXPECT_THROW(partial_weights_hash("w", tensor, {{4, 4}, {2, 2}, {2, 3}}), InternalError);
  EXPECT_THROW(partial_weights_hash("w", tensor, {{6}, {0, 0}, {6}}), InternalError);
  EXPECT_THROW(partial_weights_hash("w", tensor, {{6}, {0}, {6}}, -1), InternalError);
}

TEST(WeightsHash, PrintsSixteenDigits) {
  EXPECT_EQ(weights_hash_text(0), "0000000000000000");
  EXPECT_EQ(weights_hash_text(0xfedcba9876543210), "fedcba9876543210");
}

}  // namespace weights_hash_test
}  // namespace orthant
