#include "orthant/launch/store_protocol.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace orthant::launch {

static_assert(std::endian::native == std::endian::little, "frames are written as this machine keeps numbers");

namespace {

template <class Number>
void append_number(std::string& bytes, Number value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class Number>
Number number_at(std::string_view bytes) {
  Number value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

FrameWriter::FrameWriter(uint64_t id, uint8_t code) : bytes_(kFrameLengthBytes, '\0') {
  append_number(bytes_, id);
  append_number(bytes_, code);
}

void FrameWriter::number(int64_t value) {
  append_number(bytes_, value);
}

void FrameWriter::text(std::string_view value) {
  append_number(bytes_, static_cast<uint32_t>(value.size()));
  bytes_.append(value);
}

std::string FrameWriter::finish() {
  const auto length = static_cast<uint32_t>(bytes_.size() - kFrameLengthBytes);
  std::memcpy(bytes_.data(), &length, sizeof length);
  return std::move(bytes_);
}

FrameReader::FrameReader(std::string_view body) : rest_(body) {
  id_ = number_at<uint64_t>(take(sizeof id_));
  code_ = number_at<uint8_t>(take(sizeof code_));
}

std::string_view FrameReader::take(size_t count) {
  if (rest_.size() < count) throw BadFrame("a frame ends too soon");
  const auto taken = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return taken;
}

int64_t FrameReader::number() {
  return number_at<int64_t>(take(sizeof(int64_t)));
}

std::string_view FrameReader::text(size_t most) {
  const auto length = number_at<uint32_t>(take(sizeof(uint32_t)));
  if (length > most) throw BadFrame(fmt::format("a text of {} bytes where at most {} are taken", length, most));
  return take(length);
}

void FrameReader::expect_end() const {
  if (!at_end()) throw BadFrame(fmt::format("{} bytes too many in a frame", rest_.size()));
}

std::optional<std::string_view> first_frame(std::string_view bytes, size_t most) {
  if (bytes.size() < kFrameLengthBytes) return std::nullopt;
  const auto length = number_at<uint32_t>(bytes);
  if (length < kFrameHeadBytes || length > most) {
    throw BadFrame(fmt::format("a frame of {} bytes, {} to {} are taken", length, kFrameHeadBytes, most));
  }
  if (bytes.size() - kFrameLengthBytes < length) return std::nullopt;
  return bytes.substr(kFrameLengthBytes, length);
}

}  // namespace orthant::launch
