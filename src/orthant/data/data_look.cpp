#include "orthant/data/data_look.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/data/document_reader.h"
#include "orthant/data/table_look.h"
#include "orthant/data/token_files.h"
#include "orthant/data/token_store.h"
#include "orthant/files/path_facts.h"
#include "orthant/text/table_reader.h"
#include "orthant/text/utf8.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSampleBytes = std::int64_t{2} << 20;  // of text that is tokenized
constexpr std::size_t kSampleFiles = 16;
constexpr std::size_t kFirstBytes = std::size_t{1} << 20;

std::string first_bytes(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw DataError(fmt::format("{}: cannot be read", file), {.remedy = "see who may read it"});
  std::string text(kFirstBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

bool is_id_list(const nlohmann::json& value) {
  return value.is_array() && !value.empty() &&
         std::ranges::all_of(value, [](const auto& id) { return id.is_number_integer(); });
}

// The key of a list of ids in the first line of JSON lines; nothing when there is none.
std::optional<std::string> ids_key(const std::string& file) {
  const auto ending = fs::path(file).extension();
  if (ending != ".jsonl" && ending != ".ndjson") return std::nullopt;
  const auto text = first_bytes(file);
  const auto line = nlohmann::json::parse(text.substr(0, text.find('\n')), nullptr, /*allow_exceptions=*/false);
  if (is_id_list(line)) return "ids";
  if (!line.is_object()) return std::nullopt;
  for (const char* usual : {"ids", "input_ids", "tokens"}) {
    if (line.contains(usual) && is_id_list(line[usual])) return usual;
  }
  for (const auto& [key, value] : line.items()) {
    if (is_id_list(value)) return key;
  }
  return std::nullopt;
}

DataFound folder_data(const std::string& path) {
  if (holds_token_index(path)) return {.form = DataForm::prepared, .files = {path}};
  DataFound data;
  for (const auto& name : names_in_folder(path)) {
    const auto file = fs::path(path) / name;
    if (file.extension() != ".txt" || !orthant::is_regular_file(file)) continue;
    data.files.push_back(file.string());
    data.bytes += static_cast<std::int64_t>(fs::file_size(file));
  }
  if (!data.files.empty()) return data;
  throw DataError(fmt::format("{}: a folder without .txt files, and not one that prepare-text made", path),
                  {.remedy = "name a text file, a table, or a folder of .txt files or prepared tokens"});
}

// The length that 99 of 100 have at most.
std::int64_t length_of_most(std::vector<std::int64_t>& lengths) {
  if (lengths.empty()) return 0;
  std::ranges::sort(lengths);
  return lengths[(lengths.size() * 99 + 99) / 100 - 1];
}

CorpusLook look_at_folder(const std::string& folder) {
  const auto store = TokenStore::open(folder);
  CorpusLook look;
  look.tokens = store->size();
  look.vocab_size = store->index().tokenizer.vocab_size;
  look.mask = store->index().tokenizer.mask.has_value();
  look.largest_id = store->index().max_id;
  look.fingerprint = store->index().tokenizer.fingerprint;
  constexpr std::int64_t kMostDocuments = 100000;
  const auto stride = std::max<std::int64_t>(1, store->documents() / kMostDocuments);
  std::vector<std::int64_t> lengths;
  for (std::int64_t d = 0; d < store->documents(); d += stride) {
    lengths.push_back(store->document_begin(d + 1) - store->document_begin(d));
  }
  look.document_tokens = length_of_most(lengths);
  return look;
}

CorpusLook look_at_ids(const DataFound& data) {
  CorpusLook look;
  TokenFileOptions options{.ids_column = data.ids_column};
  if (data.form == DataForm::id_file) {
    options.token_type = look.token_type = looks_like_uint32(data.files[0]) ? "uint32" : "uint16";
    look.whole = true;
  }
  const auto store = open_token_files(data.files, options, {}).tokens;
  look.tokens = store->size();
  look.largest_id = store->index().max_id;
  std::vector<std::int64_t> lengths;
  for (std::int64_t d = 0; d < store->documents() && !look.whole; ++d) {
    lengths.push_back(store->document_begin(d + 1) - store->document_begin(d));
  }
  look.document_tokens = length_of_most(lengths);
  return look;
}

// Documents of the first files, until the sample is large enough.
CorpusLook look_at_text(const DataFound& data, const Tokenizer& tokenizer) {
  CorpusLook look;
  DocumentOptions options{.separator = data.separator};
  if (data.form == DataForm::rows) options.text_column = look.text_column = data.text_column.value();
  options.chunks.may_cut = tokenizer.may_be_cut();
  options.chunks.bytes = kSampleBytes;
  std::vector<std::int64_t> lengths;
  std::int64_t text_bytes = 0, file_bytes = 0, tokens = 0;
  const auto& begin = tokenizer.document_begin();
  std::vector<std::int32_t> ids;
  TextChunk chunk;
  for (std::size_t i = 0; i < data.files.size() && i < kSampleFiles && text_bytes < kSampleBytes; ++i) {
    const auto reader = open_documents(data.files[i], options);
    std::int64_t read = 0;
    while (text_bytes < kSampleBytes && reader->next(chunk)) {
      ids.clear();
      tokenizer.encode_into(chunk.text, {.special = false}, ids);
      text_bytes += static_cast<std::int64_t>(chunk.text.size());
      if (!ids.empty() && !chunk.continues_document) ids.insert(ids.end(), begin.begin(), begin.end());
      tokens += static_cast<std::int64_t>(ids.size()) + (chunk.ends_document ? 1 : 0);
      read = chunk.bytes;
      look.windows_lines = look.windows_lines || chunk.text.find("\r\n") != std::string::npos;
      if (!ids.empty()) lengths.push_back(static_cast<std::int64_t>(ids.size()) + 1);
      look.whole = look.whole || !chunk.ends_document;
    }
    file_bytes += read;
  }
  if (lengths.empty())
    throw DataError(fmt::format("{}: there is no text", data.files[0]), {.remedy = "name other data"});
  const double share = file_bytes >= data.bytes ? 1 : static_cast<double>(file_bytes) / static_cast<double>(data.bytes);
  look.tokens = std::llround(static_cast<double>(tokens) / std::max(share, 1e-9));
  look.document_tokens = length_of_most(lengths);
  look.vocab_size = tokenizer.vocab_size();
  return look;
}

}  // namespace

DataFound find_data(const std::string& path) {
  if (!is_there(path)) {
    throw DataError(fmt::format("--data {}: there is no such file or folder", path),
                    {.remedy = "name a text file, a table (.csv, .tsv, .jsonl, .json), a .bin of ids, or a folder of "
                               ".txt files or prepared tokens"});
  }
  if (is_folder(path)) return folder_data(path);
  if (!orthant::is_regular_file(path)) {
    throw DataError(fmt::format("--data {}: is neither a file nor a folder", path), {.remedy = "name a regular file"});
  }
  constexpr std::array<std::string_view, 4> kWorkbooks = {".xlsx", ".xls", ".ods", ".numbers"};
  if (std::ranges::find(kWorkbooks, fs::path(path).extension().string()) != kWorkbooks.end()) {
    throw DataError(
        fmt::format("--data {}: a workbook of a spreadsheet program, which is not read", path),
        {.remedy = "save the sheet from there as \"CSV UTF-8\", with commas between columns, and name that file"});
  }
  DataFound data{.files = {path}, .bytes = static_cast<std::int64_t>(fs::file_size(path))};
  if (data.bytes == 0) throw DataError(fmt::format("--data {}: is empty", path), {.remedy = "name other data"});
  if (is_token_bin(path)) {
    data.form = DataForm::id_file;
  } else if (const auto key = ids_key(path)) {
    data.form = DataForm::id_lines;
    data.ids_column = *key;
  } else if (is_table(path)) {
    data.form = DataForm::rows;
    find_columns(data);
  } else if (const auto text = first_bytes(path); unicode::is_utf16_mark(text)) {
    throw DataError(fmt::format("--data {}: {}", path, describe_invalid_utf8(text, 0)),
                    {.remedy = utf8_remedy(path, text, 0)});
  } else if (text.find('\0') != std::string::npos) {
    throw DataError(fmt::format("--data {}: is not text: it has bytes of zero", path),
                    {.remedy = "name a text file, a table (.csv, .tsv, .jsonl, .json) or a .bin of ids"});
  }
  return data;
}

DocumentCount count_documents(const DataFound& data, const std::string& separator) {
  if (separator == "file") return {.documents = static_cast<std::int64_t>(data.files.size())};
  std::int64_t documents = 0, seen = 0;
  bool all = data.files.size() <= kSampleFiles;
  TextChunk chunk;
  for (std::size_t i = 0; i < data.files.size() && i < kSampleFiles; ++i) {
    const auto reader = open_documents(data.files[i], {.separator = separator});
    std::int64_t read = 0;
    while (reader->next(chunk)) {
      if (seen + read >= kSampleBytes) {
        all = false;
        break;
      }
      read = chunk.bytes;
      const bool blank = chunk.text.find_first_not_of(" \t\r\n") == std::string::npos;
      if (chunk.ends_document && !blank) ++documents;
    }
    seen += read;
  }
  if (all || seen == 0) return {.documents = documents};
  const double share = static_cast<double>(seen) / static_cast<double>(data.bytes);
  return {.documents = std::llround(static_cast<double>(documents) / share), .estimated = true};
}

CorpusLook look_at_corpus(const DataFound& data, const std::optional<Tokenizer>& tokenizer) {
  if (data.form == DataForm::prepared) return look_at_folder(data.files[0]);
  const bool ids = data.form == DataForm::id_file || data.form == DataForm::id_lines;
  auto look = ids ? look_at_ids(data) : look_at_text(data, tokenizer.value());
  look.mask = tokenizer && tokenizer->special().mask;
  return look;
}

}  // namespace orthant
