#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <map>
#include <random>

#include "base/error_text.h"
#include "files/safetensors_bytes.h"
#include "files/temporary_folder.h"
#include "orthant/files/safetensors.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace safetensors_hostile_test {

using test::length_text;
using test::safetensors_bytes;
using test::TemporaryFolder;

// The message of opening these bytes as a file, without the file's name in front.
std::string refusal(const std::string& bytes) {
  const TemporaryFolder folder;
  const std::string path = (folder / "a").string();
  test::put_file(path, bytes);
  std::string text = error_text<DataError>([&] { SafetensorsFile::open(path); });
  EXPECT_TRUE(text.starts_with(path + ": ")) << text;
  EXPECT_NE(text.find("\n  fix: "), std::string::npos) << text;
  text.erase(0, path.size() + 2);
  return text.substr(0, text.find('\n'));
}

// Of a file with one tensor, "x", and 8 bytes of data.
std::string entry_refusal(const std::string& entry) {
  return refusal(safetensors_bytes("{\"x\":" + entry + "}", "01234567"));
}

TEST(HostileSafetensors, LengthsThatTheFileDoesNotHave) {
  EXPECT_EQ(refusal(""), "0 bytes are too few for a safetensors file");
  EXPECT_EQ(refusal("1234567"), "7 bytes are too few for a safetensors file");
  EXPECT_EQ(refusal(length_text(3) + "{}"), "a header of 3 bytes does not fit into the file's 10 bytes");
  EXPECT_EQ(refusal(length_text(~std::uint64_t{0}) + "{}"),
            "a header of 18446744073709551615 bytes does not fit into the file's 10 bytes");
  EXPECT_EQ(refusal(length_text(std::uint64_t{1} << 63) + "{}"),
            "a header of 9223372036854775808 bytes does not fit into the file's 10 bytes");
  EXPECT_EQ(refusal(length_text(0)), "the header does not begin with {");
}

TEST(HostileSafetensors, AHeaderLongerThanTheFormatAllows) {
  const TemporaryFolder folder;
  test::put_file(folder / "a", length_text(100'000'001) + "{}");
  std::filesystem::resize_file(folder / "a", 200'000'000);
  EXPECT_EQ(error_text<DataError>([&] { SafetensorsFile::open(folder / "a"); }),
            (folder / "a").string() +
                ": a header of 100000001 bytes is longer than the format's 100000000\n"
                "  fix: the file is damaged or of another format: give a .safetensors file");
}

TEST(HostileSafetensors, HeadersThatAreNotTheFormatsJson) {
  const auto header = [](const std::string& text) { return refusal(safetensors_bytes(text, "")); };
  EXPECT_EQ(header(" {}"), "the header does not begin with {");
  EXPECT_EQ(header("\xef\xbb\xbf{}"), "the header does not begin with {");
  EXPECT_EQ(header("[]"), "the header does not begin with {");
  EXPECT_EQ(header("{} x"), "the header is not JSON: mistake at its byte 3");
  EXPECT_EQ(header("{\"a\":"), "the header is not JSON: mistake at its byte 5");
  EXPECT_EQ(header(std::string("{}\0", 3)), "the header is not JSON: mistake at its byte 2");
  EXPECT_TRUE(header("{\"\xff\":{}}").starts_with("the header is not JSON: mistake at its byte"));
  EXPECT_EQ(header("{\"a\":3}"), "the header has the number 3 at \"a\"; expected an object");
  EXPECT_EQ(header("{\"__metadata__\":null}"), "the header has null at \"__metadata__\"; expected an object");
  EXPECT_EQ(header("{\"__metadata__\":{\"a\":1}}"), "__metadata__ has the number 1 at \"a\"; expected a string");
  EXPECT_EQ(header("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}"), "__metadata__ has the key \"a\" twice");
  EXPECT_EQ(header("{\"__metadata__\":{},\"__metadata__\":{}}"), "the header has \"__metadata__\" twice");
}

TEST(HostileSafetensors, DeepNestingEndsAtTheFirstLevelTooMany) {
  std::string deep = "{\"x\":";
  for (int level = 0; level < 1'000'000; ++level) deep += '[';
  EXPECT_EQ(refusal(safetensors_bytes(deep, "")), "the header has an array at \"x\"; expected an object");
  deep = "";
  for (int level = 0; level < 1'000'000; ++level) deep += "{\"shape\":";
  EXPECT_EQ(refusal(safetensors_bytes(deep, "")),
            "tensor \"shape\" has an object at \"shape\"; expected an array of whole numbers");
}

TEST(HostileSafetensors, EntriesThatAreNotTensors) {
  EXPECT_EQ(entry_refusal("{}"), "tensor \"x\" lacks dtype");
  EXPECT_EQ(entry_refusal(R"({"dtype":"U8","data_offsets":[0,8]})"), "tensor \"x\" lacks shape");
  EXPECT_EQ(entry_refusal(R"({"dtype":"U8","shape":[8]})"), "tensor \"x\" lacks data_offsets");
  EXPECT_EQ(entry_refusal(R"({"dtype":"U8","dtype":"U8"})"), "tensor \"x\" has dtype twice");
  EXPECT_EQ(entry_refusal(R"({"strides":[1]})"), "tensor \"x\" has the unknown key \"strides\"");
  EXPECT_EQ(entry_refusal(R"({"dtype":8})"), "tensor \"x\" has the number 8 at \"dtype\"; expected a string");
  EXPECT_EQ(entry_refusal(R"({"dtype":["U8"]})"), "tensor \"x\" has an array at \"dtype\"; expected a string");
  EXPECT_EQ(entry_refusal(R"({"shape":8})"),
            "tensor \"x\" has the number 8 at \"shape\"; expected an array of whole numbers");
  const std::string whole = "; expected a whole number of 0 or more";
  EXPECT_EQ(entry_refusal(R"({"shape":[-1]})"), "tensor \"x\" has the number -1 at \"shape\"" + whole);
  EXPECT_EQ(entry_refusal(R"({"shape":[8.0]})"), "tensor \"x\" has the number 8.0 at \"shape\"" + whole);
  EXPECT_EQ(entry_refusal(R"({"shape":["8"]})"), "tensor \"x\" has the string \"8\" at \"shape\"" + whole);
  EXPECT_EQ(entry_refusal(R"({"shape":[[8]]})"), "tensor \"x\" has an array at \"shape\"" + whole);
  EXPECT_EQ(entry_refusal(R"({"shape":[9223372036854775808]})"),
            "tensor \"x\" has the number 9223372036854775808 at \"shape\", which takes more than 63 bits");
  EXPECT_EQ(entry_refusal(R"({"dtype":"U8","shape":[8],"data_offsets":[0,4,8]})"),
            "tensor \"x\" data_offsets has 3 elements instead of 2");
  std::string ones = "1";
  for (int dim = 1; dim < 65; ++dim) ones += ",1";
  EXPECT_EQ(entry_refusal("{\"shape\":[" + ones + "]}"), "tensor \"x\" shape has more than 64 elements");
}

TEST(HostileSafetensors, TypesAndSizesThatDoNotFit) {
  EXPECT_EQ(entry_refusal(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})"),
            "tensor \"x\": unknown dtype \"F33\"");
  EXPECT_EQ(entry_refusal(R"({"dtype":"f32","shape":[2],"data_offsets":[0,8]})"),
            "tensor \"x\": unknown dtype \"f32\"");
  EXPECT_EQ(entry_refusal(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
            "tensor \"x\": F32 of shape [3] takes 12 bytes, but data_offsets [0, 8] give it 8");
  EXPECT_EQ(entry_refusal(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"),
            "tensor \"x\": data_offsets [8, 0] do not lie within the file's 8 bytes of data");
  EXPECT_EQ(entry_refusal(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})"),
            "tensor \"x\": data_offsets [4, 12] do not lie within the file's 8 bytes of data");
  EXPECT_EQ(entry_refusal(R"({"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]})"),
            "tensor \"x\": F32 of shape [4294967296, 4294967296, 2] takes more bytes than 63 bits can count");
  // Zero dimensions do not hide an overflow, wherever they stand.
  for (const std::string shape :
       {"[4294967296, 4294967296, 0]", "[0, 4294967296, 4294967296]", "[4294967296, 0, 4294967296]"}) {
    EXPECT_EQ(entry_refusal(R"({"dtype":"U8","shape":)" + shape + R"(,"data_offsets":[0,0]})"),
              "tensor \"x\": U8 of shape " + shape + " takes more bytes than 63 bits can count");
  }
}

TEST(HostileSafetensors, ElementsThatAreNotWholeBytesAreRefusedByName) {
  for (const std::string type : {"F4", "F6_E2M3", "F6_E3M2"}) {
    EXPECT_EQ(entry_refusal(R"({"dtype":")" + type + R"(","shape":[8],"data_offsets":[0,8]})"),
              "tensor \"x\": elements of type " + type + " are not whole bytes and are not supported");
  }
}

TEST(HostileSafetensors, TheNewestTypesOfWholeBytesAreKnown) {
  const TemporaryFolder folder;
  for (const std::string type : {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}) {
    test::put_file(
        folder / type,
        safetensors_bytes(R"({"x":{"dtype":")" + type + R"(","shape":[8],"data_offsets":[0,8]}})", "01234567"));
    EXPECT_EQ(SafetensorsFile::open(folder / type).bytes("x").size(), 8U) << type;
  }
}

TEST(HostileSafetensors, OverlapsHolesAndBytesThatNobodyOwns) {
  const auto two = [](const std::string& first, const std::string& second) {
    return refusal(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
                                         R"(},"b":{"dtype":"U8","shape":[3],"data_offsets":)" + second + "}}",
                                     "01234567"));
  };
  EXPECT_EQ(two("[0,4]", "[3,6]"),
            "tensor \"b\" begins at byte 3 of the data, but what lies before it ends at byte 4: they overlap");
  EXPECT_EQ(two("[0,4]", "[5,8]"),
            "tensor \"b\" begins at byte 5 of the data, but what lies before it ends at byte 4: there is a hole");
  EXPECT_EQ(two("[4,8]", "[1,4]"),
            "tensor \"b\" begins at byte 1 of the data, but what lies before it ends at byte 0: there is a hole");
  EXPECT_EQ(two("[0,4]", "[4,7]"), "the tensors end at byte 7 of the data, but the file has 8 bytes of data");
  EXPECT_EQ(refusal(safetensors_bytes("{}", "x")),
            "the tensors end at byte 0 of the data, but the file has 1 bytes of data");
  EXPECT_EQ(refusal(safetensors_bytes(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                      R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                                      "")),
            "the header has \"a\" twice");
}

TEST(HostileSafetensors, TensorsWithoutBytesLieBetweenOthersOnly) {
  const auto file = [](const std::string& offsets) {
    return safetensors_bytes(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                             R"("e":{"dtype":"F32","shape":[3,0],"data_offsets":)" +
                                 offsets + R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                             "01234567");
  };
  const TemporaryFolder folder;
  for (const std::string offsets : {"[0,0]", "[4,4]", "[8,8]"}) {
    test::put_file(folder / "a", file(offsets));
    EXPECT_TRUE(SafetensorsFile::open(folder / "a").bytes("e").empty()) << offsets;
  }
  EXPECT_EQ(refusal(file("[2,2]")),
            "tensor \"e\" begins at byte 2 of the data, but what lies before it ends at byte 4: they overlap");
  EXPECT_EQ(refusal(file("[9,9]")), "tensor \"e\": data_offsets [9, 9] do not lie within the file's 8 bytes of data");
}

TEST(HostileSafetensors, SpacesMayFollowTheHeaderButNothingElse) {
  const TemporaryFolder folder;
  test::put_file(folder / "a", safetensors_bytes("{}" + std::string(1000, ' '), ""));
  EXPECT_TRUE(SafetensorsFile::open(folder / "a").entries().empty());
  EXPECT_EQ(refusal(safetensors_bytes("{}  {}", "")), "the header is not JSON: mistake at its byte 4");
  EXPECT_EQ(refusal(safetensors_bytes(std::string("{\"a\0\":{}}", 10), "")),
            "the header is not JSON: mistake at its byte 3");
}

TEST(HostileSafetensors, NamesMustBeUtf8) {
  for (const std::string name : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\\ud800"}) {
    EXPECT_TRUE(refusal(safetensors_bytes("{\"" + name + "\":{}}", ""))
                    .starts_with("the header is not JSON: mistake at its byte "))
        << name;
  }
  const TemporaryFolder folder;
  test::put_file(folder / "a",
                 safetensors_bytes(R"({"\u0000é\ud83d\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"));
  EXPECT_TRUE(SafetensorsFile::open(folder / "a").contains(std::string("\0é😀", 7)));
}

// What is not nearly linear in the number of tensors does not end within the test's time.
TEST(HostileSafetensors, ManyTensorsOpenInTime) {
  constexpr int kCount = 200'000;
  std::string header = "{";
  for (int i = 0; i < kCount; ++i) {
    // The first in the header is the last in the data.
    header += fmt::format("{}\"t{}\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[{},{}]}}", i == 0 ? "" : ",", i,
                          kCount - 1 - i, kCount - i);
  }
  const TemporaryFolder folder;
  test::put_file(folder / "a", safetensors_bytes(header + "}", std::string(kCount, 'x')));
  const SafetensorsFile file = SafetensorsFile::open(folder / "a");
  EXPECT_EQ(file.entries().size(), static_cast<std::size_t>(kCount));
  EXPECT_EQ(file.entries().front().name, fmt::format("t{}", kCount - 1));
  for (int i = 0; i < kCount; ++i) ASSERT_TRUE(file.contains(fmt::format("t{}", i)));
  header += R"(,"t7":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  EXPECT_EQ(refusal(safetensors_bytes(header, std::string(kCount, 'x'))), "the header has \"t7\" twice");
}

TEST(HostileSafetensors, NamesAreShownEscapedAndCut) {
  const std::string name(500, 'n');
  EXPECT_EQ(refusal(safetensors_bytes("{\"\\u001b[31m" + name + "\":{}}", "")),
            "tensor \"\\u001b[31m" + std::string(115, 'n') + "\"... lacks dtype");
}

TEST(HostileSafetensors, AFolderIsNotAFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_text<DataError>([&] { SafetensorsFile::open(folder.path()); }),
            folder.path().string() + ": it is a folder\n  fix: name a regular file");
}

TEST(HostileSafetensors, APipeThatNobodyWritesToIsRefusedAtOnce) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "a").c_str(), 0600), 0);
  EXPECT_EQ(error_text<DataError>([&] { SafetensorsFile::open(folder / "a"); }),
            (folder / "a").string() + ": it is a named pipe, not a regular file\n  fix: name a regular file");
}

TEST(HostileSafetensors, TheHolesOfASparseHeaderAreNotRead) {
  const TemporaryFolder folder;
  const std::uint64_t length = 90'000'000;
  std::string begin(sizeof length, '\0');
  std::memcpy(begin.data(), &length, sizeof length);
  test::put_file(folder / "a", begin + "{");
  std::filesystem::resize_file(folder / "a", 100'000'000);
  EXPECT_EQ(error_text<DataError>([&] { SafetensorsFile::open(folder / "a"); }),
            (folder / "a").string() +
                ": the header is not JSON: mistake at its byte 1\n"
                "  fix: the file is damaged or of another format: copy or download it again");
}

TEST(HostileSafetensors, APointerOfGitLfsIsCalledThat) {
  const TemporaryFolder folder;
  test::put_file(folder / "a", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n");
  EXPECT_EQ(error_text<DataError>([&] { SafetensorsFile::open(folder / "a"); }),
            (folder / "a").string() +
                ": is a Git LFS pointer to a file, not the file itself\n"
                "  fix: run `git lfs pull` in its repository, or download the file");
}

TEST(HostileSafetensors, AFileThatIsCutWhileOpenIsToldByReadsAndByANewMap) {
  const TemporaryFolder folder;
  const std::string path = (folder / "a").string();
  test::put_file(path, safetensors_bytes(R"({"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", "01234567"));
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto bytes = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, bytes - 3);
  std::string out(8, '-');
  EXPECT_TRUE(error_text<DataError>([&] {
                file.read("x", 0, std::as_writable_bytes(std::span(out)));
              }).starts_with(fmt::format("{}: ends at byte {}, but 3 more bytes were expected", path, bytes - 3)));
  EXPECT_EQ(error_text<DataError>([&] { file.bytes("x"); }),
            fmt::format("{}: had {} bytes when it was opened and now has {}\n"
                        "  fix: do not write to a file that is being read",
                        path, bytes, bytes - 3));
}

TEST(HostileSafetensors, EveryCutIsRefused) {
  const TemporaryFolder folder;
  const std::string whole = safetensors_bytes(R"({"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", "01234567");
  for (std::size_t count = 0; count < whole.size(); ++count) {
    test::put_file(folder / "a", whole.substr(0, count));
    EXPECT_THROW(SafetensorsFile::open(folder / "a"), DataError) << count << " of " << whole.size() << " bytes";
  }
  test::put_file(folder / "a", whole);
  EXPECT_NO_THROW(SafetensorsFile::open(folder / "a"));
}

// What an accepted file promises, worked out from the entries alone: the sizes follow from the shapes and fill the
// file.
void check_promises(const std::filesystem::path& path, const std::string& bytes) {
  static const std::map<std::string, std::size_t> element = {
      {"F64", 8},     {"F32", 4},     {"F16", 2},     {"BF16", 2},        {"I64", 8},        {"I32", 4},  {"I16", 2},
      {"I8", 1},      {"U64", 8},     {"U32", 4},     {"U16", 2},         {"U8", 1},         {"BOOL", 1}, {"C64", 8},
      {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}};
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  std::size_t at = 8 + header_bytes;
  for (const TensorEntry& entry : file.entries()) {
    std::size_t expected = element.at(entry.dtype);
    for (const std::int64_t size : entry.shape) expected *= static_cast<std::size_t>(size);
    const auto found = file.bytes(entry.name);
    ASSERT_EQ(found.size(), expected) << entry.name;
    ASSERT_LE(at + expected, bytes.size()) << entry.name;
    ASSERT_EQ(std::memcmp(found.data(), bytes.data() + at, expected), 0) << entry.name;
    at += expected;
  }
  ASSERT_EQ(at, bytes.size());
}

TEST(HostileSafetensors, RandomDamageIsRefusedOrHarmless) {
  const TemporaryFolder folder;
  const std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"c":{"dtype":"U8","shape":[],"data_offsets":[32,33]}}  )";
  const std::string whole = safetensors_bytes(header, "the thirty-three bytes of data...");
  const std::string likely = "0123456789,:[]{}\"- .e\\";
  std::mt19937 random(2024);
  int refused = 0;
  int accepted = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = whole;
    for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % (whole.size() - 12);
      const char letter = random() % 2 == 0 ? likely[random() % likely.size()] : static_cast<char>(random());
      switch (random() % 4) {
        case 0:
          bytes.erase(at, 1 + random() % 3);
          break;
        case 1:
          bytes.insert(at, 1, letter);
          break;
        default:
          bytes[at] = letter;
      }
    }
    SCOPED_TRACE("round " + std::to_string(round));
    test::put_file(folder / "a", bytes);
    try {
      check_promises(folder / "a", bytes);
      ++accepted;
    } catch (const DataError& error) {
      ++refused;
      ASSERT_TRUE(error.message().starts_with((folder / "a").string() + ": ")) << error.message();
    }
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(refused, 4000);
  EXPECT_GT(accepted, 50);
}

}  // namespace safetensors_hostile_test
}  // namespace orthant
