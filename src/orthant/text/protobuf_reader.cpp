#include "orthant/text/protobuf_reader.h"

#include <fmt/format.h>

#include <bit>

#include "orthant/base/error.h"

namespace orthant {

bool ProtobufReader::next() {
  if (rest_.empty()) return false;
  const auto key = read_varint();
  const auto wire = static_cast<int>(key & 7);
  number_ = static_cast<std::uint32_t>(key >> 3);
  if (key >> 3 == 0 || key >> 3 > 0x1fffffff) refuse(fmt::format("a field has the number {}", key >> 3));
  wire_ = static_cast<Wire>(wire);
  if (wire_ == Wire::integer) {
    integer_ = read_varint();
  } else if (wire_ == Wire::bytes) {
    bytes_ = read_bytes(read_varint());
  } else if (wire_ == Wire::four_bytes || wire_ == Wire::eight_bytes) {
    bytes_ = read_bytes(wire_ == Wire::four_bytes ? 4 : 8);
  } else {
    refuse(fmt::format("field {} has the wire type {}", number_, wire));
  }
  return true;
}

std::string_view ProtobufReader::bytes() const {
  expect(Wire::bytes);
  return bytes_;
}

std::int64_t ProtobufReader::integer() const {
  expect(Wire::integer);
  return static_cast<std::int64_t>(integer_);
}

float ProtobufReader::real() const {
  expect(Wire::four_bytes);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < 4; ++i) bits |= std::uint32_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
  return std::bit_cast<float>(bits);
}

std::uint64_t ProtobufReader::read_varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(read_bytes(1)[0]);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
  refuse("a number is longer than ten bytes");
}

std::string_view ProtobufReader::read_bytes(std::uint64_t count) {
  if (count > rest_.size()) refuse(fmt::format("a field of {} bytes has only {} left", count, rest_.size()));
  const auto taken = rest_.substr(0, static_cast<std::size_t>(count));
  rest_.remove_prefix(static_cast<std::size_t>(count));
  return taken;
}

void ProtobufReader::expect(Wire wire) const {
  if (wire_ == wire) return;
  refuse(
      fmt::format("field {} has the wire type {}, not {}", number_, static_cast<int>(wire_), static_cast<int>(wire)));
}

void ProtobufReader::refuse(const std::string& what) const {
  throw DataError(fmt::format("{}: this is not a SentencePiece model: {}", source_, what),
                  {.remedy = "the file may be cut off or of another kind: copy it again"});
}

}  // namespace orthant
