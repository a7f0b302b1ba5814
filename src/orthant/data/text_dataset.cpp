#include "orthant/data/text_dataset.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "orthant/base/error.h"

namespace orthant {
namespace {

TextPart part_of(const TokenStore& tokens, std::int64_t first_document, std::int64_t end_document) {
  return {.first_token = tokens.document_begin(first_document),
          .end_token = tokens.document_begin(end_document),
          .first_document = first_document,
          .end_document = end_document};
}

TextSplit split_at_document(const TokenStore& tokens, std::int64_t document) {
  return {.train = part_of(tokens, 0, document), .eval = part_of(tokens, document, tokens.documents())};
}

// The first document that begins at `token` or after it; documents() when none does.
std::int64_t first_document_from(const TokenStore& tokens, std::int64_t token) {
  std::int64_t low = 0;
  std::int64_t high = tokens.documents();
  while (low < high) {
    const auto middle = low + (high - low) / 2;
    (tokens.document_begin(middle) < token ? low : high) = tokens.document_begin(middle) < token ? middle + 1 : middle;
  }
  return low;
}

// Document ends near the wanted cut, else the cut itself.
TextSplit split_packed(const TokenStore& tokens, double eval_fraction) {
  const auto eval_tokens = std::llround(eval_fraction * static_cast<double>(tokens.size()));
  const auto cut = tokens.size() - std::max<std::int64_t>(eval_tokens, 1);
  const auto after = first_document_from(tokens, cut);
  std::int64_t best = -1;
  for (const auto document : {after - 1, after}) {
    if (document < 1 || document >= tokens.documents()) continue;
    const auto miss = [&](std::int64_t d) { return std::abs(tokens.document_begin(d) - cut); };
    if (best < 0 || miss(document) < miss(best)) best = document;
  }
  if (best >= 0 && 2 * std::abs(tokens.document_begin(best) - cut) <= eval_tokens)
    return split_at_document(tokens, best);
  const auto first_after = tokens.document_begin(after) == cut ? after : std::max<std::int64_t>(after - 1, 0);
  TextSplit split;
  split.train = {.first_token = 0, .end_token = cut, .first_document = 0, .end_document = first_after};
  split.eval = {
      .first_token = cut, .end_token = tokens.size(), .first_document = after, .end_document = tokens.documents()};
  return split;
}

}  // namespace

TextSplit split_text(const TokenStore& tokens, double eval_fraction, bool packing) {
  if (!(eval_fraction >= 0 && eval_fraction < 1)) {
    throw ConfigError(fmt::format("data.eval_fraction is {}, but it must be in [0, 1)", eval_fraction),
                      {.remedy = "set data.eval_fraction to 0 (no evaluation) or to a part such as 0.05"});
  }
  if (eval_fraction == 0) return split_at_document(tokens, tokens.documents());
  if (packing && tokens.size() >= 2) return split_packed(tokens, eval_fraction);
  if (tokens.documents() < 2) {
    throw DataError(fmt::format("{}: {} document cannot be split into training and evaluation (data.eval_fraction {})",
                                tokens.name(), tokens.documents(), eval_fraction),
                    {.remedy = "set data.packing=true, data.eval_path, or data.eval_fraction=0"});
  }
  const auto wanted = std::llround(eval_fraction * static_cast<double>(tokens.documents()));
  const auto eval = std::clamp<std::int64_t>(wanted, 1, tokens.documents() - 1);
  return split_at_document(tokens, tokens.documents() - eval);
}

TextDataset::TextDataset(std::shared_ptr<const TokenStore> tokens, TextPart part, TextDatasetOptions options)
    : tokens_(std::move(tokens)), part_(part), options_(options) {
  if (options_.sequence_length < 1) {
    throw ConfigError(
        fmt::format("data.sequence_length is {}, but a sample needs at least one position", options_.sequence_length),
        {.remedy = "set data.sequence_length to 1 or more"});
  }
  const auto& index = tokens_->index();
  if (options_.vocab_size > 0 && index.max_id >= options_.vocab_size) {
    throw ConfigError(fmt::format("model.vocab_size is {}, but {} has token ids up to {}", options_.vocab_size,
                                  tokens_->name(), index.max_id),
                      {.remedy = fmt::format("set model.vocab_size={}", index.tokenizer.vocab_size)});
  }
  if (!options_.packing) {
    find_documents();
    return;
  }
  const auto shared = options_.next_token ? 1 : 0;
  size_ = std::max<std::int64_t>((part_.tokens() - shared) / options_.sequence_length, 0);
  if (size_ > 0) return;
  throw DataError(fmt::format("{}: {} tokens are too few for one sample of {}", tokens_->name(), part_.tokens(),
                              options_.sequence_length + shared),
                  {.remedy = fmt::format("set data.sequence_length to {} or less, or bring more text",
                                         std::max<std::int64_t>(part_.tokens() - shared, 1))});
}

void TextDataset::find_documents() {
  const auto shortest = options_.next_token ? 2 : 1;
  for (auto document = part_.first_document; document < part_.end_document; ++document) {
    left_out_ += tokens_->document_begin(document + 1) - tokens_->document_begin(document) < shortest ? 1 : 0;
  }
  size_ = part_.end_document - part_.first_document - left_out_;
  if (size_ <= 0) {
    throw DataError(fmt::format("{}: none of {} documents has the {} tokens that a sample needs", tokens_->name(),
                                part_.end_document - part_.first_document, shortest),
                    {.remedy = "set data.packing=true, or bring more text"});
  }
  if (options_.whole_documents) return find_windows();
  if (left_out_ == 0) return;
  for (auto document = part_.first_document; document < part_.end_document; ++document) {
    if (tokens_->document_begin(document + 1) - tokens_->document_begin(document) >= shortest)
      documents_.push_back(document);
  }
}

void TextDataset::find_windows() {
  const auto shared = options_.next_token ? 1 : 0;
  for (auto document = part_.first_document; document < part_.end_document; ++document) {
    const auto end = tokens_->document_begin(document + 1);
    for (auto first = tokens_->document_begin(document); first + shared < end; first += options_.sequence_length) {
      windows_.push_back({first, std::min(end - first, options_.sequence_length + shared)});
      documents_.push_back(document);
    }
  }
  size_ = static_cast<std::int64_t>(windows_.size());
}

std::int64_t TextDataset::document_of(std::int64_t index) const {
  return documents_.empty() ? part_.first_document + index : documents_[static_cast<std::size_t>(index)];
}

TextDataset::Span TextDataset::span_of(std::int64_t index) const {
  const auto most = options_.sequence_length + (options_.next_token ? 1 : 0);
  if (options_.packing) return {part_.first_token + index * options_.sequence_length, most};
  if (options_.whole_documents) return windows_[static_cast<std::size_t>(index)];
  const auto document = document_of(index);
  const auto first = tokens_->document_begin(document);
  return {first, std::min(tokens_->document_begin(document + 1) - first, most)};
}

std::int64_t TextDataset::inputs_of(std::int64_t index) const {
  return span_of(index).length - (options_.next_token ? 1 : 0);
}

// Places of a packed sample's tokens, from its second one on, with which a document begins.
std::vector<std::int64_t> TextDataset::begins_in(const Span& span) const {
  std::vector<std::int64_t> places;
  if (!options_.documents || !options_.packing) return places;
  for (auto d = first_document_from(*tokens_, span.first + 1); d < tokens_->documents(); ++d) {
    const auto place = tokens_->document_begin(d) - span.first;
    if (place >= span.length) break;
    if (places.empty() || places.back() != place) places.push_back(place);
  }
  return places;
}

Fields TextDataset::rows(std::span<const std::int64_t> indices) const {
  check_indices(indices, size_);
  const auto length = static_cast<std::size_t>(options_.sequence_length);
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(indices.size()), options_.sequence_length};
  Fields fields{{"input_ids", at::empty(shape, at::kLong)}};
  if (options_.next_token) fields[kLabelsField] = at::empty(shape, at::kLong);
  const bool masked = !options_.next_token && !options_.packing;
  if (masked) fields["attention_mask"] = at::zeros(shape, at::kBool);
  if (options_.documents) fields["document_starts"] = at::zeros(shape, at::kLong);
  std::vector<std::int64_t> sample(length + 1);
  for (std::size_t row = 0; row < indices.size(); ++row) {
    const Span span = span_of(indices[row]);
    const auto read = static_cast<std::size_t>(span.length);
    tokens_->read(span.first, std::span(sample).first(read));
    const auto inputs = static_cast<std::size_t>(inputs_of(indices[row]));
    auto* ids = fields["input_ids"].mutable_data_ptr<std::int64_t>() + row * length;
    std::fill(std::copy_n(sample.begin(), inputs, ids), ids + length, options_.pad_id);
    if (options_.next_token) {
      auto* labels = fields[kLabelsField].mutable_data_ptr<std::int64_t>() + row * length;
      std::fill(std::copy_n(sample.begin() + 1, inputs, labels), labels + length, kIgnoredLabel);
    }
    for (const auto place : begins_in(span)) {
      const auto at = static_cast<std::size_t>(place);
      if (options_.next_token)
        fields[kLabelsField].mutable_data_ptr<std::int64_t>()[row * length + at - 1] = kIgnoredLabel;
      auto* starts = fields["document_starts"].mutable_data_ptr<std::int64_t>() + row * length;
      if (at < length) std::fill(starts + at, starts + length, place);
    }
    if (masked) std::fill_n(fields["attention_mask"].mutable_data_ptr<bool>() + row * length, inputs, true);
  }
  return fields;
}

std::int64_t TextDataset::tokens(const Fields& fields) const {
  if (options_.packing || !options_.next_token) return Dataset::tokens(fields);
  return fields.at(kLabelsField).ge(0).count_nonzero().item<std::int64_t>();
}

Totals TextDataset::totals(std::span<const std::int64_t> indices) const {
  check_indices(indices, size_);
  Totals totals;
  std::int64_t crossing = 0;  // targets that begin a document
  for (const auto index : indices) {
    totals.tokens += inputs_of(index);
    crossing += static_cast<std::int64_t>(begins_in(span_of(index)).size());
  }
  totals.weight_sum = options_.next_token ? static_cast<double>(totals.tokens - crossing) : 0;
  return totals;
}

}  // namespace orthant
