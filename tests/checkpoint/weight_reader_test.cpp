#include "orthant/checkpoint/weight_reader.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "orthant/checkpoint/checkpoint.h"
#include "orthant/files/tensor_folder.h"
#include "orthant/nn/scalar_type.h"
#include "train/training_ranks.h"

namespace orthant {
namespace weight_reader_test {

namespace fs = std::filesystem;

// A folder with one tensor `t`.
void write_folder(const fs::path& folder, const at::Tensor& values) {
  fs::remove_all(folder);
  const TensorEntry entry{"t", element_name(dtype_of(values.scalar_type())), values.sizes().vec()};
  write_tensor_folder(folder, {entry}, [&](const TensorEntry&, const PutBytes& put) {
    put({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
  });
}

TensorBox random_box(const Shape& shape, std::mt19937& random) {
  TensorBox box{shape, {}, {}};
  for (const auto size : shape) {
    const auto begin = std::uniform_int_distribution<std::int64_t>(0, size)(random);
    box.offsets.push_back(begin);
    box.lengths.push_back(std::uniform_int_distribution<std::int64_t>(0, size - begin)(random));
  }
  return box;
}

at::Tensor part_of(at::Tensor whole, const TensorBox& box) {
  for (std::size_t d = 0; d < box.lengths.size(); ++d) {
    whole = whole.narrow(static_cast<std::int64_t>(d), box.offsets[d], box.lengths[d]);
  }
  return whole.contiguous();
}

TEST(WeightReader, ReadsABoxAndNoByteBesides) {
  const TestFolder folder("orthant-weight-reader");
  std::mt19937 random(11);
  at::manual_seed(3);
  struct Case {
    Shape shape;
    bool transposed;
  };
  const std::vector<Case> cases = {{{}, false},         {{17}, false},      {{13, 7}, false},
                                   {{13, 7}, true},     {{5, 4, 3}, false}, {{1100, 1031}, false},  // of several chunks
                                   {{1100, 1031}, true}};
  for (const auto& [shape, transposed] : cases) {
    for (const auto stored : {at::kFloat, at::kBFloat16, at::kDouble}) {
      const auto values = at::randn(shape, stored);
      write_folder(folder.path / "t", values);
      const auto parameter = transposed ? values.t() : values;
      for (int round = 0; round < (values.numel() > 1000 ? 2 : 30); ++round) {
        const CountingReader reader(open_weights(folder.path / "t"));
        const auto box = round == 0
                             ? TensorBox{parameter.sizes().vec(), Shape(shape.size(), 0), parameter.sizes().vec()}
                             : random_box(parameter.sizes().vec(), random);
        for (const auto type : {at::kFloat, at::kDouble}) {
          const auto before = reader.bytes_read();
          const auto expected = part_of(parameter, box).to(type);
          auto found = at::full(box.lengths, -1, type);
          read_into(reader, reader.entries().front(), transposed, box, found);
          EXPECT_TRUE(at::equal(found, expected)) << "round " << round << " of " << values.sizes();
          EXPECT_EQ(reader.bytes_read() - before, expected.numel() * values.element_size());
          EXPECT_TRUE(equals_stored(reader, reader.entries().front(), transposed, box, found));
          if (found.numel() == 0) continue;
          found.view({-1})[found.numel() - 1] += 1;
          EXPECT_FALSE(equals_stored(reader, reader.entries().front(), transposed, box, found));
        }
      }
    }
  }
}

TEST(WeightReader, TakesNotANumberForEqualToItself) {
  const TestFolder folder("orthant-weight-reader");
  auto values = at::zeros({3, 2});
  values[1][1] = NAN;
  write_folder(folder.path / "t", values);
  const auto reader = open_weights(folder.path / "t");
  const TensorBox whole{{3, 2}, {0, 0}, {3, 2}};
  EXPECT_TRUE(equals_stored(*reader, reader->entries().front(), false, whole, values));
  EXPECT_FALSE(equals_stored(*reader, reader->entries().front(), false, whole, at::zeros({3, 2})));
}

}  // namespace weight_reader_test
}  // namespace orthant
