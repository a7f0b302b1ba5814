#include "orthant/layout/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "orthant/base/error.h"
#include "orthant/base/json_document.h"
#include "orthant/base/json_reader.h"
#include "orthant/base/json_tree.h"
#include "orthant/base/nearest.h"
#include "orthant/files/xxhash.h"

namespace orthant {
namespace {

using nlohmann::json;

json piece_json(const ManifestPiece& piece) {
  json out = {{"offsets", piece.offsets}, {"lengths", piece.lengths}, {"file", piece.file}, {"tensor", piece.tensor}};
  if (piece.range) out["range"] = {piece.range->begin, piece.range->end};
  return out;
}

json tensor_json(const ManifestTensor& tensor) {
  json pieces = json::array();
  for (const ManifestPiece& piece : tensor.pieces) pieces.push_back(piece_json(piece));
  return {{"shape", tensor.shape}, {"dtype", dtype_name(tensor.dtype)}, {"pieces", std::move(pieces)}};
}

// An object with one member per line, in the order of names.
std::string members_text(const std::map<std::string, json>& members, std::string_view indent) {
  std::string out = "{";
  for (const auto& [key, value] : members) {
    out += fmt::format("{}\n{} {}: {}", out.size() > 1 ? "," : "", indent, json(key).dump(), value.dump());
  }
  return out + fmt::format("\n{}}}", indent);
}

DType read_dtype(JsonReader& reader) {
  const auto name = reader.require<std::string>("dtype");
  try {
    return parse_dtype(name);
  } catch (const ConfigError& error) {
    reader.fail("dtype", error.message(), error.remedy());
  }
}

// One element of a tensor's "pieces". There may be hundreds of thousands, so they are read without a reader each;
// errors say which one by its index.
class PieceReader {
 public:
  PieceReader(const JsonReader& tensor, const json& piece, std::size_t index)
      : tensor_(tensor), piece_(piece), index_(index) {
    static const std::vector<std::string> kKeys = {"offsets", "lengths", "range", "file", "tensor"};
    if (!piece.is_object()) fail(fmt::format("expected an object, found {}", describe_json(piece)));
    for (const auto& member : piece.items()) {
      if (std::ranges::find(kKeys, member.key()) != kKeys.end()) continue;
      fail(fmt::format("unknown key \"{}\"", member.key()), did_you_mean(member.key(), kKeys));
    }
  }

  ManifestPiece read() const {
    ManifestPiece piece{.offsets = numbers("offsets"),
                        .lengths = numbers("lengths"),
                        .range = std::nullopt,
                        .file = text("file"),
                        .tensor = text("tensor")};
    if (!piece_.contains("range")) return piece;
    const auto range = numbers("range");
    if (range.size() != 2) fail(fmt::format("a range is [begin, end), found {} numbers", range.size()));
    piece.range = Range{range[0], range[1]};
    return piece;
  }

 private:
  [[noreturn]] void fail(const std::string& message, std::string remedy = {}) const {
    tensor_.fail("pieces", fmt::format("piece {}: {}", index_, message), std::move(remedy));
  }

  const json& member(const char* key) const {
    const auto found = piece_.find(key);
    if (found == piece_.end()) fail(fmt::format("missing key \"{}\"", key), fmt::format("add \"{}\"", key));
    return *found;
  }

  std::string text(const char* key) const {
    const json& value = member(key);
    if (!value.is_string()) fail(fmt::format("{}: expected a string, found {}", key, describe_json(value)));
    return value.get<std::string>();
  }

  std::vector<std::int64_t> numbers(const char* key) const {
    const json& value = member(key);
    const auto is_count = [](const json& number) {
      return number.is_number_unsigned() && number.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
    };
    if (!value.is_array() || !std::ranges::all_of(value, is_count)) {
      fail(fmt::format("{}: expected an array of non-negative integers, found {}", key, describe_json(value)));
    }
    return value.get<std::vector<std::int64_t>>();
  }

  const JsonReader& tensor_;
  const json& piece_;
  std::size_t index_;
};

ManifestTensor read_tensor(const std::string& name, JsonReader reader) {
  ManifestTensor tensor{
      .name = name, .shape = reader.require<Shape>("shape"), .dtype = read_dtype(reader), .pieces = {}};
  const json& pieces = reader.require_raw("pieces");
  if (!pieces.is_array()) reader.fail("pieces", fmt::format("expected an array, found {}", describe_json(pieces)));
  tensor.pieces.reserve(pieces.size());
  for (const json& piece : pieces) tensor.pieces.push_back(PieceReader(reader, piece, tensor.pieces.size()).read());
  return tensor;
}

void read_facts(JsonReader& reader, Manifest& manifest) {
  manifest.id = reader.get<std::string>("id", "");
  manifest.step = reader.require<std::int64_t>("step");
  manifest.mesh = reader.require<std::string>("mesh");
  manifest.epoch = reader.require<std::int64_t>("epoch");
  manifest.position = reader.require<std::int64_t>("position");
  manifest.samples_seen = reader.require<std::int64_t>("samples_seen");
  manifest.seed = reader.require<std::uint64_t>("seed");
  manifest.updates = reader.require<std::int64_t>("updates");
  manifest.loss_scale = reader.get<double>("loss_scale", manifest.loss_scale);
  manifest.good_steps = reader.get<std::int64_t>("good_steps", manifest.good_steps);
  if (reader.has("eval_loss")) manifest.eval_loss = reader.require<double>("eval_loss");
}

// The text from its last comma on, which holds the hash of all that comes before.
constexpr std::size_t kClosingBytes = std::string_view(",\n \"xxh64\": \"0123456789abcdef\"\n}\n").size();

std::string closing_of(std::string_view before) {
  return fmt::format(",\n \"xxh64\": \"{}\"\n}}\n", hash_text(xxh64(std::as_bytes(std::span(before)))));
}

void check_hash(std::string_view text, const std::string& path) {
  const auto before = text.substr(0, text.size() - std::min(text.size(), kClosingBytes));
  if (text.substr(before.size()) == closing_of(before)) return;
  throw DataError(fmt::format("{}: its hash is not that of its contents: it was damaged or edited", path),
                  {.remedy = "copy the checkpoint again, or use another one of the run"});
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  std::map<std::string, json> tensors;
  std::map<std::string, json> files;
  for (const ManifestTensor& tensor : manifest.tensors) tensors[tensor.name] = tensor_json(tensor);
  for (const ManifestFile& file : manifest.files) {
    files[file.name] = {{"bytes", file.bytes}, {"xxh64", file.xxh64}};
    if (!file.hmac.empty()) files[file.name]["hmac"] = file.hmac;
  }
  const auto id = manifest.id.empty() ? "" : fmt::format(" \"id\": {},\n", json(manifest.id).dump());
  const auto eval_loss =
      manifest.eval_loss ? fmt::format(" \"eval_loss\": {},\n", json(*manifest.eval_loss).dump()) : "";
  auto text = fmt::format(
      "{{\n \"version\": {},\n{} \"step\": {},\n \"mesh\": {},\n \"epoch\": {},\n \"position\": {},\n"
      " \"samples_seen\": {},\n \"seed\": {},\n \"updates\": {},\n \"loss_scale\": {},\n"
      " \"good_steps\": {},\n{} \"tied\": {},\n \"tensors\": {},\n"
      " \"files\": {}",
      manifest.version, id, manifest.step, json(manifest.mesh).dump(), manifest.epoch, manifest.position,
      manifest.samples_seen, manifest.seed, manifest.updates, manifest.loss_scale, manifest.good_steps, eval_loss,
      json(manifest.tied).dump(), members_text(tensors, " "), members_text(files, " "));
  return text + closing_of(text);
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  // A large text is proved whole before memory is spent on what it says; a mistake in a small one is told by its place.
  constexpr std::size_t kSmall = std::size_t{1} << 20;
  if (text.size() > kSmall) check_hash(text, path);
  const JsonDocument document = JsonDocument::parse(text, {.source = path,
                                                           .errors = JsonErrorKind::kData,
                                                           .max_bytes = kMaxManifestBytes,
                                                           .max_tree_bytes = std::int64_t{16} << 30});
  JsonReader reader(document);
  Manifest manifest;
  manifest.version = reader.require<int>("version");
  if (manifest.version != Manifest::kVersion) {
    throw VersionError(
        fmt::format("{}: version: this program reads version {}, found {}", path, Manifest::kVersion, manifest.version),
        {.remedy = "read the checkpoint with the release of orthant that wrote it"});
  }
  read_facts(reader, manifest);
  JsonReader tensors = reader.require_object("tensors");
  for (const std::string& name : tensors.keys()) {
    manifest.tensors.push_back(read_tensor(name, tensors.require_object(name)));
  }
  JsonReader files = reader.require_object("files");
  for (const std::string& name : files.keys()) {
    JsonReader file = files.require_object(name);
    manifest.files.push_back({.name = name,
                              .bytes = file.require<std::int64_t>("bytes"),
                              .xxh64 = file.require<std::vector<std::string>>("xxh64"),
                              .hmac = file.get<std::vector<std::string>>("hmac", {})});
  }
  JsonReader tied = reader.require_object("tied");
  for (const std::string& name : tied.keys()) manifest.tied[name] = tied.require<std::string>(name);
  reader.require<std::string>("xxh64");
  reader.finish();
  std::ranges::sort(manifest.tensors, {}, &ManifestTensor::name);
  std::ranges::sort(manifest.files, {}, &ManifestFile::name);
  check_manifest(manifest, path);
  check_hash(text, path);
  return manifest;
}

}  // namespace orthant
