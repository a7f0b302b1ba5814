#include "orthant/checkpoint/pretrained.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "orthant/base/error.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/layout/pieces.h"
#include "orthant/models/family.h"

namespace orthant {
namespace {

constexpr std::size_t kMostNamed = 6;

std::string listed(const std::vector<std::string>& names) {
  const auto shown = std::min(names.size(), kMostNamed);
  auto text = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

// Whether weights without this parameter are whole: it is of a pooler or of a task's head. A decoder's last norm lies
// in the unit of its head, but belongs to the body.
bool may_be_absent(const UnitSpec& unit, std::string_view name) {
  if (is_of_body(unit, name)) return false;
  return name.starts_with("head.") || name.starts_with("pooler.");
}

struct Wanted {
  std::vector<WantedParameter> parameters;
  std::set<std::string, std::less<>> optional;  // names of those that may be absent
};

Wanted wanted_parameters(const GraphSpec& graph, const std::string& prefix) {
  Wanted wanted;
  for (const auto& unit : graph.units) {
    for (const auto& parameter : unit.parameters) {
      if (!parameter.name.starts_with(prefix)) continue;
      wanted.parameters.push_back({parameter.name.substr(prefix.size()), parameter.shape});
      const auto& name = wanted.parameters.back().name;
      if (may_be_absent(unit, name)) wanted.optional.insert(name);
    }
  }
  return wanted;
}

bool is_weight_dtype(std::string_view element) {
  return std::ranges::any_of(kWeightDTypes, [&](DType dtype) { return element_name(dtype) == element; });
}

// The same as match_tensors() in one of our checkpoints, or in what is read as one, where names are ours.
TensorMatch match_checkpoint(const Wanted& wanted, const std::vector<TensorEntry>& stored, const std::string& folder) {
  std::map<std::string_view, const TensorEntry*> entries;
  for (const auto& entry : stored) entries.emplace(entry.name, &entry);
  TensorMatch match;
  std::vector<std::string> differences;
  for (const auto& parameter : wanted.parameters) {
    const auto found = entries.find(parameter.name);
    if (found == entries.end()) {
      if (wanted.optional.contains(parameter.name)) {
        match.absent.push_back(parameter.name);
      } else {
        differences.push_back(
            fmt::format("{}: missing, [{}] expected", parameter.name, fmt::join(parameter.shape, ", ")));
      }
      continue;
    }
    const auto& entry = *found->second;
    if (entry.shape != parameter.shape) {
      differences.push_back(fmt::format("{}: [{}] there, [{}] in this model", parameter.name,
                                        fmt::join(entry.shape, ", "), fmt::join(parameter.shape, ", ")));
    } else if (!is_weight_dtype(entry.dtype)) {
      differences.push_back(fmt::format("{}: dtype {}; F64, F32, BF16 and F16 can be read", entry.name, entry.dtype));
    }
    match.uses.push_back({parameter.name, parameter.name, false});
    entries.erase(found);
  }
  for (const auto& [name, entry] : entries) {
    if (name.starts_with("head.") || name.starts_with("pooler.")) {
      match.unused.emplace_back(name);
    } else {
      differences.push_back(fmt::format("{}: this model has no such parameter", name));
    }
  }
  if (!differences.empty())
    throw_differences(folder, "the model", differences,
                      is_checkpoint(folder) ? "resume with the config.json of that run"
                                            : "use the config.json that was exported with these weights");
  return match;
}

const TensorEntry& entry_named(const WeightReader& reader, const std::string& name) {
  const auto found = std::ranges::find(reader.entries(), name, &TensorEntry::name);
  if (found == reader.entries().end()) throw InternalError(fmt::format("no tensor {}", name));
  return *found;
}

[[noreturn]] void throw_different(const PretrainedSource& source, const std::string& copy,
                                  const std::string& original) {
  const bool may_untie = source.names != nullptr && !source.names->always_tied;
  throw DataError(
      fmt::format("{}: {} differs from {}, to which config.json ties it", source.folder.string(), copy, original),
      {.remedy = may_untie ? "set tie_word_embeddings to false in config.json"
                           : "a head with a matrix of its own cannot be trained here"});
}

}  // namespace

std::vector<PretrainedSource> pretrained_sources(const ModelConfig& config) {
  std::vector<PretrainedSource> sources;
  for (const auto& source : facts_of(config).sources) {
    sources.push_back({source.path, is_checkpoint(source.path) ? nullptr : source.names, source.prefix});
  }
  return sources;
}

PretrainedWeights::PretrainedWeights(const GraphSpec& graph, const std::vector<PretrainedSource>& sources,
                                     const ControlGroup& ranks) {
  for (const auto& source : sources) open(graph, source, ranks);
}

void PretrainedWeights::open(const GraphSpec& graph, const PretrainedSource& source, const ControlGroup& ranks) {
  auto opened = source.opened ? source.opened : open_weights(source.folder, ranks);
  Folder folder{source, std::make_shared<CountingReader>(std::move(opened)), {}, {}};
  const auto wanted = wanted_parameters(graph, source.prefix);
  const auto& stored = folder.reader->entries();
  auto match = source.names != nullptr ? match_tensors(*source.names, wanted.parameters, stored, source.folder.string())
                                       : match_checkpoint(wanted, stored, source.folder.string());
  for (const auto& use : match.uses) {
    const auto name = source.prefix + use.parameter;
    index_.emplace(name, places_.size());
    places_.push_back({name, folders_.size(), entry_named(*folder.reader, use.tensor), use.transposed});
    for (const auto& [copy, original] : match.tied) {
      if (original == use.tensor) places_.back().copies.push_back(entry_named(*folder.reader, copy));
    }
  }
  for (const auto& name : match.absent) absent_.push_back(source.prefix + name);
  folder.tied = std::move(match.tied);
  folder.unused = std::move(match.unused);
  folders_.push_back(std::move(folder));
}

std::vector<std::string> PretrainedWeights::notes() const {
  std::vector<std::string> lines;
  if (!absent_.empty()) lines.push_back(fmt::format("not in the folder, drawn from the seed: {}", listed(absent_)));
  for (const auto& folder : folders_) {
    if (folder.unused.empty()) continue;
    lines.push_back(fmt::format("{}: not used: {}", folder.source.folder.string(), listed(folder.unused)));
  }
  return lines;
}

void PretrainedWeights::check_tied() const {
  for (const auto& [source, reader, tied, unused] : folders_) {
    for (const auto& [copy, original] : tied) {
      if (equal_contents(*reader, copy, original, tensor_bytes(entry_named(*reader, copy)))) continue;
      throw_different(source, copy, original);
    }
  }
}

void PretrainedWeights::read(const Place& place, const at::Tensor& target) const {
  read_into(*folders_[place.folder].reader, place.entry, place.transposed, target);
}

void PretrainedWeights::fill_box(const Place& place, const TensorBox& box, const at::Tensor& target) const {
  const auto& folder = folders_[place.folder];
  read_into(*folder.reader, place.entry, place.transposed, box, target);
  for (const auto& copy : place.copies) {
    if (equals_stored(*folder.reader, copy, place.transposed, box, target)) continue;
    throw_different(folder.source, copy.name, place.entry.name);
  }
}

void PretrainedWeights::fill(ParameterStore& parameters) const {
  for (const auto& buffer : parameters.buffers()) {
    const auto owned = buffer->owned();
    for (const auto& piece : pieces_of(buffer->layout(), owned)) {
      const auto found = index_.find(piece.tensor);
      if (found == index_.end()) continue;
      auto place = piece.local_offset - owned.begin;
      for (const auto& box : boxes_of(piece, parameters.graph().parameter(piece.tensor).shape)) {
        const auto elements = num_elements(box.lengths);
        buffer->master().narrow(place, elements).change([&](const at::Tensor& target) {
          fill_box(places_[found->second], box, target.view(box.lengths));
        });
        place += elements;
      }
    }
  }
}

void PretrainedWeights::load(ParameterStore& parameters, const ControlGroup& ranks) const {
  parameters.settle_values();
  ranks.together([&] { fill(parameters); });
  parameters.publish();
}

std::int64_t PretrainedWeights::bytes_read() const {
  std::int64_t bytes = 0;
  for (const auto& folder : folders_) bytes += folder.reader->bytes_read();
  return bytes;
}

std::int64_t PretrainedWeights::bytes_to_read(const FlatBuffer& buffer, Range owned) const {
  std::int64_t bytes = 0;
  for (const auto& piece : pieces_of(buffer, owned)) {
    const auto found = index_.find(piece.tensor);
    if (found == index_.end()) continue;
    const auto& place = places_[found->second];
    const auto tensors = 1 + static_cast<std::int64_t>(place.copies.size());
    bytes += piece.elements() * bytes_of(stored_dtype(place.entry)) * tensors;
  }
  return bytes;
}

}  // namespace orthant
