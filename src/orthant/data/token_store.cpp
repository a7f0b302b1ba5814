#include "orthant/data/token_store.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "orthant/base/error.h"
#include "orthant/files/file_handle.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace {

constexpr const char* kAgain = "prepare the folder again with orthant data prepare-text --force";

std::int64_t expected_bytes(const TokenIndex& index, std::string_view file) {
  return file == kTokensFile ? index.tokens * index.token_bytes : index.documents * 8;
}

// A file that a killed preparation goes on with may be longer than its index says.
void check_size(const std::filesystem::path& path, std::int64_t found, std::int64_t expected, bool complete) {
  if (found == expected || (!complete && found > expected)) return;
  throw DataError(fmt::format("{} has {} bytes, but {} says {}", path.string(), found, kTokenIndexFile, expected),
                  {.remedy = fmt::format("copy the file again, or {}", kAgain)});
}

void check_hash(const std::filesystem::path& path, std::uint64_t expected) {
  const auto found = xxh64_of_file(path);
  if (found == expected) return;
  throw DataError(fmt::format("{} is damaged: its hash is {:016x}, but {} says {:016x}", path.string(), found,
                              kTokenIndexFile, expected),
                  {.remedy = fmt::format("copy the file again, or {}", kAgain)});
}

// Documents follow each other without gaps, none of them empty, to the last token.
void check_document_ends(const TokenStore& store) {
  const auto documents = store.documents();
  if (documents == 0 && store.size() > 0) {
    throw DataError(fmt::format("{}: {} tokens, but no documents", store.name(), store.size()), {.remedy = kAgain});
  }
  for (std::int64_t document = 0; document < documents; ++document) {
    const auto begin = store.document_begin(document);
    const auto end = store.document_begin(document + 1);
    if (begin < end && (document + 1 < documents ? end < store.size() : end == store.size())) continue;
    throw DataError(fmt::format("{}: document {} of {} has tokens {} to {} of {}", store.name(), document, documents,
                                begin, end, store.size()),
                    {.remedy = fmt::format("copy {} again, or {}", kDocumentsFile, kAgain)});
  }
}

// Copies, and gives the largest.
template <typename Id>
std::int64_t widen(const Id* ids, std::span<std::int64_t> out) {
  Id largest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = ids[i];
    largest = std::max(largest, ids[i]);
  }
  return largest;
}

DocumentLengths measure_documents(const TokenStore& store) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(store.documents()));
  if (lengths.empty()) return {};
  for (std::int64_t document = 0; document < store.documents(); ++document) {
    lengths[static_cast<std::size_t>(document)] = store.document_begin(document + 1) - store.document_begin(document);
  }
  const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  return {.shortest = *shortest,
          .median = *middle,
          .longest = *longest,
          .mean = static_cast<double>(store.size()) / static_cast<double>(store.documents())};
}

}  // namespace

TokenStore::TokenStore(std::string name, TokenIndex index) : name_(std::move(name)), index_(std::move(index)) {}

TokenStore::~TokenStore() = default;

std::shared_ptr<const TokenStore> TokenStore::open(const std::filesystem::path& folder) {
  auto index = read_token_index(folder);
  if (!index.complete) {
    throw DataError(fmt::format("{} is incomplete: its preparation was stopped after {} documents", folder.string(),
                                index.documents),
                    {.remedy = "run the same orthant data prepare-text again: it goes on where it was stopped"});
  }
  std::shared_ptr<TokenStore> store(new TokenStore(folder.string(), std::move(index)));
  const auto map = [&](const char* file) {
    const FileHandle handle = FileHandle::open_regular(folder / file);
    const auto expected = expected_bytes(store->index_, file);
    check_size(folder / file, handle.size(), expected, /*complete=*/true);
    return std::make_unique<const FileMap>(handle, expected);
  };
  store->mapped_tokens_ = map(kTokensFile);
  store->mapped_documents_ = map(kDocumentsFile);
  store->tokens_ = store->mapped_tokens_->data();
  store->ends_ = {reinterpret_cast<const std::uint64_t*>(store->mapped_documents_->data()),
                  static_cast<std::size_t>(store->index_.documents)};
  check_document_ends(*store);
  return store;
}

std::shared_ptr<const TokenStore> TokenStore::in_memory(std::string name, TokenIndex index,
                                                        std::vector<std::uint32_t> ids,
                                                        std::vector<std::uint64_t> ends) {
  index.complete = true;
  index.token_bytes = 4;
  index.tokens = static_cast<std::int64_t>(ids.size());
  index.documents = static_cast<std::int64_t>(ends.size());
  index.max_id = ids.empty() ? -1 : *std::ranges::max_element(ids);
  std::shared_ptr<TokenStore> store(new TokenStore(std::move(name), std::move(index)));
  store->ids_ = std::move(ids);
  store->own_ends_ = std::move(ends);
  store->tokens_ = std::as_bytes(std::span(store->ids_)).data();
  store->ends_ = store->own_ends_;
  return store;
}

std::shared_ptr<TokenStore> TokenStore::map_ids(const std::string& path, std::int64_t token_bytes) {
  const FileHandle handle = FileHandle::open_regular(path);
  const auto bytes = handle.size();
  if (bytes == 0 || bytes % token_bytes != 0) {
    throw DataError(
        fmt::format("{} has {} bytes, which are not a whole number of ids of {} bytes", path, bytes, token_bytes),
        {.remedy = "copy the file again, or set data.token_type to the width of its ids"});
  }
  TokenIndex index;
  index.complete = true;
  index.token_bytes = token_bytes;
  index.tokens = bytes / token_bytes;
  index.documents = 1;
  index.max_id = 0xffffffff;  // until it is known
  std::shared_ptr<TokenStore> store(new TokenStore(path, std::move(index)));
  store->mapped_tokens_ = std::make_unique<const FileMap>(handle, bytes);
  store->tokens_ = store->mapped_tokens_->data();
  store->own_ends_ = {static_cast<std::uint64_t>(store->index_.tokens)};
  store->ends_ = store->own_ends_;
  std::vector<std::int64_t> part(std::size_t{1} << 16);
  std::int64_t largest = 0;
  for (std::int64_t at = 0; at < store->size(); at += std::ssize(part)) {
    const auto count = std::min<std::int64_t>(std::ssize(part), store->size() - at);
    const std::span<std::int64_t> ids(part.data(), static_cast<std::size_t>(count));
    store->read(at, ids);
    largest = std::max(largest, *std::ranges::max_element(ids));
  }
  store->index_.max_id = largest;
  return store;
}

std::shared_ptr<const TokenStore> TokenStore::with_tokenizer(std::shared_ptr<TokenStore> store, TokenizerFacts facts) {
  store->index_.tokenizer = std::move(facts);
  return store;
}

std::int64_t TokenStore::document_begin(std::int64_t document) const {
  return document == 0 ? 0 : static_cast<std::int64_t>(ends_[static_cast<std::size_t>(document) - 1]);
}

void TokenStore::read(std::int64_t first, std::span<std::int64_t> out) const {
  if (first < 0 || first + static_cast<std::int64_t>(out.size()) > size()) {
    throw InternalError(
        fmt::format("{}: tokens {} to {} of {}", name_, first, first + static_cast<std::int64_t>(out.size()), size()));
  }
  const auto largest = index_.token_bytes == 2 ? widen(reinterpret_cast<const std::uint16_t*>(tokens_) + first, out)
                                               : widen(reinterpret_cast<const std::uint32_t*>(tokens_) + first, out);
  if (largest <= index_.max_id) return;
  throw DataError(
      fmt::format("{}: token id {} between tokens {} and {}, but {} says that none is above {}", name_, largest, first,
                  first + static_cast<std::int64_t>(out.size()), kTokenIndexFile, index_.max_id),
      {.remedy = kAgain});
}

TokenFolderFacts inspect_token_folder(const std::filesystem::path& folder) {
  TokenFolderFacts facts;
  facts.index = read_token_index(folder);
  for (const char* file : {kTokensFile, kDocumentsFile}) {
    const auto bytes = FileHandle::open_regular(folder / file).size();
    check_size(folder / file, bytes, expected_bytes(facts.index, file), facts.index.complete);
    facts.bytes += bytes;
  }
  if (!facts.index.complete) return facts;
  const auto store = TokenStore::open(folder);
  check_hash(folder / kTokensFile, facts.index.tokens_xxh64);
  check_hash(folder / kDocumentsFile, facts.index.documents_xxh64);
  facts.lengths = measure_documents(*store);
  return facts;
}

}  // namespace orthant
