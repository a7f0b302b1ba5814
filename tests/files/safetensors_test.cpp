#include "orthant/files/safetensors.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "base/error_text.h"
#include "files/child_process.h"
#include "files/safetensors_bytes.h"
#include "files/temporary_folder.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace safetensors_test {

using test::safetensors_bytes;
using test::TemporaryFolder;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(SafetensorsWriter, WritesTheFormatByteForByte) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "a", {{"test", "I32", {2, 2}}, {"b\"/é", "BOOL", {3}}}, {{"format", "pt"}});
  writer.write("test", bytes_of("0123456789abcdef"));
  writer.write("b\"/é", bytes_of("xyz"));
  const WrittenFile written = writer.finish();
  std::string header = R"({"__metadata__":{"format":"pt"},"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]},)"
                       R"("b\"/é":{"dtype":"BOOL","shape":[3],"data_offsets":[16,19]}})";
  while (header.size() % 8 != 0) header += ' ';
  const std::string expected = safetensors_bytes(header, "0123456789abcdefxyz");
  EXPECT_EQ(read_file(folder / "a"), expected);
  EXPECT_EQ(written.bytes, static_cast<std::int64_t>(expected.size()));
  EXPECT_EQ(written.xxh64, std::vector{xxh64(bytes_of(expected))});
}

TEST(SafetensorsFile, ReadsAnUnpaddedHeaderInAnyOrder) {
  const TemporaryFolder folder;
  test::put_file(folder / "a", safetensors_bytes(R"({"b":{"data_offsets":[2,6],"shape":[1,2],"dtype":"BF16"},)"
                                                 R"("z":{"dtype":"F32","shape":[0,7],"data_offsets":[6,6]},)"
                                                 R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                                                 "aabbbb"));
  const SafetensorsFile file = SafetensorsFile::open(folder / "a");
  EXPECT_EQ(file.entries(), (std::vector<TensorEntry>{{"a", "U8", {2}}, {"b", "BF16", {1, 2}}, {"z", "F32", {0, 7}}}));
  EXPECT_EQ(text_of(file.bytes("a")), "aa");
  EXPECT_EQ(text_of(file.bytes("b")), "bbbb");
  EXPECT_TRUE(file.bytes("z").empty());
  EXPECT_TRUE(file.metadata().empty());
}

TEST(SafetensorsFile, ReadsAFileOfTheReferenceImplementation) {
  const TemporaryFolder folder;
  test::put_file(folder / "a", safetensors_bytes(R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})",
                                                 std::string(16, '\0')));
  EXPECT_EQ(SafetensorsFile::open(folder / "a").entry("test"), (TensorEntry{"test", "I32", {2, 2}}));
}

TEST(SafetensorsFile, ReadsPartsWithoutTheRest) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "a", {{"x", "U8", {3}}, {"y", "U8", {10}}});
  writer.write("x", bytes_of("abc"));
  writer.write("y", bytes_of("0123456789"));
  writer.finish();
  std::optional<SafetensorsFile> file = SafetensorsFile::open(folder / "a");
  const SafetensorsFile copy = *file;
  file.reset();
  std::string part(4, '-');
  copy.read("y", 3, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "3456");
  copy.read("y", 10, {});
  EXPECT_EQ(text_of(copy.bytes("y").subspan(8)), "89");
  EXPECT_EQ(error_text<InternalError>([&] { copy.read("y", 7, std::as_writable_bytes(std::span(part))); }),
            (folder / "a").string() + ": bytes [7, 7 + 4) of tensor \"y\", which has 10");
  EXPECT_THROW(copy.read("y", -1, std::as_writable_bytes(std::span(part))), InternalError);
}

TEST(SafetensorsFile, AMissingTensorNamesTheNearest) {
  const TemporaryFolder folder;
  SafetensorsWriter(folder / "a", {{"layers.0.weight", "F32", {0}}, {"layers.0.bias", "F32", {0}}}).finish();
  const SafetensorsFile file = SafetensorsFile::open(folder / "a");
  EXPECT_TRUE(file.contains("layers.0.bias"));
  EXPECT_FALSE(file.contains("layers.0.wieght"));
  EXPECT_EQ(error_text<DataError>([&] { file.bytes("layers.0.wieght"); }),
            (folder / "a").string() +
                ": no tensor \"layers.0.wieght\" among its 2\n  fix: did you mean \"layers.0.weight\"?");
}

TEST(Safetensors, AnyTensorsInAnyChunksComeBack) {
  std::mt19937 random(11);
  const std::vector<std::pair<std::string, std::int64_t>> types = {{"F64", 8}, {"F32", 4}, {"BF16", 2}, {"F16", 2},
                                                                   {"I64", 8}, {"I32", 4}, {"U8", 1},   {"BOOL", 1}};
  for (int round = 0; round < 40; ++round) {
    const TemporaryFolder folder;
    std::vector<TensorEntry> entries;
    std::vector<std::string> contents;
    for (std::size_t i = random() % 8; i > 0; --i) {
      const auto& [type, element] = types[random() % types.size()];
      TensorEntry entry{"t" + std::to_string(i), type, {}};
      std::int64_t bytes = element;
      for (std::size_t dims = random() % 4; dims > 0; --dims) {
        entry.shape.push_back(static_cast<std::int64_t>(random() % 6));
        bytes *= entry.shape.back();
      }
      std::string content(static_cast<std::size_t>(bytes), '\0');
      for (char& letter : content) letter = static_cast<char>(random());
      entries.push_back(entry);
      contents.push_back(content);
    }
    SafetensorsWriter writer(folder / "a", entries, {{"round", std::to_string(round)}});
    for (std::size_t i = 0; i < entries.size(); ++i) {
      for (std::size_t at = 0; at < contents[i].size();) {
        const std::size_t count = std::min<std::size_t>(random() % 50, contents[i].size() - at);
        writer.write(entries[i].name, bytes_of(contents[i]).subspan(at, count));
        at += count;
      }
    }
    const WrittenFile written = writer.finish();
    EXPECT_EQ(written.xxh64, std::vector{xxh64_of_file(folder / "a")});
    const SafetensorsFile file = SafetensorsFile::open(folder / "a");
    EXPECT_EQ(file.metadata().at("round"), std::to_string(round));
    ASSERT_EQ(file.entries().size(), entries.size()) << "round " << round;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      EXPECT_EQ(file.entry(entries[i].name), entries[i]) << "round " << round;
      ASSERT_EQ(text_of(file.bytes(entries[i].name)), contents[i]) << "round " << round << ", " << entries[i].name;
    }
  }
}

TEST(SafetensorsWriter, WithoutFinishLeavesNoFile) {
  const TemporaryFolder folder;
  {
    const SafetensorsWriter writer(folder / "a", {{"x", "U8", {3}}});
  }
  EXPECT_TRUE(folder.names().empty());
}

TEST(SafetensorsWriter, HoldsItsCallerToTheDeclaration) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "a", {{"x", "U8", {3}}, {"y", "U8", {1}}});
  const std::string path = (folder / "a").string();
  EXPECT_EQ(error_text<InternalError>([&] { writer.write("y", bytes_of("y")); }),
            path + ": bytes of tensor \"y\" came when \"x\" was due");
  writer.write("x", bytes_of("ab"));
  EXPECT_EQ(error_text<InternalError>([&] { writer.write("x", bytes_of("cd")); }),
            path + ": tensor \"x\" of 3 bytes was given 4");
  EXPECT_EQ(error_text<InternalError>([&] { writer.finish(); }),
            path + ": finished when tensor \"x\" had 2 of 3 bytes");
  writer.write("x", bytes_of("c"));
  writer.write("y", bytes_of("y"));
  EXPECT_EQ(error_text<InternalError>([&] { writer.write("y", bytes_of("y")); }),
            path + ": bytes of tensor \"y\" came when nothing was due");
  writer.finish();
  EXPECT_THROW(writer.finish(), InternalError);
}

TEST(SafetensorsWriter, RefusesEntriesThatNoReaderAccepts) {
  const TemporaryFolder folder;
  const auto error_of = [&](std::vector<TensorEntry> entries) {
    return error_text<DataError>([&] { SafetensorsWriter(folder / "a", std::move(entries)); });
  };
  const std::string path = (folder / "a").string();
  EXPECT_EQ(error_of({{"x", "U8", {}}, {"x", "U8", {}}}),
            path + ": tensor name \"x\" is given twice\n  fix: give each tensor a name of its own");
  EXPECT_EQ(error_of({{"__metadata__", "U8", {}}}),
            path + ": tensor name \"__metadata__\" is reserved\n  fix: give each tensor a name of its own");
  EXPECT_EQ(error_of({{"x", "U8", {2, -1}}}),
            path + ": tensor \"x\": shape [2, -1] has a negative dimension\n  fix: give sizes of 0 or more");
  EXPECT_TRUE(
      error_of({{"x", "float32", {}}}).starts_with(path + ": tensor \"x\": unknown dtype \"float32\"\n  fix: "));
  const std::int64_t huge = std::int64_t{1} << 61;
  EXPECT_EQ(error_of({{"x", "F32", {huge}}}),
            path +
                ": tensor \"x\": F32 of shape [2305843009213693952] takes more bytes than 63 bits can count\n"
                "  fix: no file holds that: the shape is damaged or wrong");
  EXPECT_EQ(error_of({{"x", "U8", {huge}}, {"y", "U8", {huge, 3}}}),
            path +
                ": the tensors up to \"y\" take more bytes than 63 bits can count\n"
                "  fix: spread the tensors over several files");
  EXPECT_EQ(error_of({{"\xff", "U8", {}}}),
            path + ": a name or the metadata is not UTF-8\n  fix: give names and metadata in UTF-8");
  EXPECT_TRUE(folder.names().empty());
}

TEST(SafetensorsWriter, AFullDeviceIsToldAndADeviceNeverRemoved) {
  const std::string text = error_text<DataError>([] { SafetensorsWriter("/dev/full", {{"x", "U8", {3}}}); });
  EXPECT_TRUE(text.starts_with("/dev/full: write of 64 bytes after 0 bytes written failed: No space left on device"))
      << text;
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

TEST(SafetensorsWriter, AFileThatGrowsTooLargeIsToldAndRemoved) {
  const TemporaryFolder folder;
  EXPECT_TRUE(test::true_with_file_limit(4096, [&] {
    SafetensorsWriter writer(folder / "a", {{"x", "U8", {10'000}}});
    const std::string text = error_text<DataError>([&] { writer.write("x", bytes_of(std::string(10'000, 'x'))); });
    return text.find("failed: File too large\n  fix: raise the limit on file size") != std::string::npos &&
           std::filesystem::file_size(folder / "a") == 4096;
  }));
  EXPECT_EQ(folder.names(), (std::vector<std::string>{}));
}

}  // namespace safetensors_test
}  // namespace orthant
