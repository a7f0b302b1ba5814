#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <functional>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/files/safetensors.h"
#include "orthant/files/safetensors_header.h"

namespace orthant {
namespace {

constexpr std::int64_t kLengthBytes = 8;

// The file's bytes, mapped for reading.
class FileMap {
 public:
  explicit FileMap(const FileHandle& file) : bytes_(static_cast<std::size_t>(file.size())) {
    void* const memory = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file.fd(), 0);
    if (memory == MAP_FAILED) throw_io_error(file.path(), fmt::format("mmap of {} bytes", bytes_), errno);
    data_ = static_cast<const std::byte*>(memory);
  }
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;
  ~FileMap() { ::munmap(const_cast<std::byte*>(data_), bytes_); }

  const std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  const std::byte* data_;
};

// The header is read, not mapped, so that a file that shrinks meanwhile is an error and not a signal.
std::string header_of(const FileHandle& file, std::int64_t file_bytes) {
  if (!file.is_regular()) throw DataError(fmt::format("{}: not a file", file.path().string()));
  if (file_bytes < kLengthBytes) {
    throw DataError(fmt::format("{}: {} bytes are too few for a safetensors file", file.path().string(), file_bytes),
                    {.remedy = "the file was cut short: copy or download it again"});
  }
  std::uint64_t length = 0;
  file.read_exactly(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > static_cast<std::uint64_t>(file_bytes - kLengthBytes)) {
    throw DataError(fmt::format("{}: a header of {} bytes does not fit into the file's {} bytes", file.path().string(),
                                length, file_bytes),
                    {.remedy = "the file was cut short or is of another format: give a whole .safetensors file"});
  }
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeaderBytes)) {
    throw DataError(fmt::format("{}: a header of {} bytes is longer than the format's {}", file.path().string(), length,
                                kMaxSafetensorsHeaderBytes));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read_exactly(kLengthBytes, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

struct SafetensorsFile::State {
  explicit State(const std::filesystem::path& path) : file(path, O_RDONLY), file_bytes(file.size()) {
    const std::string text = header_of(file, file_bytes);
    data_begin = kLengthBytes + static_cast<std::int64_t>(text.size());
    header = parse_safetensors_header(text, file_bytes - data_begin, path);
    for (std::size_t i = 0; i < header.entries.size(); ++i) places.emplace(header.entries[i].name, i);
    map = std::make_unique<FileMap>(file);
  }

  std::size_t place(std::string_view name) const {
    const auto found = places.find(name);
    if (found != places.end()) return found->second;
    std::vector<std::string> names;
    names.reserve(header.entries.size());
    for (const TensorEntry& entry : header.entries) names.push_back(entry.name);
    const auto near = nearest(name, names);
    throw DataError(fmt::format("{}: no tensor {} among its {}", file.path().string(), shown_name(name), names.size()),
                    {.remedy = near ? fmt::format("did you mean {}?", shown_name(*near)) : ""});
  }

  FileHandle file;
  std::int64_t file_bytes;
  std::int64_t data_begin = 0;
  SafetensorsHeader header;
  std::map<std::string, std::size_t, std::less<>> places;
  std::unique_ptr<FileMap> map;
};

SafetensorsFile::SafetensorsFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  return SafetensorsFile(std::make_shared<const State>(path));
}

const std::filesystem::path& SafetensorsFile::path() const {
  return state_->file.path();
}

const std::vector<TensorEntry>& SafetensorsFile::entries() const {
  return state_->header.entries;
}

const SafetensorsMetadata& SafetensorsFile::metadata() const {
  return state_->header.metadata;
}

bool SafetensorsFile::contains(std::string_view name) const {
  return state_->places.contains(name);
}

const TensorEntry& SafetensorsFile::entry(std::string_view name) const {
  return state_->header.entries[state_->place(name)];
}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name) const {
  const std::size_t place = state_->place(name);
  const std::int64_t begin = state_->data_begin + state_->header.offsets[place];
  return {state_->map->data() + begin, static_cast<std::size_t>(tensor_bytes(state_->header.entries[place]))};
}

void SafetensorsFile::read(std::string_view name, std::int64_t offset, std::span<std::byte> out) const {
  const std::size_t place = state_->place(name);
  const std::int64_t bytes = tensor_bytes(state_->header.entries[place]);
  const auto count = static_cast<std::int64_t>(out.size());
  if (offset < 0 || count > bytes || offset > bytes - count) {
    throw InternalError(fmt::format("{}: bytes [{}, {} + {}) of tensor {}, which has {}", path().string(), offset,
                                    offset, count, shown_name(name), bytes));
  }
  state_->file.read_exactly(state_->data_begin + state_->header.offsets[place] + offset, out);
}

}  // namespace orthant
