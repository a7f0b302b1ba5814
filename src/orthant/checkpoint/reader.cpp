#include "orthant/checkpoint/reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "orthant/base/error.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"

namespace orthant {

namespace fs = std::filesystem;

namespace {

// A manifest that is whole may still be somebody else's.
void check_manifest_tag(const fs::path& folder, const std::string& text, const Manifest& manifest, const TagKey& key) {
  const auto path = folder / kManifestTagFile;
  const char* remedy =
      "use a checkpoint that was written with this key, or leave the key out to trust whoever wrote it";
  if (manifest.id.empty() || !is_there(path)) {
    throw AuthenticityError(fmt::format("{}: has no tags, and a key was given", (folder / kManifestFile).string()),
                            {.remedy = remedy});
  }
  if (equal_tags(read_file(path, 4096), manifest_tag(key, text) + "\n")) return;
  throw AuthenticityError(
      fmt::format("{}: its tag is not of this key, {}: either another key was given, or the checkpoint was written or "
                  "changed by somebody without the key",
                  (folder / kManifestFile).string(), key.path().string()),
      {.remedy = fmt::format("give the key file that the checkpoint was written with, or {}", remedy)});
}

}  // namespace

std::string unchecked_tags_note(const fs::path& folder, const Manifest& manifest, const CheckpointAccess& access) {
  if (manifest.id.empty() || access.key) return {};
  return fmt::format("{}: its HMAC tags were not checked: no key was given", folder.string());
}

Manifest read_manifest(const fs::path& folder, const TagKey* key) {
  const auto path = folder / kManifestFile;
  if (!is_folder(folder)) {
    throw DataError(fmt::format("{}: no such checkpoint folder", folder.string()),
                    {.remedy = "name a folder step-N; a run has them in its folder checkpoints"});
  }
  if (!is_there(path)) {
    const auto inside = list_checkpoints((folder / "checkpoints").string());
    throw DataError(fmt::format("{}: no checkpoint, it has no {}", folder.string(), kManifestFile),
                    {.remedy = inside.empty() ? "name a folder step-N" : fmt::format("use {}", inside.front().path)});
  }
  const auto text = read_text_file(path, kMaxManifestBytes);
  auto manifest = parse_manifest(text, path.string());
  const auto called = step_in_name(folder.lexically_normal().filename().string());
  if (called && *called != manifest.step) {
    throw DataError(fmt::format("{}: is of step {}, and its folder is called {}", path.string(), manifest.step,
                                folder.lexically_normal().filename().string()),
                    {.remedy = fmt::format("call the folder step-{}, or copy the checkpoint again", manifest.step)});
  }
  if (key != nullptr) check_manifest_tag(folder, text, manifest, *key);
  return manifest;
}

CheckpointReader::CheckpointReader(const fs::path& folder, Manifest manifest)
    : folder_(folder), manifest_(std::move(manifest)) {
  for (const auto& file : manifest_.files) {
    if (file.name.ends_with(".safetensors")) files_.emplace(file.name, SafetensorsFile::open(folder / file.name));
  }
  for (std::size_t i = 0; i < manifest_.tensors.size(); ++i) {
    const auto& tensor = manifest_.tensors[i];
    check(tensor);
    index_.emplace(tensor.name, i);
    if (tensor.name.starts_with(kOptimizerPrefix)) continue;
    entries_.push_back({tensor.name, element_name(tensor.dtype), tensor.shape});
  }
}

void CheckpointReader::check(const ManifestTensor& tensor) const {
  const char* remedy = "the manifest and its files do not belong together: copy the checkpoint again, or use another";
  for (const auto& piece : tensor.pieces) {
    const auto file = files_.find(piece.file);
    if (file == files_.end()) {
      throw DataError(fmt::format("{}: a piece of {} is said to lie in {}, which is no .safetensors file",
                                  kManifestFile, tensor.name, piece.file),
                      {.remedy = remedy});
    }
    const auto& entry = file->second.entry(piece.tensor);
    const auto elements = piece.range ? piece.range->size() : num_elements(piece.lengths);
    if (entry.dtype == element_name(tensor.dtype) && num_elements(entry.shape) == elements) continue;
    throw DataError(
        fmt::format("{}: {} is {} [{}], the manifest promises {} elements of {}", file->second.path().string(),
                    piece.tensor, entry.dtype, fmt::join(entry.shape, ", "), elements, element_name(tensor.dtype)),
        {.remedy = remedy});
  }
}

const ManifestTensor* CheckpointReader::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &manifest_.tensors[found->second];
}

std::int64_t CheckpointReader::bytes_read() const {
  std::int64_t bytes = 0;
  for (const auto& [name, file] : files_) bytes += file.bytes_read();
  return bytes;
}

void CheckpointReader::read(const std::string& tensor, std::int64_t offset, std::span<std::byte> out) const {
  const auto& stored = manifest_.tensors[index_.at(tensor)];
  const auto size = bytes_of(stored.dtype);
  const auto first = offset / size;
  const auto count = static_cast<std::int64_t>(out.size()) / size;
  read(Piece{tensor, Shape(stored.shape.size(), 0), stored.shape, Range{first, first + count}, 0}, out);
}

void CheckpointReader::read(const Piece& wanted, std::span<std::byte> out) const {
  const auto& stored = manifest_.tensors[index_.at(wanted.tensor)];
  const auto size = bytes_of(stored.dtype);
  for (const auto& part : stored.pieces) {
    const Piece piece{wanted.tensor, part.offsets, part.lengths, part.range, 0};
    const auto& file = files_.at(part.file);
    for (const auto& run : intersect(wanted, piece)) {
      file.read(
          part.tensor, run.stored_offset * size,
          out.subspan(static_cast<std::size_t>(run.wanted_offset * size), static_cast<std::size_t>(run.length * size)));
    }
  }
}

}  // namespace orthant
