#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/files/atomic_folder.h"
#include "orthant/files/element_type.h"
#include "orthant/files/safetensors_header.h"
#include "orthant/files/tensor_folder.h"
#include "orthant/files/tensor_index.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace {

void check_entries(const std::filesystem::path& folder, const std::vector<TensorEntry>& entries,
                   const TensorFolderOptions& options) {
  if (options.max_shard_bytes < 1) {
    throw ConfigError(fmt::format("shards of {} bytes hold nothing", options.max_shard_bytes),
                      {.remedy = "set the largest size of a shard to 1 byte or more"});
  }
  std::set<std::string_view> names;
  for (const TensorEntry& entry : entries) {
    if (names.insert(entry.name).second) continue;
    throw DataError(fmt::format("{}: tensor name {} is given twice", folder.string(), shown_name(entry.name)),
                    {.remedy = "give each tensor a name of its own"});
  }
}

// In the order given besides.
std::vector<TensorEntry> wide_first(std::vector<TensorEntry> entries) {
  std::map<std::int64_t, std::vector<TensorEntry>, std::greater<>> by_width;
  for (TensorEntry& entry : entries) by_width[*element_bytes(entry.dtype)].push_back(std::move(entry));
  entries.clear();
  for (auto& [width, same] : by_width) std::move(same.begin(), same.end(), std::back_inserter(entries));
  return entries;
}

// Fills one shard after the other in the order given; inside a shard wide elements come first, so that all are aligned.
std::vector<std::vector<TensorEntry>> cut_into_shards(const std::filesystem::path& folder,
                                                      const std::vector<TensorEntry>& entries, std::int64_t max_bytes) {
  std::vector<std::vector<TensorEntry>> shards(1);
  std::int64_t filled = 0;
  for (const TensorEntry& entry : entries) {
    const std::int64_t bytes = tensor_bytes_in(folder, entry);
    if (bytes > max_bytes - filled && !shards.back().empty()) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(entry);
    filled = std::min(bytes, std::numeric_limits<std::int64_t>::max() - filled) + filled;
  }
  for (auto& shard : shards) shard = wide_first(std::move(shard));
  return shards;
}

void write_shard(const std::filesystem::path& path, const std::vector<TensorEntry>& entries, const TensorSource& source,
                 const SafetensorsMetadata& metadata) {
  SafetensorsWriter writer(path, entries, metadata);
  for (const TensorEntry& entry : entries) {
    if (tensor_bytes(entry) == 0) continue;
    source(entry, [&](std::span<const std::byte> bytes) { writer.write(entry.name, bytes); });
  }
  writer.finish();
}

}  // namespace

std::vector<std::string> write_tensor_files(const std::filesystem::path& folder,
                                            const std::vector<TensorEntry>& entries, const TensorSource& source,
                                            const TensorFolderOptions& options) {
  check_entries(folder, entries, options);
  const auto shards = cut_into_shards(folder, entries, options.max_shard_bytes);
  const auto write_own = [&](std::size_t shard, const std::filesystem::path& name) {
    if (static_cast<int>(shard % static_cast<std::size_t>(options.writers)) != options.writer) return;
    write_shard(folder / name, shards[shard], source, options.metadata);
  };
  if (shards.size() == 1) {
    write_own(0, kSingleTensorFile);
    return {std::string(kSingleTensorFile)};
  }
  TensorIndex index;
  std::vector<std::string> files;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    files.push_back(fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    write_own(i, files.back());
    for (const TensorEntry& entry : shards[i]) {
      index.files_by_tensor.emplace(entry.name, files.back());
      index.total_bytes += tensor_bytes(entry);
    }
  }
  if (options.writer == 0) write_file_atomically(folder / kTensorIndexFile, to_json(index));
  files.emplace_back(kTensorIndexFile);
  return files;
}

std::vector<std::string> write_tensor_folder(const std::filesystem::path& path, const std::vector<TensorEntry>& entries,
                                             const TensorSource& source, const TensorFolderOptions& options) {
  AtomicFolder folder(path);
  std::vector<std::string> files = write_tensor_files(folder.path(), entries, source, options);
  folder.commit();
  return files;
}

}  // namespace orthant
