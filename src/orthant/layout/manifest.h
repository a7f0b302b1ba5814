// The manifest of a checkpoint: which global tensors it holds, the pieces each consists of, the files they lie in with
// their hashes, and where training stood. It says nothing about ranks, so that any mesh can continue from it. This
// layer turns it into text and back and proves it complete; it opens no file. Local.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/ranges.h"
#include "orthant/graph/dtype.h"
#include "orthant/graph/spec.h"

namespace orthant {

// A box of the global tensor, or a row-major range inside it, and where it is stored.
struct ManifestPiece {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> lengths;
  std::optional<Range> range;
  std::string file;    // "rank-3.safetensors"
  std::string tensor;  // its name inside the file
  friend bool operator==(const ManifestPiece&, const ManifestPiece&) = default;
};

struct ManifestTensor {
  std::string name;  // global: a parameter, or one of its optimizer moments
  Shape shape;
  DType dtype = DType::float32;
  std::vector<ManifestPiece> pieces;
  friend bool operator==(const ManifestTensor&, const ManifestTensor&) = default;
};

struct ManifestFile {
  std::string name;  // inside the checkpoint's folder
  std::int64_t bytes = 0;
  std::vector<std::string> xxh64;      // of its hashed blocks (files/xxhash.h): 16 lower-case hexadecimal digits each
  std::vector<std::string> hmac = {};  // the tags of these blocks (files/tag_key.h); none without a key
  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

struct Manifest {
  static constexpr int kVersion = 2;

  int version = kVersion;
  std::string id = {};            // that its tags vouch for, 32 hexadecimal digits; empty where there are no tags
  std::int64_t step = 0;          // optimizer steps done
  std::string mesh;               // that wrote it, as Mesh::to_string
  std::int64_t epoch = 0;         // of the next sample
  std::int64_t position = 0;      // of the next sample in its epoch
  std::int64_t samples_seen = 0;  // over all epochs
  std::uint64_t seed = 0;
  std::int64_t updates = 0;                 // of the optimizer: fewer than steps when some were left out
  double loss_scale = 0;                    // where it is dynamic; 0: it is not
  std::int64_t good_steps = 0;              // since the loss scale last changed
  std::optional<double> eval_loss = {};     // of an evaluation after that very step
  std::vector<ManifestTensor> tensors;      // parse_manifest gives them by name
  std::vector<ManifestFile> files;          // likewise
  std::map<std::string, std::string> tied;  // another name of a tensor -> the name it is stored under
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// One line per tensor and file, and a hash of all lines before it in the last one: a damaged text is refused, and an
// edited one whose hash was not made anew. Equal manifests give equal text, whatever the order of their tensors and
// files.
std::string to_json(const Manifest& manifest);

// Of the text: one of the largest models on thousands of ranks has tens of megabytes.
inline constexpr std::int64_t kMaxManifestBytes = std::int64_t{256} << 20;

// Reads and checks. DataError, with `path` for the text's name, on text that is no manifest, another version, unknown
// or missing keys, whatever check_manifest refuses, and any text that is not as to_json wrote it.
Manifest parse_manifest(std::string_view text, const std::string& path);

// DataError, naming tensor and file, unless every tensor is made of its pieces exactly, every piece lies in a listed
// file, files lie in the folder itself and have a hash, and tied names point to tensors.
void check_manifest(const Manifest& manifest, const std::string& path);

// The part of it about one tensor: pieces leave the shape, overlap, or leave holes. Nearly linear in the pieces for
// whatever a mesh writes.
void check_coverage(const ManifestTensor& tensor, const std::string& path);

}  // namespace orthant
