// Masters in halves: every float32 comes back from them with its bits, and the upper half is the copy that products use
// whichever way the master is stored.
#include "orthant/parallel/data/master_values.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error_text.h"

namespace orthant {
namespace master_values_test {

float of_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

// All upper halves of both signs, with the lower halves where something changes.
std::vector<float> interesting() {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      values.push_back(of_bits((upper << 16) | lower));
    }
  }
  return values;
}

at::Tensor tensor_of(const std::vector<float>& values) {
  const auto flat = at::empty({static_cast<std::int64_t>(values.size())}, at::kFloat);
  std::memcpy(flat.mutable_data_ptr(), values.data(), flat.nbytes());
  return flat;
}

MasterValues halves(std::int64_t elements) {
  return {at::zeros({elements}, at::kBFloat16), at::zeros({elements}, at::kShort)};
}

std::uint32_t bits_of(const at::Tensor& values, std::size_t i) {
  return std::bit_cast<std::uint32_t>(values.const_data_ptr<float>()[i]);
}

TEST(MasterValues, EveryValueComesBackFromItsHalves) {
  const auto values = interesting();
  const auto flat = tensor_of(values);
  const auto master = halves(flat.numel());
  master.set_values(flat);
  const auto back = master.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto expected = std::isnan(values[i]) ? 0x7fc00000U : std::bit_cast<std::uint32_t>(values[i]);
    ASSERT_EQ(bits_of(back, i), expected) << std::hex << std::bit_cast<std::uint32_t>(values[i]);
  }
}

TEST(MasterValues, RandomBitsComeBackFromTheirHalves) {
  const auto bits = at::randint(0, std::int64_t{1} << 32, {1 << 20}, at::kLong).sub_(std::int64_t{1} << 31);
  const auto flat = bits.to(at::kInt).view(at::kFloat);
  const auto master = halves(flat.numel());
  master.set_values(flat);
  EXPECT_TRUE(at::equal(master.values().view(at::kInt).masked_fill(flat.isnan(), 0),
                        flat.view(at::kInt).masked_fill(flat.isnan(), 0)));
  EXPECT_TRUE(at::equal(master.values().isnan(), flat.isnan()));
}

// By arithmetic, not by bits.
TEST(MasterValues, TheUpperHalfIsTheNearestBfloat16AndHalfwayGoesAway) {
  const auto values = interesting();
  const auto flat = tensor_of(values);
  const auto master = halves(flat.numel());
  master.set_values(flat);
  const auto to_even = flat.to(at::kBFloat16).to(at::kFloat);
  const auto found = master.upper().to(at::kFloat);
  std::int64_t ties = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float even = to_even.const_data_ptr<float>()[i];
    const float here = found.const_data_ptr<float>()[i];
    if (std::isnan(values[i])) {
      ASSERT_TRUE(std::isnan(here));
    } else if (bits_of(flat, i) % 0x10000 != 0x8000) {
      ASSERT_EQ(bits_of(found, i), bits_of(to_even, i)) << values[i];
    } else {
      ++ties;
      ASSERT_GE(std::fabs(here), std::fabs(values[i]));
      ASSERT_GE(std::fabs(here), std::fabs(even));
      const double away = std::fabs(static_cast<double>(here)) - std::fabs(static_cast<double>(values[i]));
      const double half = std::fabs(std::fabs(static_cast<double>(even)) - std::fabs(static_cast<double>(values[i])));
      ASSERT_EQ(away, half) << values[i];
    }
  }
  EXPECT_EQ(ties, 2 * 0x7f80);
}

TEST(MasterValues, AWholeMastersCopyIsTheUpperHalfOfOneInHalves) {
  const auto flat = tensor_of(interesting());
  const auto master = halves(flat.numel());
  master.set_values(flat);
  const auto copy = at::zeros({flat.numel()}, at::kBFloat16);
  round_into(copy, flat);
  EXPECT_TRUE(at::equal(copy.view(at::kShort), master.upper().view(at::kShort)));
}

TEST(MasterValues, OtherDtypesAreRoundedAsAtenDoes) {
  const auto flat = at::randn({1000}, at::kFloat);
  const auto half = at::zeros({1000}, at::kHalf);
  round_into(half, flat);
  EXPECT_TRUE(at::equal(half, flat.to(at::kHalf)));
  const auto narrow = at::zeros({1000}, at::kBFloat16);
  round_into(narrow, flat.to(at::kDouble));
  EXPECT_TRUE(at::equal(narrow, flat.to(at::kDouble).to(at::kBFloat16)));
}

TEST(MasterValues, PartsAreReadAndChangedInPlace) {
  constexpr std::int64_t kElements = (1 << 19) + 77;  // several pieces
  const auto flat = at::randn({kElements}, at::kFloat);
  const auto split = halves(kElements);
  const MasterValues whole(flat.clone());
  split.set_values(flat);
  for (const auto& master : {split, whole}) {
    master.narrow(5, 300000).change([](const at::Tensor& values) { values.mul_(3); });
  }
  EXPECT_TRUE(at::equal(split.values(), whole.values()));
  EXPECT_FALSE(at::equal(split.values(), flat));
  std::int64_t next = 0;
  split.in_pieces([&](std::int64_t first, const MasterValues& part) {
    EXPECT_EQ(first, next);
    EXPECT_TRUE(at::equal(part.values(), whole.values().narrow(0, first, part.size())));
    next += part.size();
  });
  EXPECT_EQ(next, kElements);
  EXPECT_EQ(error_text<InternalError>([&] { split.whole(); }),
            "the optimizer's copy is stored in halves: it has no tensor of its own");
}

}  // namespace master_values_test
}  // namespace orthant
