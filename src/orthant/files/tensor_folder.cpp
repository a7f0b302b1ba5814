#include "orthant/files/tensor_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/base/printable.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/safetensors_header.h"
#include "orthant/files/tensor_index.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxOpenFiles = 8;

// The names of the folder's files that end so, in order.
std::vector<std::string> names_ending(const fs::path& folder, std::string_view suffix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (std::string name = entry->path().filename(); name.ends_with(suffix)) names.push_back(std::move(name));
  }
  if (error) throw_io_error(folder, "listing", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

[[noreturn]] void refuse_folder(const fs::path& folder) {
  const auto tensors = names_ending(folder, ".safetensors");
  if (!tensors.empty()) {
    throw DataError(
        fmt::format("{}: has neither {} nor {}, but {}{}", folder.string(), kSingleTensorFile, kTensorIndexFile,
                    tensors.front(), tensors.size() > 1 ? fmt::format(" and {} more", tensors.size() - 1) : ""),
        {.remedy =
             tensors.size() > 1 ? fmt::format("download {} too", kTensorIndexFile) : "give the path of that file"});
  }
  for (const std::string& name : names_ending(folder, "")) {
    if (is_pickle_name(name)) {
      throw DataError(fmt::format("{}: has no safetensors, only {}", folder.string(), name),
                      {.remedy = std::string(kPickleRemedy)});
    }
  }
  throw DataError(fmt::format("{}: has neither {} nor {}", folder.string(), kSingleTensorFile, kTensorIndexFile),
                  {.remedy = "give the folder of a model, or a .safetensors file"});
}

struct Listing {
  fs::path folder;
  std::vector<std::string> files;
  std::optional<TensorIndex> index;
};

Listing list_files(const fs::path& path) {
  if (!is_there(path)) {
    throw DataError(fmt::format("{}: no such file or folder", path.string()),
                    {.remedy = "give the folder of a model, or a .safetensors file"});
  }
  if (!is_folder(path)) {
    const std::string name = path.filename().string();
    if (is_pickle_name(name)) {
      throw DataError(fmt::format("{}: is a pickle file", path.string()), {.remedy = std::string(kPickleRemedy)});
    }
    if (name.ends_with(".json")) {
      throw DataError(fmt::format("{}: is no file of tensors", path.string()),
                      {.remedy = "give the folder that it lies in"});
    }
    return {path.parent_path(), {name}, std::nullopt};
  }
  if (is_taken(path / kSingleTensorFile)) return {path, {std::string(kSingleTensorFile)}, std::nullopt};
  if (!is_taken(path / kTensorIndexFile)) refuse_folder(path);
  TensorIndex index = read_tensor_index(path / kTensorIndexFile);
  std::vector<std::string> files = index.files();
  for (const std::string& file : files) {
    if (is_taken(path / file)) continue;
    const auto missing = std::count_if(files.begin(), files.end(), [&](const auto& f) { return !is_taken(path / f); });
    throw DataError(fmt::format("{}: names {}, which the folder lacks ({} of its {} files are missing)",
                                (path / kTensorIndexFile).string(), shown_name(file), missing, files.size()),
                    {.remedy = "download the missing files"});
  }
  return {path, std::move(files), std::move(index)};
}

bool by_name(const FolderTensor& tensor, std::string_view name) {
  return tensor.entry.name < name;
}

}  // namespace

struct TensorFolder::State {
  explicit State(const fs::path& given) : path(given) {
    Listing listing = list_files(path);
    folder = std::move(listing.folder);
    files = std::move(listing.files);
    for (const std::string& file : files) {
      for (const TensorEntry& entry : opened(file).entries()) tensors.push_back({entry, file});
    }
    std::sort(tensors.begin(), tensors.end(), [](const FolderTensor& left, const FolderTensor& right) {
      return std::tie(left.entry.name, left.file) < std::tie(right.entry.name, right.file);
    });
    for (std::size_t i = 1; i < tensors.size(); ++i) {
      if (tensors[i].entry.name != tensors[i - 1].entry.name) continue;
      throw DataError(
          fmt::format("{}: tensor {} lies in {} and in {}", path.string(), shown_name(tensors[i].entry.name),
                      printable(tensors[i - 1].file), printable(tensors[i].file)),
          {.remedy = "the files are of two models: download them again into an empty folder"});
    }
    if (listing.index) check_promises(*listing.index);
  }

  const FolderTensor* find(std::string_view name) const {
    const auto found = std::lower_bound(tensors.begin(), tensors.end(), name, by_name);
    return found != tensors.end() && found->entry.name == name ? &*found : nullptr;
  }

  void check_promises(const TensorIndex& index) const {
    for (const auto& [name, file] : index.files_by_tensor) {
      const FolderTensor* const found = find(name);
      if (found != nullptr && found->file == file) continue;
      const std::string where = found != nullptr ? fmt::format("; it lies in {}", printable(found->file)) : "";
      throw DataError(fmt::format("{}: promises tensor {} in {}, which lacks it{}", (path / kTensorIndexFile).string(),
                                  shown_name(name), printable(file), where),
                      {.remedy = "index and files are of two models: download both again"});
    }
  }

  // The least recently used file is closed when there are too many; what still reads from it keeps it open meanwhile.
  SafetensorsFile opened(const std::string& file) {
    const std::lock_guard lock(mutex);
    auto found =
        std::find_if(open_files.begin(), open_files.end(), [&](const auto& open) { return open.first == file; });
    if (found == open_files.end()) {
      if (open_files.size() == kMaxOpenFiles) open_files.erase(open_files.begin());
      open_files.emplace_back(file, SafetensorsFile::open(folder / file));
    } else {
      std::rotate(found, found + 1, open_files.end());
    }
    return open_files.back().second;
  }

  // The file of the tensor, which must still hold what it held.
  SafetensorsFile file_of(const FolderTensor& tensor) {
    SafetensorsFile file = opened(tensor.file);
    if (file.contains(tensor.entry.name) && file.entry(tensor.entry.name) == tensor.entry) return file;
    throw DataError(fmt::format("{}: tensor {} is not what it was when the file was opened first", file.path().string(),
                                shown_name(tensor.entry.name)),
                    {.remedy = "do not write to a file that is being read"});
  }

  fs::path path;
  fs::path folder;
  std::vector<std::string> files;
  std::vector<FolderTensor> tensors;
  std::mutex mutex;
  std::vector<std::pair<std::string, SafetensorsFile>> open_files;  // the most recently used last
  std::atomic<std::int64_t> bytes_read{0};
};

TensorFolder::TensorFolder(std::shared_ptr<State> state) : state_(std::move(state)) {}

TensorFolder TensorFolder::open(const fs::path& path) {
  return TensorFolder(std::make_shared<State>(path));
}

const fs::path& TensorFolder::path() const {
  return state_->path;
}

const std::vector<FolderTensor>& TensorFolder::tensors() const {
  return state_->tensors;
}

const std::vector<std::string>& TensorFolder::files() const {
  return state_->files;
}

bool TensorFolder::contains(std::string_view name) const {
  return state_->find(name) != nullptr;
}

const FolderTensor& TensorFolder::tensor(std::string_view name) const {
  if (const FolderTensor* const found = state_->find(name)) return *found;
  std::vector<std::string> names;
  names.reserve(tensors().size());
  for (const FolderTensor& tensor : tensors()) names.push_back(tensor.entry.name);
  const auto near = nearest(name, names);
  throw DataError(fmt::format("{}: no tensor {} among its {}", path().string(), shown_name(name), names.size()),
                  {.remedy = near ? fmt::format("did you mean {}?", shown_name(*near)) : ""});
}

void TensorFolder::read(std::string_view name, std::span<std::byte> out) const {
  const std::int64_t bytes = tensor_bytes(tensor(name).entry);
  if (static_cast<std::int64_t>(out.size()) != bytes) {
    throw InternalError(fmt::format("{}: tensor {} of {} bytes was to be read into {}", path().string(),
                                    shown_name(name), bytes, out.size()));
  }
  read(name, 0, out);
}

void TensorFolder::read(std::string_view name, std::int64_t offset, std::span<std::byte> out) const {
  state_->file_of(tensor(name)).read(name, offset, out);
  state_->bytes_read += static_cast<std::int64_t>(out.size());
}

void TensorFolder::read_slice(std::string_view name, std::span<const std::int64_t> offsets,
                              std::span<const std::int64_t> lengths, std::span<std::byte> out) const {
  state_->file_of(tensor(name)).read_slice(name, offsets, lengths, out);
  state_->bytes_read += static_cast<std::int64_t>(out.size());
}

std::int64_t TensorFolder::bytes_read() const {
  return state_->bytes_read;
}

}  // namespace orthant
