#include "orthant/checkpoint/hugging_face_import.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/checkpoint/original_files.h"
#include "orthant/checkpoint/pretrained.h"
#include "orthant/checkpoint/rank_file.h"
#include "orthant/checkpoint/reader.h"
#include "orthant/checkpoint/stored_model.h"
#include "orthant/files/atomic_folder.h"
#include "orthant/layout/manifest.h"
#include "orthant/mesh/mesh.h"
#include "orthant/models/family.h"
#include "orthant/models/hugging_face.h"
#include "orthant/nn/scalar_type.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTensorFile = "rank-0.safetensors";

// What training uses, and the pooler of an encoder besides, so that nothing of a model is lost on the way back.
GraphSpec importable_spec(const ModelConfig& config) {
  const WorkSize one{.rows = 1, .sequence = 1};
  auto spec = build_spec(config, one);
  if (config.family().forward == nullptr) return spec;
  for (const auto& unit : forward_spec(config, one).units) {
    if (unit.name == "pooler") spec.units.push_back(unit);
  }
  return spec;
}

// config.json says the dtype that the checkpoint has.
SavedFiles imported_files(const fs::path& folder, const ModelConfig& config, std::optional<DType> dtype) {
  auto files = original_files(folder);
  auto original = files.extract(kOriginalConfigFile);
  files["config.json"] =
      rewritten_hugging_face_config(original.mapped(), (folder / "config.json").string(), config, {.dtype = dtype});
  return files;
}

}  // namespace

ImportResult import_hugging_face(const fs::path& folder, const fs::path& out, std::optional<DType> dtype,
                                 const std::shared_ptr<const TagKey>& key) {
  if (is_checkpoint(folder)) {
    throw DataError(fmt::format("{}: is a checkpoint already", folder.string()),
                    {.remedy = "name a Hugging Face folder, or continue from this with train --resume"});
  }
  const auto model = find_stored_model(folder);
  const auto spec = importable_spec(model.config);
  const PretrainedWeights weights(spec, {{folder, &tensor_names(model.config)}});
  weights.check_tied();
  auto places = weights.places();
  // Wide elements first, so that all are aligned.
  std::ranges::stable_sort(places, std::greater<>(),
                           [](const auto& place) { return bytes_of(stored_dtype(place.entry)); });

  ImportResult result;
  result.kind = model_kind(model.config);
  result.notes = weights.notes();
  Manifest manifest;
  manifest.mesh = Mesh().to_string();
  std::vector<TensorEntry> entries;
  for (const auto& place : places) {
    const auto& shape = spec.parameter(place.parameter).shape;
    const auto stored = dtype.value_or(stored_dtype(place.entry));
    entries.push_back({place.parameter, element_name(stored), shape});
    manifest.tensors.push_back({place.parameter,
                                shape,
                                stored,
                                {{Shape(shape.size(), 0), shape, std::nullopt, kTensorFile, place.parameter}}});
    result.bytes += tensor_bytes(entries.back());
  }
  result.tensors = static_cast<std::int64_t>(entries.size());
  const auto files = imported_files(folder, model.config, dtype);

  AtomicFolder target(out);
  const CheckpointSeal seal{key, key ? new_checkpoint_id() : "", manifest.step};
  SafetensorsWriter writer(target.path() / kTensorFile, entries, {{"format", "orthant"}}, seal.tags_of(kTensorFile));
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto type = scalar_type(stored_dtype(entries[i]));
    const auto values = at::empty(entries[i].shape, at::TensorOptions().dtype(type));
    weights.read(places[i], values);
    writer.write(entries[i].name,
                 {static_cast<const std::byte*>(values.const_data_ptr()), static_cast<std::size_t>(values.nbytes())});
  }
  const auto written = writer.finish();
  manifest.files.push_back({kTensorFile, written.bytes, hash_texts(written.xxh64), written.hmac});
  for (const auto& name : copy_tokenizer_files(folder, target.path())) {
    manifest.files.push_back(described_text(name, read_file(target.path() / name), seal));
  }
  for (const auto& [name, text] : files) {
    write_file_atomically(target.path() / name, text);
    manifest.files.push_back(described_text(name, text, seal));
  }
  write_manifest(target.path(), std::move(manifest), seal);
  target.commit();
  return result;
}

}  // namespace orthant
