#include "orthant/files/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "orthant/base/error.h"
#include "orthant/files/beneath.h"
#include "orthant/files/crc32c.h"

namespace orthant {
namespace {

constexpr std::size_t kMaxKeptBytes = std::size_t{64} << 10;

// The wire types of protobuf that events use.
enum class Wire : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename Number>
void append_little_endian(std::string& to, Number value) {
  for (std::size_t i = 0; i < sizeof value; ++i) to += static_cast<char>((value >> (8 * i)) & 0xff);
}

// A protobuf message, appended field by field. Field numbers are those of tensorflow's event.proto, summary.proto and
// tensor.proto.
class Message {
 public:
  Message& number(int field, std::uint64_t value) {
    begin(field, Wire::kVarint);
    varint(value);
    return *this;
  }
  Message& real64(int field, double value) {
    begin(field, Wire::kFixed64);
    append_little_endian(text_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real32(int field, float value) {
    begin(field, Wire::kFixed32);
    append_little_endian(text_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    begin(field, Wire::kBytes);
    varint(value.size());
    text_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.text_); }

  const std::string& text() const { return text_; }

 private:
  void begin(int field, Wire wire) {
    varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>((value & 0x7f) | 0x80);
    text_ += static_cast<char>(value);
  }

  std::string text_;
};

// Beyond the range of float: infinity.
float narrowed(double value) {
  if (std::abs(value) <= std::numeric_limits<float>::max() || std::isnan(value)) return static_cast<float>(value);
  return value > 0 ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity();
}

Message event_at(std::int64_t step, double wall_time) {
  Message event;
  event.real64(1, wall_time);
  if (step != 0) event.number(2, static_cast<std::uint64_t>(step));
  return event;
}

std::filesystem::path file_name(std::string_view hostname, std::int64_t pid, double start_time) {
  return fmt::format("events.out.tfevents.{:010d}.{}.{}", static_cast<std::int64_t>(start_time), hostname, pid);
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::string_view hostname, std::int64_t pid,
                     double start_time)
    : file_(open_beneath(folder, file_name(hostname, pid, start_time), O_WRONLY | O_CREAT | O_EXCL | O_APPEND)) {
  add_record(event_at(0, start_time).bytes(3, "brain.Event:2").text());
  flush();
}

EventFile::~EventFile() {
  try {
    flush();
  } catch (const DataError&) {
    // A destructor has nobody to tell; who must know calls flush().
  }
}

void EventFile::add_scalars(std::int64_t step, double wall_time,
                            std::span<const std::pair<std::string_view, double>> values) {
  Message summary;
  for (const auto& [tag, value] : values) summary.message(1, Message().bytes(1, tag).real32(2, narrowed(value)));
  add_record(event_at(step, wall_time).message(5, summary).text());
}

void EventFile::add_text(std::int64_t step, double wall_time, std::string_view tag, std::string_view text) {
  constexpr std::uint64_t kStringType = 7;
  const Message shape = Message().message(2, Message().number(1, 1));  // [1]
  const Message tensor = Message().number(1, kStringType).message(2, shape).bytes(8, text);
  const Message plugin = Message().message(1, Message().bytes(1, "text"));
  const Message value = Message().bytes(1, tag).message(8, tensor).message(9, plugin);
  add_record(event_at(step, wall_time).message(5, Message().message(1, value)).text());
}

// Length, its checksum, the event, its checksum.
void EventFile::add_record(const std::string& event) {
  std::string length;
  append_little_endian(length, static_cast<std::uint64_t>(event.size()));
  kept_ += length;
  append_little_endian(kept_, masked_crc32c(std::as_bytes(std::span(length))));
  kept_ += event;
  append_little_endian(kept_, masked_crc32c(std::as_bytes(std::span(event))));
  if (kept_.size() >= kMaxKeptBytes) flush();
}

void EventFile::flush() {
  file_.append_all(std::as_bytes(std::span(kept_)));
  kept_.clear();
}

}  // namespace orthant
