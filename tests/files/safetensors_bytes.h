// Safetensors files built byte by byte, without the writer under test.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace orthant::test {

// As a new file: some file systems bring a rewritten one to the device on closing, which takes milliseconds.
inline void put_file(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string length_text(std::uint64_t length) {
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text;
}

inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  return length_text(header.size()) + header + data;
}

}  // namespace orthant::test
