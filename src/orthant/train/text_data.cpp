#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/data/masked_tokens.h"
#include "orthant/data/prepare_text.h"
#include "orthant/data/text_dataset.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/train/file_data.h"
#include "orthant/train/model_folders.h"

namespace orthant {
namespace {

// Masked language modelling for bert; other models predict the next token.
std::shared_ptr<const Dataset> for_model(const RunConfig& config, const std::shared_ptr<const TokenStore>& tokens,
                                         const TextPart& part) {
  const auto* bert = std::get_if<BertModelConfig>(&config.model);
  TextDatasetOptions options;
  options.sequence_length = config.data.sequence_length;
  options.packing = config.data.text.packing;
  options.next_token = bert == nullptr;
  options.vocab_size = vocab_size(config.model);
  options.pad_id = bert != nullptr ? bert->encoder.pad_token_id : 0;
  auto dataset = std::make_shared<TextDataset>(tokens, part, options);
  if (bert == nullptr) return dataset;
  const auto& tokenizer = tokens->index().tokenizer;
  if (!tokenizer.mask) {
    throw ConfigError(
        fmt::format("model.kind bert learns masked tokens, but tokenizer {} has no mask token", tokenizer.path),
        {.remedy = "use a BERT or RoBERTa tokenizer (data.tokenizer)"});
  }
  return masked(config, dataset, *tokenizer.mask, tokenizer.special_ids());
}

TextPart whole(const TokenStore& tokens) {
  return {.first_token = 0, .end_token = tokens.size(), .first_document = 0, .end_document = tokens.documents()};
}

std::shared_ptr<const TokenStore> open(const RunConfig& config, const std::vector<std::string>& paths) {
  const auto& name = config.data.text.tokenizer;
  const DocumentOptions documents{.separator = config.data.text.separator, .text_column = config.data.text.text_column};
  return open_text(paths, name.empty() ? name : require_tokenizer(name, "data.tokenizer"), documents);
}

// What a resumed run must find again.
nlohmann::json described(const TokenStore& tokens, const std::vector<std::string>& paths) {
  const auto& index = tokens.index();
  nlohmann::json facts{{"tokens", index.tokens},
                       {"documents", index.documents},
                       {"tokenizer", fmt::format("{:016x}", index.tokenizer.fingerprint)}};
  for (const auto& path : paths) {
    const auto hash = is_folder(path) ? index.tokens_xxh64 : xxh64_of_file(path);
    facts["sources"].push_back(fmt::format("{:016x}", hash));
  }
  return facts;
}

}  // namespace

RunData text_data(const RunConfig& config) {
  const auto& source = config.data.text;
  const auto tokens = open(config, source.path);
  const auto split = split_text(*tokens, config.data.eval_fraction, source.packing);
  RunData data;
  nlohmann::json facts{{"sequence_length", config.data.sequence_length},
                       {"packing", source.packing},
                       {"eval_fraction", config.data.eval_fraction},
                       {"text", described(*tokens, source.path)}};
  data.train = for_model(config, tokens, split.train);
  if (split.eval.tokens() > 0) data.eval = for_model(config, tokens, split.eval);
  if (!source.eval_path.empty()) {
    const auto held_out = open(config, source.eval_path);
    data.eval = for_model(config, held_out, whole(*held_out));
  }
  data.saved_files[kDataFile] = facts.dump(1) + "\n";
  data.notes.push_back(fmt::format("{}: {} tokens in {} documents; {} samples to train on, {} to evaluate on",
                                   tokens->name(), tokens->size(), tokens->documents(), data.train->size(),
                                   data.eval ? data.eval->size() : 0));
  return data;
}

}  // namespace orthant
