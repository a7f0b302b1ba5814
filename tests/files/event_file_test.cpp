// The decoder here shares nothing with the writer: checksums are computed bit by bit, messages are read field by field.
#include "orthant/files/event_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>
#include <vector>

#include "base/error_text.h"
#include "files/child_process.h"
#include "files/temporary_folder.h"
#include "orthant/files/crc32c.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace event_file_test {

using test::TemporaryFolder;
using Scalars = std::vector<std::pair<std::string_view, double>>;

std::uint32_t bitwise_crc32c(std::string_view text) {
  std::uint32_t crc = 0xffffffff;
  for (const char letter : text) {
    crc ^= static_cast<unsigned char>(letter);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78 : crc >> 1;
  }
  return ~crc;
}

template <typename Number>
Number number_at(std::string_view text, std::size_t at) {
  if (at > text.size() || text.size() - at < sizeof(Number)) throw std::runtime_error("cut short");
  Number number;
  std::memcpy(&number, text.data() + at, sizeof number);
  return number;
}

std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xa282ead8;
  return (rotated >> 17) | (rotated << 15);
}

std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  for (std::size_t at = 0; at < file.size();) {
    const auto length = number_at<std::uint64_t>(file, at);
    EXPECT_EQ(unmasked(number_at<std::uint32_t>(file, at + 8)), bitwise_crc32c(std::string_view(file).substr(at, 8)));
    records.push_back(file.substr(at + 12, length));
    EXPECT_EQ(unmasked(number_at<std::uint32_t>(file, at + 12 + length)), bitwise_crc32c(records.back()));
    at += 16 + length;
  }
  return records;
}

std::uint64_t take_varint(std::string_view& text) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = number_at<unsigned char>(text, 0);
    text.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

// A message's fields by number; each value as its bytes, a varint as 8 of them.
std::multimap<int, std::string> fields_of(std::string_view text) {
  std::multimap<int, std::string> fields;
  while (!text.empty()) {
    const std::uint64_t tag = take_varint(text);
    std::string value;
    std::size_t length = 0;
    switch (tag & 7) {
      case 0: {
        const std::uint64_t number = take_varint(text);
        value.assign(reinterpret_cast<const char*>(&number), sizeof number);
        break;
      }
      case 1:
        length = 8;
        break;
      case 2:
        length = take_varint(text);
        break;
      case 5:
        length = 4;
        break;
      default:
        throw std::runtime_error("unknown wire type");
    }
    if (length > text.size()) throw std::runtime_error("field beyond its message");
    if ((tag & 7) != 0) value = text.substr(0, length);
    text.remove_prefix(length);
    fields.emplace(static_cast<int>(tag >> 3), value);
  }
  return fields;
}

std::string only(const std::multimap<int, std::string>& fields, int number) {
  EXPECT_EQ(fields.count(number), 1U) << "field " << number;
  const auto found = fields.find(number);
  return found == fields.end() ? std::string(8, '\0') : found->second;
}

std::map<std::string, float> scalars_of(const std::string& event) {
  std::map<std::string, float> scalars;
  const auto summary = fields_of(only(fields_of(event), 5));
  for (const auto& [number, value] : summary) {
    EXPECT_EQ(number, 1);
    scalars[only(fields_of(value), 1)] = number_at<float>(only(fields_of(value), 2), 0);
  }
  return scalars;
}

TEST(Crc32c, MatchesPublishedValues) {
  const auto crc = [](std::string_view text) { return crc32c(std::as_bytes(std::span(text))); };
  EXPECT_EQ(crc("123456789"), 0xe3069283);
  EXPECT_EQ(crc(""), 0U);
  EXPECT_EQ(crc(std::string(32, '\0')), 0x8a9136aa);  // RFC 3720, B.4, as the next two
  EXPECT_EQ(crc(std::string(32, '\xff')), 0x62a8ab43);
  std::string ascending(32, '\0');
  for (std::size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<char>(i);
  EXPECT_EQ(crc(ascending), 0x46dd794e);
}

TEST(EventFile, BeginsWithItsVersionUnderTensorBoardsName) {
  const TemporaryFolder folder;
  const EventFile file(folder.path(), "node7", 1234, 1700000000.75);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"events.out.tfevents.1700000000.node7.1234"}));
  const auto records = records_of(read_file(file.path()));
  ASSERT_EQ(records.size(), 1U);
  const auto event = fields_of(records[0]);
  EXPECT_EQ(number_at<double>(only(event, 1), 0), 1700000000.75);
  EXPECT_EQ(only(event, 3), "brain.Event:2");
}

TEST(EventFile, ScalarsComeBackFromAnIndependentReader) {
  const TemporaryFolder folder;
  EventFile file(folder.path(), "h", 1, 10.0);
  const double infinity = std::numeric_limits<double>::infinity();
  file.add_scalars(300, 11.5, Scalars{{"loss", 0.1}, {"größe/µ", -2.5}, {"huge", 1e300}, {"low", -infinity}});
  file.add_scalars(std::int64_t{1} << 40, 12.0, Scalars{{"nan", std::nan("")}});
  file.add_scalars(-1, 13.0, Scalars{});
  EXPECT_EQ(records_of(read_file(file.path())).size(), 1U) << "kept until flush()";
  file.flush();
  const auto records = records_of(read_file(file.path()));
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(number_at<double>(only(fields_of(records[1]), 1), 0), 11.5);
  EXPECT_EQ(number_at<std::int64_t>(only(fields_of(records[1]), 2), 0), 300);
  const float top = std::numeric_limits<float>::infinity();
  EXPECT_EQ(scalars_of(records[1]),
            (std::map<std::string, float>{{"loss", 0.1F}, {"größe/µ", -2.5F}, {"huge", top}, {"low", -top}}));
  EXPECT_EQ(number_at<std::int64_t>(only(fields_of(records[2]), 2), 0), std::int64_t{1} << 40);
  EXPECT_TRUE(std::isnan(scalars_of(records[2]).at("nan")));
  EXPECT_EQ(number_at<std::int64_t>(only(fields_of(records[3]), 2), 0), -1);
}

TEST(EventFile, TextIsAStringTensorOfTheTextPlugin) {
  const TemporaryFolder folder;
  EventFile file(folder.path(), "h", 1, 10.0);
  const std::string text(300, 't');
  file.add_text(5, 11.0, "config", text);
  file.flush();
  const auto records = records_of(read_file(file.path()));
  ASSERT_EQ(records.size(), 2U);
  const auto value = fields_of(only(fields_of(only(fields_of(records[1]), 5)), 1));
  EXPECT_EQ(only(value, 1), "config");
  const auto tensor = fields_of(only(value, 8));
  EXPECT_EQ(number_at<std::uint64_t>(only(tensor, 1), 0), 7U);
  EXPECT_EQ(only(tensor, 8), text);
  const auto dim = fields_of(only(fields_of(only(tensor, 2)), 2));
  EXPECT_EQ(number_at<std::uint64_t>(only(dim, 1), 0), 1U);
  EXPECT_EQ(only(fields_of(only(fields_of(only(value, 9)), 1)), 1), "text");
}

TEST(EventFile, ManyRecordsFlushThemselvesAndTheLastOnesAtTheEnd) {
  const TemporaryFolder folder;
  std::filesystem::path path;
  {
    EventFile file(folder.path(), "h", 1, 10.0);
    path = file.path();
    for (int step = 1; step <= 5000; ++step) file.add_scalars(step, 10.0 + step, Scalars{{"loss", 1.0 / step}});
    EXPECT_GT(std::filesystem::file_size(path), 64U << 10);
  }
  const auto records = records_of(read_file(path));
  ASSERT_EQ(records.size(), 5001U);
  for (int step = 1; step <= 5000; ++step) {
    ASSERT_EQ(scalars_of(records[static_cast<std::size_t>(step)]).at("loss"), static_cast<float>(1.0 / step));
  }
}

TEST(EventFile, NeverWritesIntoAFileThatExists) {
  const TemporaryFolder folder;
  const EventFile file(folder.path(), "h", 1, 10.0);
  EXPECT_EQ(error_text<DataError>([&] { EventFile(folder.path(), "h", 1, 10.9); }),
            file.path().string() + ": open failed: File exists");
}

TEST(EventFile, EndsWithAWholeRecordWhenTheDeviceIsFull) {
  const TemporaryFolder folder;
  const auto path = folder / "events.out.tfevents.0000000010.h.1";
  EXPECT_TRUE(test::true_with_file_limit(200, [&] {
    EventFile file(folder.path(), "h", 1, 10.0);
    file.add_scalars(1, 11.0, Scalars{{"loss", 1.0}});
    file.flush();
    file.add_text(1, 11.0, "text", std::string(500, 't'));
    return error_text<DataError>([&] { file.flush(); }).find("File too large") != std::string::npos;
  }));
  EXPECT_EQ(records_of(read_file(path)).size(), 2U);
}

}  // namespace event_file_test
}  // namespace orthant
