#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/files/element_type.h"
#include "orthant/files/file_map.h"
#include "orthant/files/safetensors.h"
#include "orthant/files/safetensors_header.h"
#include "orthant/files/slice_runs.h"

namespace orthant {
namespace {

constexpr std::int64_t kLengthBytes = 8;

// What a clone without the large files has in their place: three lines of text.
void refuse_pointer_file(const FileHandle& file, std::int64_t file_bytes) {
  constexpr std::string_view kBegin = "version https://git-lfs.github.com/";
  std::string begin(kBegin.size(), '\0');
  if (file_bytes < static_cast<std::int64_t>(begin.size())) return;
  file.read_exactly(0, std::as_writable_bytes(std::span(begin)));
  if (begin != kBegin) return;
  throw DataError(fmt::format("{}: is a Git LFS pointer to a file, not the file itself", file.path().string()),
                  {.remedy = "run `git lfs pull` in its repository, or download the file"});
}

// Piece by piece, up to a zero byte, which no header has: the holes of a sparse file take no memory. The parser refuses
// what is read.
std::string read_header(const FileHandle& file, std::size_t length) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  std::string text;
  while (text.size() < length &&
         text.find('\0', text.size() - std::min(text.size(), kPieceBytes)) == std::string::npos) {
    const std::size_t had = text.size();
    text.resize(had + std::min(kPieceBytes, length - had));
    file.read_exactly(kLengthBytes + static_cast<std::int64_t>(had),
                      std::as_writable_bytes(std::span(text).subspan(had)));
  }
  return text;
}

// The header is read, not mapped, so that a file that shrinks meanwhile is an error and not a signal.
std::string header_of(const FileHandle& file, std::int64_t file_bytes) {
  if (file_bytes < kLengthBytes) {
    throw DataError(fmt::format("{}: {} bytes are too few for a safetensors file", file.path().string(), file_bytes),
                    {.remedy = "the file was cut short: copy or download it again"});
  }
  std::uint64_t length = 0;
  file.read_exactly(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > static_cast<std::uint64_t>(file_bytes - kLengthBytes)) {
    refuse_pointer_file(file, file_bytes);
    throw DataError(fmt::format("{}: a header of {} bytes does not fit into the file's {} bytes", file.path().string(),
                                length, file_bytes),
                    {.remedy = "the file was cut short or is of another format: give a whole .safetensors file"});
  }
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeaderBytes)) {
    throw DataError(fmt::format("{}: a header of {} bytes is longer than the format's {}", file.path().string(), length,
                                kMaxSafetensorsHeaderBytes),
                    {.remedy = "the file is damaged or of another format: give a .safetensors file"});
  }
  return read_header(file, static_cast<std::size_t>(length));
}

}  // namespace

struct SafetensorsFile::State {
  explicit State(const std::filesystem::path& path) : file(FileHandle::open_regular(path)), file_bytes(file.size()) {
    const std::string text = header_of(file, file_bytes);
    data_begin = kLengthBytes + static_cast<std::int64_t>(text.size());
    header = parse_safetensors_header(text, file_bytes - data_begin, path);
  }

  // The index of the tensor, when there is one.
  std::optional<std::size_t> find(std::string_view name) const {
    const auto found = std::lower_bound(
        header.by_name.begin(), header.by_name.end(), name,
        [&](std::size_t index, std::string_view wanted) { return header.entries[index].name < wanted; });
    if (found == header.by_name.end() || header.entries[*found].name != name) return std::nullopt;
    return *found;
  }

  std::size_t place(std::string_view name) const {
    if (const auto found = find(name)) return *found;
    std::vector<std::string> names;
    names.reserve(header.entries.size());
    for (const TensorEntry& entry : header.entries) names.push_back(entry.name);
    const auto near = nearest(name, names);
    throw DataError(fmt::format("{}: no tensor {} among its {}", file.path().string(), shown_name(name), names.size()),
                    {.remedy = near ? fmt::format("did you mean {}?", shown_name(*near)) : ""});
  }

  const std::byte* mapped() const {
    const std::lock_guard lock(map_mutex);
    if (!map) {
      if (const std::int64_t found = file.size(); found != file_bytes) {
        throw DataError(
            fmt::format("{}: had {} bytes when it was opened and now has {}", file.path().string(), file_bytes, found),
            {.remedy = "do not write to a file that is being read"});
      }
      map = std::make_unique<FileMap>(file, file_bytes);
    }
    return map->data();
  }

  // Of the tensor with that index.
  void read_bytes(std::size_t place, std::int64_t offset, std::span<std::byte> out) const {
    file.read_exactly(data_begin + header.offsets[place] + offset, out);
    bytes_read += static_cast<std::int64_t>(out.size());
  }

  FileHandle file;
  std::int64_t file_bytes;
  std::int64_t data_begin = 0;
  SafetensorsHeader header;
  mutable std::mutex map_mutex;
  mutable std::unique_ptr<FileMap> map;
  mutable std::atomic<std::int64_t> bytes_read{0};
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
  return state_->find(name).has_value();
}

const TensorEntry& SafetensorsFile::entry(std::string_view name) const {
  return state_->header.entries[state_->place(name)];
}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name) const {
  const std::size_t place = state_->place(name);
  const std::int64_t begin = state_->data_begin + state_->header.offsets[place];
  return {state_->mapped() + begin, static_cast<std::size_t>(tensor_bytes(state_->header.entries[place]))};
}

void SafetensorsFile::read(std::string_view name, std::int64_t offset, std::span<std::byte> out) const {
  const std::size_t place = state_->place(name);
  const std::int64_t bytes = tensor_bytes(state_->header.entries[place]);
  const auto count = static_cast<std::int64_t>(out.size());
  if (offset < 0 || count > bytes || offset > bytes - count) {
    throw InternalError(fmt::format("{}: bytes [{}, {} + {}) of tensor {}, which has {}", path().string(), offset,
                                    offset, count, shown_name(name), bytes));
  }
  state_->read_bytes(place, offset, out);
}

void SafetensorsFile::read_slice(std::string_view name, std::span<const std::int64_t> offsets,
                                 std::span<const std::int64_t> lengths, std::span<std::byte> out) const {
  const std::size_t place = state_->place(name);
  const TensorEntry& tensor = state_->header.entries[place];
  if (!is_box_of(tensor.shape, offsets, lengths)) {
    throw InternalError(fmt::format("{}: box [{}] + [{}] does not lie within tensor {} of shape [{}]", path().string(),
                                    fmt::join(offsets, ", "), fmt::join(lengths, ", "), shown_name(name),
                                    fmt::join(tensor.shape, ", ")));
  }
  const std::int64_t bytes = tensor_bytes({tensor.name, tensor.dtype, {lengths.begin(), lengths.end()}});
  if (static_cast<std::int64_t>(out.size()) != bytes) {
    throw InternalError(fmt::format("{}: a slice of {} bytes of tensor {} was to be read into {}", path().string(),
                                    bytes, shown_name(name), out.size()));
  }
  for_each_run(tensor.shape, offsets, lengths, *element_bytes(tensor.dtype),
               [&](std::int64_t begin, std::int64_t run_bytes) {
                 const auto count = static_cast<std::size_t>(run_bytes);
                 state_->read_bytes(place, begin, out.first(count));
                 out = out.subspan(count);
               });
}

std::int64_t SafetensorsFile::bytes_read() const {
  return state_->bytes_read;
}

}  // namespace orthant
