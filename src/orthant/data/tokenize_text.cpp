#include "orthant/data/tokenize_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "orthant/base/error.h"
#include "orthant/data/parquet.h"
#include "orthant/data/token_files.h"
#include "orthant/data/token_writer.h"
#include "orthant/files/file_handle.h"
#include "orthant/files/path_facts.h"
#include "orthant/text/tokenizer.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// Takes chunks one after the other; the index knows at any time what the sink holds.
class Tokenization {
 public:
  Tokenization(const TextEncoder& encoder, TokenIndex& index, TokenSink& sink, std::int64_t last_end)
      : encoder_(encoder), index_(index), sink_(sink), last_end_(last_end) {
    for (std::int64_t i = 0; i < index.next.file; ++i)
      files_before_ += index.sources[static_cast<std::size_t>(i)].bytes;
  }

  void take(const TextChunk& chunk) {
    ids_.clear();
    encoder_.encode(chunk.text, chunk.continues_document, ids_);
    const bool begins = index_.tokens == last_end_ && !ids_.empty();
    if (begins) ids_.insert(ids_.begin(), index_.begin_tokens.begin(), index_.begin_tokens.end());
    put();
    if (chunk.ends_document) end_document();
    index_.next.position = chunk.next;
    index_.next.inside_document = !chunk.ends_document;
    index_.next.bytes = files_before_ + std::min(chunk.bytes, file_bytes());
  }

  void end_file() {
    if (index_.tokens > last_end_) end_document();
    files_before_ += file_bytes();
    index_.next = {.file = index_.next.file + 1, .bytes = files_before_};
  }

 private:
  std::int64_t file_bytes() const { return index_.sources[static_cast<std::size_t>(index_.next.file)].bytes; }

  void put() {
    for (const std::int32_t id : ids_) {
      if (id < 0 || id >= encoder_.facts.vocab_size) {
        throw InternalError(
            fmt::format("the tokenizer gave id {} of a vocabulary of {}", id, encoder_.facts.vocab_size));
      }
      index_.max_id = std::max<std::int64_t>(index_.max_id, id);
    }
    sink_.add(ids_);
    index_.tokens += static_cast<std::int64_t>(ids_.size());
  }

  void end_document() {
    if (index_.tokens == last_end_) {
      ++index_.empty_documents;
      sink_.skip_empty_document();
      return;
    }
    if (index_.end_token) {
      ids_.assign(1, *encoder_.facts.end);
      put();
    }
    last_end_ = index_.tokens;
    ++index_.documents;
    sink_.end_document(last_end_);
  }

  const TextEncoder& encoder_;
  TokenIndex& index_;
  TokenSink& sink_;
  std::int64_t last_end_;
  std::int64_t files_before_ = 0;  // bytes
  std::vector<std::int32_t> ids_;
};

[[noreturn]] void refuse_empty(const TokenIndex& index) {
  std::int64_t bytes = 0;
  for (const auto& source : index.sources) bytes += source.bytes;
  throw DataError(
      fmt::format("there is no text in {} ({} bytes, {} empty documents)",
                  index.sources.size() == 1 ? index.sources[0].path : fmt::format("{} files", index.sources.size()),
                  bytes, index.empty_documents),
      {.remedy = "name files that hold text, and the column of tables (data.text_column, --text-column)"});
}

void refuse_ids(const std::string& file) {
  if (!is_token_bin(file)) return;
  throw DataError(fmt::format("{} is by its ending a file of token ids, not text", file),
                  {.remedy = fmt::format("train on it as it is: --set data.kind=text --set data.path={} --set "
                                         "data.token_type=uint16 (or uint32); name it .txt if it does hold text",
                                         file)});
}

std::string name_of(const std::vector<std::string>& files) {
  return files.size() == 1 ? files[0] : fmt::format("{} text files ({}, ...)", files.size(), files[0]);
}

}  // namespace

TokenIndex empty_index(const TextEncoder& encoder, const TextInput& input) {
  if (input.files.empty())
    throw ConfigError("there are no text files to tokenize", {.remedy = "name some with --input"});
  check_separator(input.documents.separator);
  if (input.end_token && !encoder.facts.end) {
    throw ConfigError(fmt::format("tokenizer {} has no token that ends a document", encoder.facts.path),
                      {.remedy = "use --no-end to join documents without one, or another tokenizer"});
  }
  if (input.begin_token == true && encoder.begin.empty() && !encoder.facts.begin) {
    throw ConfigError(fmt::format("tokenizer {} has no token that begins a document", encoder.facts.path),
                      {.remedy = "leave data.begin_token out, or use another tokenizer"});
  }
  TokenIndex index;
  if (input.begin_token.value_or(true)) index.begin_tokens = encoder.begin;
  if (input.begin_token == true && index.begin_tokens.empty()) index.begin_tokens = {*encoder.facts.begin};
  index.token_bytes = encoder.facts.vocab_size <= 0x10000 ? 2 : 4;
  index.separator = input.documents.separator;
  index.text_column = input.documents.text_column;
  index.end_token = input.end_token;
  index.tokenizer = encoder.facts;
  for (const auto& file : input.files) {
    if (is_parquet(file)) check_parquet(file);
    refuse_ids(file);
  }
  for (const auto& file : input.files) {
    index.sources.push_back({.path = file, .bytes = FileHandle::open_regular(file).size()});
  }
  return index;
}

void tokenize_from(TokenIndex& index, const TextEncoder& encoder, const DocumentOptions& documents, TokenSink& sink,
                   std::int64_t last_end, const TextProgressCall& after_chunk) {
  Tokenization tokenization(encoder, index, sink, last_end);
  TextProgress progress{.first_byte = index.next.bytes};
  for (const auto& source : index.sources) progress.total_bytes += source.bytes;
  const auto tell = [&] {
    if (!after_chunk) return;
    progress.bytes = index.next.bytes;
    progress.documents = index.documents;
    progress.tokens = index.tokens;
    after_chunk(progress);
  };
  DocumentOptions options = documents;
  options.chunks.may_cut = options.chunks.may_cut && encoder.may_cut;
  TextChunk chunk;
  while (index.next.file < static_cast<std::int64_t>(index.sources.size())) {
    const auto& source = index.sources[static_cast<std::size_t>(index.next.file)];
    const auto reader = open_documents(source.path, options, index.next.position, index.next.inside_document);
    while (reader->next(chunk)) {
      tokenization.take(chunk);
      tell();
    }
    tokenization.end_file();
    tell();
  }
  if (index.tokens == 0) refuse_empty(index);
}

NumberedDocuments tokenize_documents(const TextEncoder& encoder, const TextInput& input,
                                     const TextProgressCall& progress) {
  auto index = empty_index(encoder, input);
  MemoryTokens sink;
  tokenize_from(index, encoder, input.documents, sink, 0, progress);
  return {TokenStore::in_memory(name_of(input.files), std::move(index), std::move(sink.ids), std::move(sink.ends)),
          std::move(sink.numbers), sink.documents};
}

std::shared_ptr<const TokenStore> tokenize_text(const TextEncoder& encoder, const TextInput& input,
                                                const TextProgressCall& progress) {
  return tokenize_documents(encoder, input, progress).tokens;
}

TextEncoder text_encoder(const Tokenizer& tokenizer, const std::string& path) {
  const auto& special = tokenizer.special();
  return {.encode =
              [tokenizer](std::string_view text, bool continues, std::vector<std::int32_t>& ids) {
                tokenizer.encode_into(text, {.special = false, .continues = continues}, ids);
              },
          .may_cut = tokenizer.may_be_cut(),
          .facts = {.path = fs::absolute(path).lexically_normal().string(),
                    .kind = tokenizer.kind(),
                    .fingerprint = tokenizer.fingerprint(),
                    .vocab_size = tokenizer.vocab_size(),
                    .pad = special.pad,
                    .unknown = special.unknown,
                    .begin = special.begin,
                    .end = special.end,
                    .mask = special.mask},
          .begin = tokenizer.document_begin()};
}

NumberedDocuments open_text(const std::vector<std::string>& paths, const std::string& tokenizer,
                            const DocumentOptions& documents, std::optional<bool> begin_token) {
  const auto folder = std::ranges::find_if(paths, [](const std::string& path) { return is_folder(path); });
  if (folder == paths.end()) {
    if (tokenizer.empty()) {
      throw ConfigError(
          "data.path names text files, but there is no data.tokenizer",
          {.remedy = "set data.tokenizer to a tokenizer.json or its folder, or data.path to a folder made by "
                     "orthant data prepare-text"});
    }
    const auto encoder = text_encoder(Tokenizer::load(tokenizer), tokenizer);
    return tokenize_documents(encoder, {.files = paths,
                                        .documents = documents,
                                        .end_token = encoder.facts.end.has_value(),
                                        .begin_token = begin_token});
  }
  if (paths.size() > 1) {
    throw ConfigError(fmt::format("data.path names {} places, among them the folder {}", paths.size(), *folder),
                      {.remedy = "name one prepared folder, or text files only"});
  }
  auto store = TokenStore::open(*folder);
  if (!tokenizer.empty()) {
    const auto given = Tokenizer::load(tokenizer).fingerprint();
    const auto& made = store->index().tokenizer;
    if (given != made.fingerprint) {
      throw ConfigError(fmt::format("{} was made with tokenizer {} ({:016x}), but data.tokenizer is {} ({:016x})",
                                    *folder, made.path, made.fingerprint, tokenizer, given),
                        {.remedy = "leave data.tokenizer out, or prepare the folder again with it"});
    }
  }
  return {.tokens = store, .documents = store->documents()};
}

}  // namespace orthant
