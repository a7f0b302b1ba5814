#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <thread>

#include "base/error_text.h"
#include "files/temporary_folder.h"
#include "orthant/files/safetensors.h"
#include "orthant/files/slice_runs.h"

namespace orthant {
namespace safetensors_slice_test {

using test::TemporaryFolder;
using Sizes = std::vector<std::int64_t>;
using Runs = std::vector<std::pair<std::int64_t, std::int64_t>>;

Runs runs_of(const Sizes& shape, const Sizes& offsets, const Sizes& lengths, std::int64_t element_bytes) {
  Runs runs;
  for_each_run(shape, offsets, lengths, element_bytes,
               [&](std::int64_t begin, std::int64_t bytes) { runs.emplace_back(begin, bytes); });
  return runs;
}

std::int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

TEST(SliceRuns, JoinsWhatIsContiguous) {
  EXPECT_EQ(runs_of({4, 6}, {0, 0}, {4, 6}, 2), (Runs{{0, 48}}));
  EXPECT_EQ(runs_of({4, 6}, {1, 0}, {2, 6}, 2), (Runs{{12, 24}}));
  EXPECT_EQ(runs_of({4, 6}, {1, 2}, {1, 3}, 2), (Runs{{16, 6}}));
  EXPECT_EQ(runs_of({4, 6}, {1, 2}, {2, 3}, 2), (Runs{{16, 6}, {28, 6}}));
  EXPECT_EQ(runs_of({2, 3, 4}, {0, 1, 0}, {2, 2, 4}, 1), (Runs{{4, 8}, {16, 8}}));
  EXPECT_EQ(runs_of({3, 1, 4}, {1, 0, 0}, {2, 1, 4}, 4), (Runs{{16, 32}}));
  EXPECT_EQ(runs_of({}, {}, {}, 8), (Runs{{0, 8}}));
  EXPECT_EQ(runs_of({4, 6}, {4, 0}, {0, 6}, 2), (Runs{}));
  EXPECT_EQ(runs_of({4, 0}, {0, 0}, {4, 0}, 2), (Runs{}));
}

TEST(SliceRuns, ABoxLiesWithinItsShape) {
  EXPECT_TRUE(is_box_of(Sizes{4, 6}, Sizes{4, 5}, Sizes{0, 1}));
  EXPECT_FALSE(is_box_of(Sizes{4, 6}, Sizes{0}, Sizes{4}));
  EXPECT_FALSE(is_box_of(Sizes{4, 6}, Sizes{0, 0}, Sizes{4}));
  EXPECT_FALSE(is_box_of(Sizes{4}, Sizes{-1}, Sizes{2}));
  EXPECT_FALSE(is_box_of(Sizes{4}, Sizes{1}, Sizes{-1}));
  EXPECT_FALSE(is_box_of(Sizes{4}, Sizes{2}, Sizes{3}));
  EXPECT_FALSE(is_box_of(Sizes{4}, Sizes{5}, Sizes{0}));
  EXPECT_FALSE(is_box_of(Sizes{4}, Sizes{2}, Sizes{std::numeric_limits<std::int64_t>::max()}));
}

// A tensor whose elements are their own row-major index.
void write_numbers(const std::filesystem::path& path, const Sizes& shape) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(product(shape)));
  std::iota(numbers.begin(), numbers.end(), 0);
  SafetensorsWriter writer(path, {{"before", "U8", {3}}, {"x", "I32", shape}});
  writer.write("before", std::as_bytes(std::span("abc", 3)));
  writer.write("x", std::as_bytes(std::span(numbers)));
  writer.finish();
}

std::vector<std::int32_t> slice_of(const SafetensorsFile& file, const Sizes& offsets, const Sizes& lengths) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(product(lengths)), -1);
  file.read_slice("x", offsets, lengths, std::as_writable_bytes(std::span(out)));
  return out;
}

// Element by element.
std::vector<std::int32_t> expected_slice(const Sizes& shape, const Sizes& offsets, const Sizes& lengths) {
  std::vector<std::int32_t> expected;
  for (std::int64_t i = 0; i < product(lengths); ++i) {
    std::int64_t rest = i;
    std::int64_t index = 0;
    std::int64_t stride = 1;
    for (std::size_t dim = shape.size(); dim-- > 0; stride *= shape[dim]) {
      index += (offsets[dim] + rest % lengths[dim]) * stride;
      rest /= lengths[dim];
    }
    expected.push_back(static_cast<std::int32_t>(index));
  }
  return expected;
}

TEST(SafetensorsSlice, AnyBoxOfAnyShapeComesWithItsBytesAlone) {
  const TemporaryFolder folder;
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    Sizes shape;
    for (std::size_t dims = random() % 5; dims > 0; --dims) shape.push_back(1 + random() % 5);
    const auto path = folder / std::to_string(round);
    write_numbers(path, shape);
    const SafetensorsFile file = SafetensorsFile::open(path);
    EXPECT_EQ(file.bytes_read(), 0);
    std::int64_t read = 0;
    for (int box = 0; box < 20; ++box) {
      Sizes offsets;
      Sizes lengths;
      for (const std::int64_t size : shape) {
        offsets.push_back(static_cast<std::int64_t>(random()) % (size + 1));
        lengths.push_back(static_cast<std::int64_t>(random()) % (size - offsets.back() + 1));
      }
      ASSERT_EQ(slice_of(file, offsets, lengths), expected_slice(shape, offsets, lengths)) << "round " << round;
      read += 4 * product(lengths);
      ASSERT_EQ(file.bytes_read(), read) << "round " << round;
    }
  }
}

TEST(SafetensorsSlice, AColumnBlockOfALargeTensorReadsItsBytesAlone) {
  const TemporaryFolder folder;
  const Sizes shape = {2000, 3000};
  write_numbers(folder / "a", shape);
  const SafetensorsFile file = SafetensorsFile::open(folder / "a");
  EXPECT_EQ(slice_of(file, {0, 750}, {2000, 1500}), expected_slice(shape, {0, 750}, {2000, 1500}));
  EXPECT_EQ(file.bytes_read(), 2000 * 1500 * 4);
  const SafetensorsFile copy = file;
  EXPECT_EQ(slice_of(copy, {7, 5}, {1, 2}), (std::vector<std::int32_t>{21005, 21006}));
  EXPECT_EQ(file.bytes_read(), 2000 * 1500 * 4 + 8);
  file.bytes("x");
  EXPECT_EQ(file.bytes_read(), 2000 * 1500 * 4 + 8);
}

TEST(SafetensorsSlice, ThreadsShareAFile) {
  const TemporaryFolder folder;
  const Sizes shape = {64, 64};
  write_numbers(folder / "a", shape);
  const SafetensorsFile file = SafetensorsFile::open(folder / "a");
  std::vector<int> right(4, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i)
        right[t] += slice_of(file, {0, t}, {64, 9}) == expected_slice(shape, {0, t}, {64, 9});
      right[t] += file.bytes("x").size() == 64 * 64 * 4;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 51));
  EXPECT_EQ(file.bytes_read(), 4 * 50 * 64 * 9 * 4);
}

TEST(SafetensorsSlice, HoldsItsCallerToTheTensor) {
  const TemporaryFolder folder;
  write_numbers(folder / "a", {2, 3});
  const SafetensorsFile file = SafetensorsFile::open(folder / "a");
  const std::string path = (folder / "a").string();
  EXPECT_EQ(error_text<InternalError>([&] { slice_of(file, {0, 2}, {2, 2}); }),
            path + ": box [0, 2] + [2, 2] does not lie within tensor \"x\" of shape [2, 3]");
  EXPECT_EQ(error_text<InternalError>([&] { slice_of(file, {0}, {2}); }),
            path + ": box [0] + [2] does not lie within tensor \"x\" of shape [2, 3]");
  EXPECT_EQ(error_text<InternalError>([&] { file.read_slice("x", Sizes{0, 0}, Sizes{1, 1}, {}); }),
            path + ": a slice of 4 bytes of tensor \"x\" was to be read into 0");
  EXPECT_THROW(file.read_slice("y", Sizes{}, Sizes{}, {}), DataError);
}

}  // namespace safetensors_slice_test
}  // namespace orthant
