// A safetensors file of any bytes, opened as users open one. An accepted file must fill itself exactly, and its three
// ways of reading (map, bytes, boxes) must agree; a file written from it must be accepted again.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/files/element_type.h"
#include "orthant/files/safetensors.h"
#include "orthant/files/safetensors_header.h"

namespace {

using namespace orthant;

void require(bool holds) {
  if (!holds) std::abort();
}

// The first elements of each dimension but one, and the rest of that one: as many runs as the shape allows.
void check_slice(const SafetensorsFile& file, const TensorEntry& entry, std::span<const std::byte> bytes) {
  std::vector<std::int64_t> offsets(entry.shape.size(), 0);
  std::vector<std::int64_t> lengths = entry.shape;
  if (!lengths.empty() && lengths.back() > 1) {
    offsets.back() = 1;
    --lengths.back();
  }
  std::vector<std::byte> expected;
  if (!lengths.empty() && !bytes.empty()) {
    const auto element = static_cast<std::size_t>(*element_bytes(entry.dtype));
    const std::size_t row = element * static_cast<std::size_t>(entry.shape.back());
    for (std::size_t at = 0; at < bytes.size(); at += row) {
      const auto part = bytes.subspan(at, row).subspan(element * static_cast<std::size_t>(offsets.back()));
      expected.insert(expected.end(), part.begin(), part.end());
    }
  } else {
    expected.assign(bytes.begin(), bytes.end());
  }
  std::vector<std::byte> found(expected.size());
  const std::int64_t before = file.bytes_read();
  file.read_slice(entry.name, offsets, lengths, found);
  require(found == expected);
  require(file.bytes_read() - before == static_cast<std::int64_t>(found.size()));
}

void check_file(const std::string& path, std::size_t size) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::int64_t data_bytes = 0;
  for (const TensorEntry& entry : file.entries()) {
    require(file.entry(entry.name) == entry);
    const auto bytes = file.bytes(entry.name);
    require(static_cast<std::int64_t>(bytes.size()) == tensor_bytes(entry));
    std::vector<std::byte> copy(bytes.size());
    file.read(entry.name, 0, copy);
    require(std::equal(copy.begin(), copy.end(), bytes.begin(), bytes.end()));
    check_slice(file, entry, bytes);
    data_bytes += tensor_bytes(entry);
  }
  require(data_bytes <= static_cast<std::int64_t>(size));
  const std::string text = safetensors_header_text(file.entries(), file.metadata(), "written");
  const SafetensorsHeader again = parse_safetensors_header(std::string_view(text).substr(8), data_bytes, "written");
  require(again.entries == file.entries() && again.metadata == file.metadata());
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

// Changes of the header move its end: mostly the length before it follows, so that the header is looked at.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (size <= 8 || seed % 8 == 0) return size;
  const std::span<std::uint8_t> header = std::span(data, size).subspan(8);
  const auto last = std::find(header.rbegin(), header.rend(), '}');
  const auto length = static_cast<std::uint64_t>(header.rend() - last);
  if (length > 0) std::memcpy(data, &length, sizeof length);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int memory = memfd_create("fuzz_safetensors", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(memory);
  require(memory >= 0 && ftruncate(memory, 0) == 0);
  require(pwrite(memory, data, size, 0) == static_cast<ssize_t>(size));
  try {
    check_file(path, size);
  } catch (const orthant::DataError&) {
  }
  return 0;
}
