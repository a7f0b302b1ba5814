#include "orthant/data/prepare_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <system_error>

#include "orthant/base/error.h"
#include "orthant/data/token_writer.h"
#include "orthant/files/folder_lock.h"
#include "orthant/files/partial.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

std::string tokenizer_text(const TokenizerFacts& facts) {
  return fmt::format("{} of {} tokens, {:016x} ({})", facts.kind, facts.vocab_size, facts.fingerprint, facts.path);
}

void compare_sources(const std::vector<TextFile>& had, const std::vector<TextFile>& now,
                     std::vector<std::string>& differences) {
  if (had.size() != now.size()) {
    differences.push_back(fmt::format("{} input files, now {}", had.size(), now.size()));
    return;
  }
  for (std::size_t i = 0; i < had.size(); ++i) {
    if (had[i].bytes == now[i].bytes && had[i].xxh64 == now[i].xxh64) continue;
    differences.push_back(fmt::format("input {} of {} bytes ({:016x}), now {} of {} bytes ({:016x})", had[i].path,
                                      had[i].bytes, had[i].xxh64, now[i].path, now[i].bytes, now[i].xxh64));
  }
}

void refuse_differences(const TokenIndex& had, const TokenIndex& now, const std::string& folder) {
  std::vector<std::string> differences;
  if (had.tokenizer.fingerprint != now.tokenizer.fingerprint || had.tokenizer.vocab_size != now.tokenizer.vocab_size ||
      had.tokenizer.end != now.tokenizer.end) {
    differences.push_back(
        fmt::format("tokenizer {}, now {}", tokenizer_text(had.tokenizer), tokenizer_text(now.tokenizer)));
  }
  if (had.separator != now.separator) {
    differences.push_back(fmt::format("--separator {}, now {}", had.separator, now.separator));
  }
  if (had.text_column != now.text_column) {
    differences.push_back(fmt::format("--text-column {}, now {}", had.text_column, now.text_column));
  }
  if (had.end_token != now.end_token) {
    differences.push_back(had.end_token ? "an end token after every document, now --no-end"
                                        : "--no-end, now an end token after every document");
  }
  if (had.begin_tokens != now.begin_tokens) {
    differences.push_back(fmt::format("documents that begin with [{}], now [{}] (--no-begin leaves it out)",
                                      fmt::join(had.begin_tokens, ", "), fmt::join(now.begin_tokens, ", ")));
  }
  compare_sources(had.sources, now.sources, differences);
  if (differences.empty()) return;
  throw ConfigError(fmt::format("{} was made with other settings: {}", folder, fmt::join(differences, "; ")),
                    {.remedy = "use another --out, or --force to throw away what is there and start anew"});
}

void remove_prepared(const fs::path& folder) {
  for (const char* file : {kTokenIndexFile, kTokensFile, kDocumentsFile}) {
    std::error_code error;
    fs::remove(folder / file, error);
    if (error) throw_io_error(folder / file, "remove", error.value());
  }
}

// The index to go on from; a new one is on disk before any token is.
TokenIndex begin_or_resume(const fs::path& folder, TokenIndex wanted, bool force) {
  for (const auto& left : stale_partials(folder)) {
    std::error_code ignored;
    if (left.filename().string().starts_with(kTokenIndexFile)) fs::remove(left, ignored);
  }
  if (force) remove_prepared(folder);
  if (holds_token_index(folder)) {
    auto index = read_token_index(folder);
    if (!index.complete && index.tokens == 0) return wanted;
    refuse_differences(index, wanted, folder.string());
    if (index.complete) return index;
    index.sources = std::move(wanted.sources);  // they may lie elsewhere now
    if (index.next.file > static_cast<std::int64_t>(index.sources.size())) {
      throw DataError(fmt::format("{} says that file {} of {} is next", (folder / kTokenIndexFile).string(),
                                  index.next.file, index.sources.size()),
                      {.remedy = "start anew with --force"});
    }
    return index;
  }
  if (is_there(folder / kTokensFile) || is_there(folder / kDocumentsFile)) {
    throw ConfigError(fmt::format("{} holds tokens without an {}", folder.string(), kTokenIndexFile),
                      {.remedy = "use another --out, or --force to throw them away"});
  }
  write_token_index(folder, wanted);
  return wanted;
}

// A folder that holds no token yet has nothing to go on from.
bool holds_tokens(const fs::path& folder) {
  try {
    return holds_token_index(folder) && read_token_index(folder).tokens > 0;
  } catch (const Error&) {
    return true;  // nobody knows: it stays
  }
}

PreparedText prepare_in(const fs::path& folder, TokenIndex wanted, const TextEncoder& encoder, const TextInput& input,
                        const PrepareOptions& options) {
  PreparedText prepared{.index = begin_or_resume(folder, std::move(wanted), options.force)};
  auto& index = prepared.index;
  if (index.complete) {
    TokenStore::open(folder);  // sizes
    prepared.was_complete = true;
    return prepared;
  }
  prepared.resumed_bytes = index.next.bytes;
  TokenWriter writer(folder, index);
  std::int64_t flushed = index.next.bytes;
  tokenize_from(index, encoder, input.documents, writer, writer.first_end(), [&](const TextProgress& progress) {
    if (options.progress) options.progress(progress);
    if (progress.bytes - flushed < options.flush_bytes) return;
    flushed = progress.bytes;
    writer.flush();
    write_token_index(folder, index);
  });
  writer.flush();
  index.tokens_xxh64 = xxh64_of_file(folder / kTokensFile);
  index.documents_xxh64 = xxh64_of_file(folder / kDocumentsFile);
  index.complete = true;
  index.next = {};
  write_token_index(folder, index);
  return prepared;
}

}  // namespace

PreparedText prepare_text(const TextEncoder& encoder, const TextInput& input, const PrepareOptions& options) {
  auto wanted = empty_index(encoder, input);
  for (auto& source : wanted.sources) source.xxh64 = xxh64_of_file(source.path);
  const fs::path folder = options.folder;
  const bool is_new = !is_there(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_io_error(folder, "making the folder", error.value());
  const FolderLock lock(folder);  // whoever fails to get it leaves the folder to its owner
  try {
    return prepare_in(folder, std::move(wanted), encoder, input, options);
  } catch (const Error&) {
    if (is_new && !holds_tokens(folder)) fs::remove_all(folder, error);
    throw;
  }
}

}  // namespace orthant
