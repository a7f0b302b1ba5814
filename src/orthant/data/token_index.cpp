#include "orthant/data/token_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_reader.h"
#include "orthant/data/hash_text.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/files/xxhash.h"

namespace orthant {
namespace {

constexpr int kVersion = 1;
constexpr const char* kFormat = "orthant tokens";
constexpr std::int64_t kMaxCount = std::int64_t{1} << 56;  // bytes of that many tokens are still a number

struct SpecialToken {
  const char* name;
  std::optional<std::int32_t> TokenizerFacts::* id;
};
constexpr SpecialToken kSpecialTokens[] = {{"pad", &TokenizerFacts::pad},
                                           {"unknown", &TokenizerFacts::unknown},
                                           {"begin", &TokenizerFacts::begin},
                                           {"end", &TokenizerFacts::end},
                                           {"mask", &TokenizerFacts::mask}};

std::int64_t read_count(JsonReader& reader, const char* key) {
  const auto value = reader.require<std::int64_t>(key);
  if (value < 0 || value > kMaxCount) reader.fail(key, fmt::format("{} is not in [0, {}]", value, kMaxCount));
  return value;
}

TokenizerFacts read_tokenizer(JsonReader reader) {
  TokenizerFacts facts;
  facts.path = reader.require<std::string>("path");
  facts.kind = reader.require<std::string>("kind");
  facts.fingerprint = read_hash(reader, "fingerprint");
  facts.vocab_size = read_count(reader, "vocab_size");
  auto special = reader.require_object("special");
  for (const auto& token : kSpecialTokens) {
    const auto id = special.find<int>(token.name);
    if (id) facts.*token.id = *id;
  }
  return facts;
}

nlohmann::ordered_json tokenizer_json(const TokenizerFacts& facts) {
  nlohmann::ordered_json special = nlohmann::ordered_json::object();
  for (const auto& token : kSpecialTokens) {
    const auto& id = facts.*token.id;
    if (id) special[token.name] = *id;
  }
  return {{"path", facts.path},
          {"kind", facts.kind},
          {"fingerprint", hash_text(facts.fingerprint)},
          {"vocab_size", facts.vocab_size},
          {"special", special}};
}

void check_numbers(const JsonReader& reader, const TokenIndex& index) {
  if (index.max_id >= index.tokenizer.vocab_size) {
    reader.fail("max_id",
                fmt::format("{} is not below the vocabulary of {} tokens", index.max_id, index.tokenizer.vocab_size));
  }
  if (index.token_bytes == 2 && index.max_id > 0xffff) {
    reader.fail("max_id", fmt::format("{} does not fit in uint16", index.max_id));
  }
  if (index.documents > index.tokens) {
    reader.fail("documents", fmt::format("{} documents of {} tokens", index.documents, index.tokens));
  }
}

TokenIndex read_index(JsonReader reader) {
  if (const auto format = reader.require<std::string>("format"); format != kFormat) {
    reader.fail("format", fmt::format("\"{}\" is not \"{}\"", format, kFormat));
  }
  if (const auto version = reader.require<int>("version"); version != kVersion) {
    reader.fail("version", fmt::format("version {} is not {}", version, kVersion), "prepare the folder again");
  }
  TokenIndex index;
  index.complete = reader.require<bool>("complete");
  const auto dtype = reader.require<std::string>("dtype");
  if (dtype != "uint16" && dtype != "uint32") {
    reader.fail("dtype", fmt::format("\"{}\" is neither uint16 nor uint32", dtype));
  }
  index.token_bytes = dtype == "uint16" ? 2 : 4;
  index.tokens = read_count(reader, "tokens");
  index.documents = read_count(reader, "documents");
  index.empty_documents = read_count(reader, "empty_documents");
  index.max_id = reader.require<std::int64_t>("max_id");
  index.separator = reader.require<std::string>("separator");
  index.text_column = reader.require<std::string>("text_column");
  index.end_token = reader.require<bool>("end_token");
  for (const auto id : reader.get<std::vector<std::int64_t>>("begin_tokens", {})) {
    index.begin_tokens.push_back(static_cast<std::int32_t>(id));
  }
  index.tokenizer = read_tokenizer(reader.require_object("tokenizer"));
  for (auto& source : reader.objects("sources")) {
    index.sources.push_back(
        {source.require<std::string>("path"), read_count(source, "bytes"), read_hash(source, "xxh64")});
  }
  if (index.complete) {
    index.tokens_xxh64 = read_hash(reader, "tokens_xxh64");
    index.documents_xxh64 = read_hash(reader, "documents_xxh64");
  } else {
    auto next = reader.require_object("next");
    index.next = {.file = read_count(next, "file"),
                  .position = read_count(next, "position"),
                  .bytes = read_count(next, "bytes"),
                  .inside_document = next.require<bool>("inside_document")};
  }
  check_numbers(reader, index);
  reader.finish();
  return index;
}

}  // namespace

std::vector<std::int64_t> TokenizerFacts::special_ids() const {
  std::vector<std::int64_t> ids;
  for (const auto& token : kSpecialTokens) {
    if (const auto& id = this->*token.id) ids.push_back(*id);
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

bool holds_token_index(const std::filesystem::path& folder) {
  return is_there(folder / kTokenIndexFile);
}

TokenIndex read_token_index(const std::filesystem::path& folder) {
  if (!holds_token_index(folder)) {
    throw DataError(
        fmt::format("{} is not a folder of prepared tokens: it has no {}", folder.string(), kTokenIndexFile),
        {.remedy = "make one with orthant data prepare-text --input FILE --tokenizer T --out FOLDER"});
  }
  const auto path = folder / kTokenIndexFile;
  return read_index(JsonReader(JsonDocument::load(path.string(), {.errors = JsonErrorKind::kData,
                                                                  .max_bytes = std::int64_t{256} << 20,
                                                                  .max_tree_bytes = std::int64_t{1} << 30})));
}

void write_token_index(const std::filesystem::path& folder, const TokenIndex& index) {
  nlohmann::ordered_json sources = nlohmann::ordered_json::array();
  for (const auto& source : index.sources) {
    sources.push_back({{"path", source.path}, {"bytes", source.bytes}, {"xxh64", hash_text(source.xxh64)}});
  }
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"version", kVersion},
                                 {"complete", index.complete},
                                 {"dtype", index.token_bytes == 2 ? "uint16" : "uint32"},
                                 {"tokens", index.tokens},
                                 {"documents", index.documents},
                                 {"empty_documents", index.empty_documents},
                                 {"max_id", index.max_id},
                                 {"separator", index.separator},
                                 {"text_column", index.text_column},
                                 {"end_token", index.end_token},
                                 {"begin_tokens", index.begin_tokens},
                                 {"tokenizer", tokenizer_json(index.tokenizer)},
                                 {"sources", sources}};
  if (index.complete) {
    json["tokens_xxh64"] = hash_text(index.tokens_xxh64);
    json["documents_xxh64"] = hash_text(index.documents_xxh64);
  } else {
    json["next"] = {{"file", index.next.file},
                    {"position", index.next.position},
                    {"bytes", index.next.bytes},
                    {"inside_document", index.next.inside_document}};
  }
  write_file_atomically(folder / kTokenIndexFile,
                        json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace orthant
