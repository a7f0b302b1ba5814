#include "orthant/data/token_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/data/id_lines.h"
#include "orthant/files/file_handle.h"

namespace orthant {
namespace {

const std::vector<std::string> kTokenTypes = {"uint16", "uint32"};
constexpr std::int64_t kLargestId = (std::int64_t{1} << 22) - 1;  // of any tokenizer

void check_token_type(const std::vector<std::string>& paths, const std::string& bin, const TokenFileOptions& options) {
  if (options.token_type.empty()) {
    throw ConfigError(fmt::format("{} is a file of ids, but data.token_type does not say how wide they are", bin),
                      {.remedy = "set data.token_type=uint16, or uint32 for a vocabulary of more than 65536"});
  }
  if (std::ranges::find(kTokenTypes, options.token_type) == kTokenTypes.end()) {
    throw ConfigError(fmt::format("data.token_type is \"{}\"", options.token_type),
                      {.remedy = did_you_mean(options.token_type, kTokenTypes)});
  }
  if (paths.size() > 1) {
    throw ConfigError(fmt::format("data.path names {} files, among them {}", paths.size(), bin),
                      {.remedy = "name one .bin; several are joined by cat a.bin b.bin > all.bin"});
  }
}

// A largest id, checked against the tokenizer, and the facts that say so.
TokenizerFacts facts_for(const std::string& name, std::int64_t max_id, TokenizerFacts facts) {
  if (facts.vocab_size == 0) facts.vocab_size = max_id + 1;
  if (max_id >= facts.vocab_size) {
    throw DataError(
        fmt::format("{} has token ids up to {}, but tokenizer {} has a vocabulary of {}", name, max_id, facts.path,
                    facts.vocab_size),
        {.remedy = "use ids of this tokenizer; a training may name the one that made them (data.tokenizer), or none"});
  }
  return facts;
}

std::shared_ptr<const TokenStore> open_bin(const std::string& path, const std::string& type,
                                           const TokenizerFacts& facts) {
  const std::int64_t width = type == "uint16" ? 2 : 4;
  if (width == 2 && looks_like_uint32(path)) {
    throw DataError(
        fmt::format("{}: data.token_type is uint16, but of every two such ids the second is 0 or next to it: these are "
                    "the halves of ids of four bytes",
                    path),
        {.remedy = "set data.token_type=uint32; ids that do alternate so can be read as JSON lines (data.ids_column)"});
  }
  auto store = TokenStore::map_ids(path, width);
  const auto max_id = store->index().max_id;
  if (max_id > kLargestId) {
    throw DataError(fmt::format("{} has ids up to {} as {}, more than any vocabulary", path, max_id, type),
                    {.remedy = "set data.token_type=uint16 if its ids are of two bytes"});
  }
  return TokenStore::with_tokenizer(store, facts_for(path, max_id, facts));
}

NumberedDocuments read_lines(const std::vector<std::string>& paths, const std::string& column,
                             const TokenizerFacts& facts) {
  IdLines lines;
  for (const auto& path : paths) read_id_lines(path, column, kLargestId, lines);
  const auto name = paths.size() == 1 ? paths[0] : fmt::format("{} files of ids ({}, ...)", paths.size(), paths[0]);
  if (lines.ids.empty())
    throw DataError(fmt::format("{}: there are no ids in it", name), {.remedy = "name a file with ids"});
  TokenIndex index;
  index.empty_documents = lines.documents - static_cast<std::int64_t>(lines.ends.size());
  index.tokenizer = facts_for(name, *std::ranges::max_element(lines.ids), facts);
  return {TokenStore::in_memory(name, std::move(index), std::move(lines.ids), std::move(lines.ends)),
          std::move(lines.numbers), lines.documents};
}

}  // namespace

bool is_token_bin(const std::string& path) {
  return std::filesystem::path(path).extension() == ".bin";
}

bool looks_like_uint32(const std::string& path) {
  constexpr std::int64_t kMostBytes = std::int64_t{2} << 20;
  constexpr std::size_t kFewest = 4;  // ids of four bytes, that say something
  const auto file = FileHandle::open_regular(path);
  if (file.size() % 4 != 0) return false;
  std::vector<std::uint16_t> halves(static_cast<std::size_t>(std::min(file.size(), kMostBytes)) / 2);
  file.read_exactly(0, std::as_writable_bytes(std::span(halves)));
  const auto ids = halves.size() / 2;
  std::size_t lower_zeros = 0;
  std::size_t upper_zeros = 0;
  for (std::size_t i = 0; i < halves.size(); i += 2) {
    if (halves[i + 1] > (kLargestId >> 16)) return false;
    lower_zeros += halves[i] == 0 ? 1 : 0;
    upper_zeros += halves[i + 1] == 0 ? 1 : 0;
  }
  if (ids < kFewest) return false;
  const bool all_small = upper_zeros == ids && lower_zeros < ids;
  return all_small || (upper_zeros * 2 >= ids && lower_zeros * 10 < ids);
}

bool hold_ids(const std::vector<std::string>& paths, const TokenFileOptions& options) {
  const auto bin = std::ranges::find_if(paths, is_token_bin);
  if (bin != paths.end()) {
    check_token_type(paths, *bin, options);
    return true;
  }
  return !options.ids_column.empty();
}

NumberedDocuments open_token_files(const std::vector<std::string>& paths, const TokenFileOptions& options,
                                   const TokenizerFacts& facts) {
  if (is_token_bin(paths.at(0))) return {.tokens = open_bin(paths[0], options.token_type, facts), .documents = 1};
  return read_lines(paths, options.ids_column, facts);
}

}  // namespace orthant
