// The fields of a message in protobuf's wire format, one after the other, without its schema: who reads a message picks
// the fields it knows and skips the others. Nothing is copied, and nothing is read beyond the message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace orthant {

class ProtobufReader {
 public:
  // `source` is what errors call the file. The message must outlive the reader.
  ProtobufReader(std::string_view message, const std::string& source) : rest_(message), source_(source) {}

  // Goes to the next field; false at the end. DataError for a field that is cut off or of an unknown wire type.
  bool next();

  std::uint32_t number() const { return number_; }
  // The value of the field; DataError when it has another wire type.
  std::string_view bytes() const;
  std::int64_t integer() const;
  bool flag() const { return integer() != 0; }
  float real() const;

 private:
  enum class Wire { integer = 0, eight_bytes = 1, bytes = 2, four_bytes = 5 };

  std::uint64_t read_varint();
  std::string_view read_bytes(std::uint64_t count);
  void expect(Wire wire) const;
  [[noreturn]] void refuse(const std::string& what) const;

  std::string_view rest_;
  std::string source_;
  std::uint32_t number_ = 0;
  Wire wire_ = Wire::integer;
  std::uint64_t integer_ = 0;
  std::string_view bytes_;
};

}  // namespace orthant
