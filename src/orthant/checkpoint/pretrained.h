// Weights that a model starts from: a Hugging Face folder, under its names, or one of our checkpoints, under ours; one
// for the whole model, or one for each tower of a classifier. Everything is checked by name, shape and dtype when it
// is opened; values are read once, straight into the flat buffers, and each rank reads the parts that it holds.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/checkpoint/weight_reader.h"
#include "orthant/models/hugging_face_names.h"
#include "orthant/parallel/data/parameter_store.h"

namespace orthant {

// A folder and the parameters it serves.
struct PretrainedSource {
  std::filesystem::path folder;
  const NameTable* names = nullptr;                 // of its tensors; null: ours, of a checkpoint
  std::string prefix = {};                          // "primary." for that tower; empty for a whole model
  std::shared_ptr<const WeightReader> opened = {};  // the folder, where it is open already
};

// What `path` keys of the model name; none when its weights are drawn.
std::vector<PretrainedSource> pretrained_sources(const ModelConfig& config);

class PretrainedWeights {
 public:
  // Nothing is read.
  PretrainedWeights() = default;

  // Finds the parameters of `graph` in the folders. DataError that lists all differences, see match_tensors().
  // Collective over `ranks`, see open_weights(); Local for one rank.
  PretrainedWeights(const GraphSpec& graph, const std::vector<PretrainedSource>& sources,
                    const ControlGroup& ranks = {});

  // Whether load() fills this parameter. All others keep what they have: those that only we have, and heads and poolers
  // that a folder lacks.
  bool reads(std::string_view parameter) const { return index_.contains(parameter); }

  // Of heads and poolers, in the order of the graph.
  const std::vector<std::string>& absent() const { return absent_; }

  // For people: what is absent, and which tensors have no use here. One line each.
  std::vector<std::string> notes() const;

  // Fills what this rank owns, on any mesh, and reads no more for it: boxes of the stored tensors, by contiguous runs.
  // DataError on I/O errors and on tied tensors that differ in what it owns. Full values follow. Collective over
  // `ranks`, all of which throw when one does.
  void load(ParameterStore& parameters, const ControlGroup& ranks = {}) const;
  // Without what follows. Local.
  void fill(ParameterStore& parameters) const;

  // Of the folders' tensors so far, by all copies of this object in this process. Headers and hashes are not counted.
  std::int64_t bytes_read() const;
  // What fill() reads for that part of a buffer.
  std::int64_t bytes_to_read(const FlatBuffer& buffer, Range owned) const;

  // The same for one parameter at a time, in the order of the graph, into tensors of its shape.
  struct Place {
    std::string parameter;
    std::size_t folder = 0;
    TensorEntry entry;
    bool transposed = false;
    std::vector<TensorEntry> copies = {};  // second tensors that must hold the same
  };
  const std::vector<Place>& places() const { return places_; }
  void read(const Place& place, const at::Tensor& target) const;
  void check_tied() const;

 private:
  struct Folder {
    PretrainedSource source;
    std::shared_ptr<const CountingReader> reader;
    std::vector<std::pair<std::string, std::string>> tied;
    std::vector<std::string> unused;
  };

  void open(const GraphSpec& graph, const PretrainedSource& source, const ControlGroup& ranks);
  void fill_box(const Place& place, const TensorBox& box, const at::Tensor& target) const;

  std::vector<Folder> folders_;
  std::vector<Place> places_;
  std::map<std::string, std::size_t, std::less<>> index_;  // into places_
  std::vector<std::string> absent_;
};

}  // namespace orthant
