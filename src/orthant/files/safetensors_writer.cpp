#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/files/element_type.h"
#include "orthant/files/safetensors.h"
#include "orthant/files/safetensors_header.h"

namespace orthant {

using nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors files hold little-endian numbers");

std::string shown_name(std::string_view name) {
  constexpr std::size_t kShownLength = 120;
  std::string text = nlohmann::json(std::string(name.substr(0, kShownLength)))
                         .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return name.size() > kShownLength ? text + "..." : text;
}

std::int64_t tensor_bytes(const TensorEntry& entry) {
  const auto element = element_bytes(entry.dtype);
  if (!element && has_partial_byte_elements(entry.dtype)) {
    throw DataError(fmt::format("tensor {}: elements of type {} are not whole bytes and are not supported",
                                shown_name(entry.name), entry.dtype),
                    {.remedy = "convert the tensor to a wider type, or store its packed bytes as U8"});
  }
  if (!element) {
    throw DataError(fmt::format("tensor {}: unknown dtype {}", shown_name(entry.name), shown_name(entry.dtype)),
                    {.remedy = did_you_mean(entry.dtype, element_type_names())});
  }
  std::int64_t bytes = *element;
  bool empty = false;
  for (const std::int64_t size : entry.shape) {
    if (size < 0) {
      throw DataError(fmt::format("tensor {}: shape [{}] has a negative dimension", shown_name(entry.name),
                                  fmt::join(entry.shape, ", ")),
                      {.remedy = "give sizes of 0 or more"});
    }
    empty = empty || size == 0;
    if (size > 0 && __builtin_mul_overflow(bytes, size, &bytes)) {
      throw DataError(fmt::format("tensor {}: {} of shape [{}] takes more bytes than 63 bits can count",
                                  shown_name(entry.name), entry.dtype, fmt::join(entry.shape, ", ")),
                      {.remedy = "no file holds that: the shape is damaged or wrong"});
    }
  }
  return empty ? 0 : bytes;
}

std::int64_t tensor_bytes_in(const std::filesystem::path& path, const TensorEntry& entry) {
  try {
    return tensor_bytes(entry);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", path.string(), error.message()), {.remedy = error.remedy()});
  }
}

std::string safetensors_header_text(const std::vector<TensorEntry>& entries, const SafetensorsMetadata& metadata,
                                    const std::filesystem::path& path) {
  ordered_json::object_t object;  // a list: names are checked below, once each
  std::set<std::string_view> names = {"__metadata__"};
  if (!metadata.empty()) object.emplace_back("__metadata__", metadata);
  std::int64_t offset = 0;
  for (const TensorEntry& entry : entries) {
    if (!names.insert(entry.name).second) {
      throw DataError(fmt::format("{}: tensor name {} is {}", path.string(), shown_name(entry.name),
                                  entry.name == "__metadata__" ? "reserved" : "given twice"),
                      {.remedy = "give each tensor a name of its own"});
    }
    std::int64_t end = 0;
    if (__builtin_add_overflow(offset, tensor_bytes_in(path, entry), &end)) {
      throw DataError(fmt::format("{}: the tensors up to {} take more bytes than 63 bits can count", path.string(),
                                  shown_name(entry.name)),
                      {.remedy = "spread the tensors over several files"});
    }
    ordered_json value;
    value["dtype"] = entry.dtype;
    value["shape"] = entry.shape;
    value["data_offsets"] = {offset, end};
    object.emplace_back(entry.name, std::move(value));
    offset = end;
  }
  std::string text;
  try {
    text = ordered_json(std::move(object)).dump();
  } catch (const nlohmann::json::type_error&) {
    throw DataError(fmt::format("{}: a name or the metadata is not UTF-8", path.string()),
                    {.remedy = "give names and metadata in UTF-8"});
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > static_cast<std::size_t>(kMaxSafetensorsHeaderBytes)) {
    throw DataError(fmt::format("{}: the header of {} tensors takes {} bytes; the format allows {}", path.string(),
                                entries.size(), text.size(), kMaxSafetensorsHeaderBytes),
                    {.remedy = "spread the tensors over several files"});
  }
  const std::uint64_t length = text.size();
  std::string whole(sizeof length, '\0');
  std::memcpy(whole.data(), &length, sizeof length);
  return whole + text;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorEntry> entries,
                                     const SafetensorsMetadata& metadata, std::optional<BlockTags> tags,
                                     bool must_be_new)
    : entries_(std::move(entries)),
      header_(safetensors_header_text(entries_, metadata, path)),
      file_(path, O_WRONLY | O_CREAT | (must_be_new ? O_EXCL | O_NOFOLLOW : O_TRUNC)),
      tags_(std::move(tags)) {
  try {
    put(std::as_bytes(std::span(header_)));
  } catch (const DataError&) {
    remove_file();
    throw;
  }
  header_ = {};
  skip_full();
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!finished_) remove_file();
}

void SafetensorsWriter::remove_file() noexcept {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(file_.path(), ignored)) std::filesystem::remove(file_.path(), ignored);
}

void SafetensorsWriter::put(std::span<const std::byte> bytes) {
  file_.write_all(bytes);
  hashes_.update(bytes);
  if (tags_) tags_->update(bytes);
  bytes_ += static_cast<std::int64_t>(bytes.size());
}

// Goes on to the first tensor that still lacks bytes.
void SafetensorsWriter::skip_full() {
  while (current_ < entries_.size()) {
    expected_bytes_ = tensor_bytes(entries_[current_]);
    if (current_bytes_ < expected_bytes_) return;
    current_bytes_ = 0;
    ++current_;
  }
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (current_ == entries_.size() || entries_[current_].name != name) {
    throw InternalError(fmt::format("{}: bytes of tensor {} came when {} was due", file_.path().string(),
                                    shown_name(name),
                                    current_ == entries_.size() ? "nothing" : shown_name(entries_[current_].name)));
  }
  const auto count = static_cast<std::int64_t>(bytes.size());
  if (count > expected_bytes_ - current_bytes_) {
    throw InternalError(fmt::format("{}: tensor {} of {} bytes was given {}", file_.path().string(), shown_name(name),
                                    expected_bytes_, current_bytes_ + count));
  }
  put(bytes);
  current_bytes_ += count;
  skip_full();
}

WrittenFile SafetensorsWriter::finish() {
  if (finished_) throw InternalError(fmt::format("{}: finished twice", file_.path().string()));
  if (current_ < entries_.size()) {
    throw InternalError(fmt::format("{}: finished when tensor {} had {} of {} bytes", file_.path().string(),
                                    shown_name(entries_[current_].name), current_bytes_, expected_bytes_));
  }
  file_.sync();
  file_.close();
  finished_ = true;
  return {bytes_, hashes_.digests(), tags_ ? tags_->digests() : std::vector<std::string>{}};
}

}  // namespace orthant
