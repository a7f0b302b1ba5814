#include "orthant/generate/step_tensors.h"

#include <ATen/ATen.h>

#include <bit>

#include "orthant/ops/attention/cached_attention_device.h"
#include "orthant/ops/attention/cached_lists.h"

namespace orthant {
namespace {

constexpr const char* kRow = "row";
constexpr const char* kPosition = "position";
constexpr const char* kStarts = "starts";
constexpr const char* kPicked = "picked";
constexpr const char* kSequences = "sequences";
constexpr const char* kTables = "tables";
constexpr const char* kTiles = "tiles";

at::Tensor numbers(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong);
}

// Blocks of tables double from those of one chunk on.
std::int64_t bucket_of_blocks(std::int64_t blocks) {
  constexpr std::int64_t kLeast = nn::device::kChunkKeys / kCacheBlock;
  return std::max(kLeast, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(blocks))));
}

}  // namespace

std::int64_t bucket_of_sequences(std::int64_t sequences) {
  constexpr std::int64_t kDoubled = 16, kApart = 16;
  if (sequences <= kDoubled) return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(sequences)));
  return (sequences + kApart - 1) / kApart * kApart;
}

StepTensors step_tensors(const StepOrder& order, const StepForm& form, bool rounds) {
  StepTensors step;
  std::vector<std::int64_t> ids, row, position, starts, picked;
  step.alike = true;
  for (const auto& part : order.parts) {
    const auto first = static_cast<std::int64_t>(ids.size()), count = static_cast<std::int64_t>(part.tokens.size());
    step.sequences.push_back({first, count, part.past, part.blocks});
    ids.insert(ids.end(), part.tokens.begin(), part.tokens.end());
    for (std::int64_t i = 0; i < count; ++i) {
      row.push_back(static_cast<std::int64_t>(step.sequences.size()) - 1);
      position.push_back(part.past + i);
      starts.push_back(first - part.past);
    }
    if (part.answer >= 0) picked.push_back(first + count - 1);
    step.alike = step.alike && count == 1 && part.answer >= 0;
  }
  step.picks = !picked.empty();
  nn::CachedPlaces places = nn::exact_places(step.sequences);
  rounds = rounds && step.alike && form.shared_heads > 0;
  if (rounds) {
    places = {bucket_of_sequences(places.sequences), bucket_of_blocks(places.blocks)};
    for (auto place = static_cast<std::int64_t>(ids.size()); place < places.sequences; ++place) {
      ids.push_back(0);
      row.push_back(place);
      position.push_back(0);
      starts.push_back(place);
      picked.push_back(place);
    }
  }
  auto& fields = step.inputs.microbatches.emplace_back().fields;
  fields[kStepIds] = numbers(ids).unsqueeze(0);
  fields[kRow] = numbers(row).unsqueeze(0);
  fields[kPosition] = numbers(position).unsqueeze(0);
  fields[kStarts] = numbers(starts).unsqueeze(0);
  fields[kPicked] = numbers(picked);
  step.inputs.loss_factors = step.inputs.told = at::empty({0}, at::kDouble);
  if (form.shared_heads == 0) return step;
  step.lists = nn::cached_lists(step.sequences, form.shared_heads, places);
  fields[kSequences] = step.lists.sequences;
  fields[kTables] = step.lists.tables;
  fields[kTiles] = step.lists.tiles;
  return step;
}

Microbatch StepTensors::tokens(const StepInputs& held) const {
  const auto& fields = held.microbatches.front().fields;
  Microbatch tokens;
  tokens.fields[kStepIds] = fields.at(kStepIds);
  tokens.token_rows[kStepIds] = {fields.at(kRow), fields.at(kPosition), fields.at(kStarts), fields.at(kPicked)};
  return tokens;
}

nn::CachedStep StepTensors::cached(const StepInputs& held, const StepForm& form, bool recorded) const {
  nn::CachedStep step{.sequences = {}, .most_positions = form.most_positions};
  if (!recorded) step.sequences = sequences;
  if (form.shared_heads == 0) return step;
  const auto& fields = held.microbatches.front().fields;
  step.lists = lists;
  step.lists.sequences = fields.at(kSequences);
  step.lists.tables = fields.at(kTables);
  step.lists.tiles = fields.at(kTiles);
  step.lists.sequence_of = fields.at(kRow).view(-1);
  step.lists.positions = fields.at(kPosition).view(-1);
  return step;
}

}  // namespace orthant
