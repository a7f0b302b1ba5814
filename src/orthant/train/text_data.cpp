#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "orthant/base/error.h"
#include "orthant/base/json_tree.h"
#include "orthant/data/id_lines.h"
#include "orthant/data/masked_tokens.h"
#include "orthant/data/text_dataset.h"
#include "orthant/data/token_files.h"
#include "orthant/data/tokenize_text.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/models/example_names.h"
#include "orthant/models/family.h"
#include "orthant/text/tokenizer.h"
#include "orthant/train/file_data.h"
#include "orthant/train/model_folders.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

TextDatasetOptions dataset_options(const RunConfig& config) {
  const auto facts = facts_of(config.model);
  TextDatasetOptions options;
  options.sequence_length = config.data.sequence_length;
  options.packing = config.data.text.packing;
  options.documents = config.data.text.pack;
  options.next_token = config.model.family().task == Task::next_token;
  options.vocab_size = facts.vocab_size;
  options.pad_id = facts.pad_token_id;
  return options;
}

// Some models learn masked tokens; the others predict the next one.
std::shared_ptr<const Dataset> as_read(const RunConfig& config, const TokenStore& tokens,
                                       std::shared_ptr<const Dataset> dataset) {
  if (config.model.family().task != Task::masked_token) return dataset;
  const auto& tokenizer = tokens.index().tokenizer;
  if (!tokenizer.mask) {
    throw ConfigError(fmt::format("model.kind {} learns masked tokens, but tokenizer {} has no mask token",
                                  model_kind(config.model), tokenizer.path),
                      {.remedy = fmt::format("use a {} tokenizer (data.tokenizer)", kExampleEncoders)});
  }
  return masked(config, std::move(dataset), *tokenizer.mask, tokenizer.special_ids());
}

std::shared_ptr<const Dataset> for_model(const RunConfig& config, const std::shared_ptr<const TokenStore>& tokens,
                                         const TextPart& part) {
  return as_read(config, *tokens, std::make_shared<TextDataset>(tokens, part, dataset_options(config)));
}

TextPart whole(const TokenStore& tokens) {
  return {.first_token = 0, .end_token = tokens.size(), .first_document = 0, .end_document = tokens.documents()};
}

DocumentOptions document_options(const RunConfig& config) {
  const auto& text = config.data.text;
  return {.separator = text.separator, .text_column = text.text_column, .keep_invalid_utf8 = text.keep_invalid_utf8};
}

// Files of ids that another program made. Their tokenizer, where it is given, says which ids are special.
NumberedDocuments open_ids(const TextSource& source, const std::vector<std::string>& paths,
                           const std::string& tokenizer) {
  if (is_token_bin(paths[0]) && !source.packing) {
    throw ConfigError(fmt::format("data.packing is false, but {} does not say where documents end", paths[0]),
                      {.remedy = "set data.packing=true, or write the ids as JSON lines (data.ids_column)"});
  }
  if (is_token_bin(paths[0]) && source.pack) {
    throw ConfigError(fmt::format("data.pack is true, but {} does not say where documents end", paths[0]),
                      {.remedy = "set data.pack=false, or write the ids as JSON lines (data.ids_column)"});
  }
  const auto facts = tokenizer.empty() ? TokenizerFacts() : text_encoder(Tokenizer::load(tokenizer), tokenizer).facts;
  return open_token_files(paths, {.token_type = source.token_type, .ids_column = source.ids_column}, facts);
}

// Ids or text, to train on or to score: nothing else decides it.
NumberedDocuments open(const RunConfig& config, const std::vector<std::string>& paths) {
  const auto& source = config.data.text;
  const auto tokenizer =
      source.tokenizer.empty() ? source.tokenizer : require_tokenizer(source.tokenizer, "data.tokenizer");
  if (hold_ids(paths, {.token_type = source.token_type, .ids_column = source.ids_column})) {
    return open_ids(source, paths, tokenizer);
  }
  return open_text(paths, tokenizer, document_options(config), source.begin_token);
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

// The ids of other text must mean what they meant in training. Ids of another program may have no known tokenizer.
void check_meaning(const RunConfig& config, const TokenStore& tokens, const fs::path& checkpoint) {
  const auto vocabulary = vocab_size(config.model);
  if (vocabulary > 0 && tokens.index().max_id >= vocabulary) {
    throw DataError(fmt::format("{} has token ids up to {}, but the model has a vocabulary of {}", tokens.name(),
                                tokens.index().max_id, vocabulary),
                    {.remedy = "use ids of the tokenizer that the model was trained with"});
  }
  const auto file = checkpoint / kDataFile;
  if (checkpoint.empty() || !is_there(file)) return;
  const auto facts = *parse_json(read_text_file(file, JsonOptions().max_bytes),
                                 {.source = file.string(), .errors = JsonErrorKind::kData})
                          .value;
  const nlohmann::json::json_pointer place("/text/tokenizer");
  if (!facts.contains(place)) return;
  const auto& made = tokens.index().tokenizer;
  const auto now = fmt::format("{:016x}", made.fingerprint);
  const bool is_unknown = made.fingerprint == 0 || facts[place] == fmt::format("{:016x}", 0);
  if (is_unknown || facts[place] == now) return;
  throw DataError(fmt::format("{}: its tokenizer {} ({}) is another than the model was trained with ({} in {})",
                              tokens.name(), made.path, now, facts[place].dump(), file.string()),
                  {.remedy = "name the text itself, or prepare it with the tokenizer in the run's folder"});
}

constexpr const char* kIdsAsLines = "write the ids as JSON lines, a document a line: [1, 2, 3]";

// Of one file to score: the run's keys, where they say how to read it. Lists in JSON lines need none of them.
bool holds_id_lines(const TextSource& text, const std::string& path) {
  if (!text.ids_column.empty()) return begins_with_ids(path, text.ids_column);
  const auto ending = fs::path(path).extension();
  return (ending == ".jsonl" || ending == ".ndjson") && begins_with_ids(path, "");
}

// A run's configuration for text to score, which need not be of the kind that the run was trained on. A prepared
// folder brings its own tokenizer, which is compared afterwards.
RunConfig with_readable_text(RunConfig config) {
  auto& text = config.data.text;
  const auto& path = text.path.front();
  if (is_folder(path)) {
    text.tokenizer.clear();
    text.ids_column.clear();
  } else if (is_token_bin(path)) {
    if (!text.token_type.empty()) return config;
    throw DataError(fmt::format("{}: the run was not trained on a .bin, and nothing says how wide its ids are", path),
                    {.remedy = kIdsAsLines});
  } else if (!holds_id_lines(text, path)) {
    text.ids_column.clear();
    if (!text.tokenizer.empty()) return config;
    throw DataError(fmt::format("{}: is text, and the run keeps no tokenizer to read it with", path),
                    {.remedy = "name a file of ids, or a folder that orthant data prepare-text made of it with the "
                               "tokenizer of the run's ids"});
  } else if (text.ids_column.empty()) {
    text.ids_column = "ids";
  }
  return config;
}

}  // namespace

std::shared_ptr<const Dataset> text_to_evaluate(const RunConfig& config, const fs::path& checkpoint) {
  const auto tokens = open(with_readable_text(config), config.data.text.path).tokens;
  check_meaning(config, *tokens, checkpoint);
  return for_model(config, tokens, whole(*tokens));
}

DocumentsToScore documents_to_score(const RunConfig& config, const fs::path& checkpoint) {
  const auto readable = with_readable_text(config);
  const auto& path = config.data.text.path;
  if (is_token_bin(path.front())) {
    throw DataError(fmt::format("{}: does not say where documents end, and each is scored alone", path.front()),
                    {.remedy = fmt::format("{}, or measure all of it with orthant evaluate", kIdsAsLines)});
  }
  auto found = open(readable, path);
  check_meaning(config, *found.tokens, checkpoint);
  if (found.numbers.empty()) {
    found.numbers.resize(static_cast<std::size_t>(found.documents));
    std::iota(found.numbers.begin(), found.numbers.end(), 0);
  }
  auto options = dataset_options(config);
  options.packing = false;
  options.whole_documents = true;
  DocumentsToScore documents;
  documents.windows = std::make_shared<TextDataset>(found.tokens, whole(*found.tokens), options);
  documents.samples = as_read(config, *found.tokens, documents.windows);
  documents.numbers = std::move(found.numbers);
  documents.documents = found.documents;
  return documents;
}

RunData text_data(const RunConfig& config) {
  const auto& source = config.data.text;
  const bool any_bin =
      std::ranges::any_of(source.path, is_token_bin) || std::ranges::any_of(source.eval_path, is_token_bin);
  if (!source.token_type.empty() && !any_bin) {
    throw ConfigError(fmt::format("data.token_type is {}, but data.path names no .bin file", source.token_type),
                      {.remedy = "leave data.token_type out"});
  }
  const bool ids = hold_ids(source.path, {.token_type = source.token_type, .ids_column = source.ids_column});
  if (source.begin_token && (ids || is_folder(source.path[0]))) {
    throw ConfigError(
        fmt::format("data.begin_token is {}, but {} holds ids already", *source.begin_token, source.path[0]),
        {.remedy = "leave data.begin_token out; prepare-text --no-begin prepares documents without a begin token"});
  }
  const auto tokens = open(config, source.path).tokens;
  const auto split = split_text(*tokens, config.data.eval_fraction, source.packing);
  RunData data;
  nlohmann::json facts{{"sequence_length", config.data.sequence_length},
                       {"packing", source.pack ? nlohmann::json("documents") : nlohmann::json(source.packing)},
                       {"eval_fraction", config.data.eval_fraction},
                       {"files", source.path},
                       {"text", described(*tokens, source.path)}};
  data.train = for_model(config, tokens, split.train);
  if (split.eval.tokens() > 0) data.eval = for_model(config, tokens, split.eval);
  if (!source.eval_path.empty()) {
    const auto held_out = open(config, source.eval_path).tokens;
    data.eval = for_model(config, held_out, whole(*held_out));
  }
  data.saved_files[kDataFile] = facts.dump(1) + "\n";
  data.notes.push_back(fmt::format(
      "{}: {} tokens in {} document{}; {} samples to train on, {} to evaluate on", tokens->name(), tokens->size(),
      tokens->documents(), tokens->documents() == 1 ? "" : "s", data.train->size(), data.eval ? data.eval->size() : 0));
  return data;
}

}  // namespace orthant
