#include "orthant/data/document_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/nearest.h"
#include "orthant/data/byte_window.h"
#include "orthant/data/open_table.h"
#include "orthant/data/parquet.h"
#include "orthant/text/chunked_input.h"
#include "orthant/text/safe_cut.h"
#include "orthant/text/table_reader.h"
#include "orthant/text/utf8.h"

namespace orthant {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
const std::vector<std::string> kSeparators = {"file", "blank-line", "line"};

// Where a document's text ends, and where its separator does.
struct DocumentEnd {
  std::size_t text, next;
};

std::size_t without_line_end(std::string_view text, std::size_t end) {
  if (end > 0 && text[end - 1] == '\n') --end;
  if (end > 0 && text[end - 1] == '\r') --end;
  return end;
}

std::optional<DocumentEnd> line_end(std::string_view text, bool at_end) {
  const auto place = text.find('\n');
  if (place != std::string_view::npos) return DocumentEnd{without_line_end(text, place + 1), place + 1};
  if (at_end) return DocumentEnd{text.size(), text.size()};
  return std::nullopt;
}

// A blank line holds nothing but spaces and tabs.
std::optional<DocumentEnd> blank_line_end(std::string_view text, bool at_end) {
  for (auto place = text.find('\n'); place != std::string_view::npos;) {
    const auto next = text.find_first_not_of(" \t\r", place + 1);
    if (next == std::string_view::npos) break;
    if (text[next] == '\n') return DocumentEnd{without_line_end(text, place + 1), next + 1};
    place = text.find('\n', next);
  }
  if (!at_end) return std::nullopt;
  const auto last = text.find_last_not_of(kBlanks);
  const auto line = text.find('\n', last == std::string_view::npos ? 0 : last);
  return DocumentEnd{line == std::string_view::npos ? text.size() : without_line_end(text, line + 1), text.size()};
}

// The end of text, moved back to where a UTF-8 character begins and no white space lies before; 0: there is no such
// place. So line ends, blank lines and the spaces before words stay whole.
std::size_t character_cut(std::string_view text) {
  const auto is_ascii = [&](std::size_t place) { return (static_cast<unsigned char>(text[place]) & 0x80) == 0; };
  auto cut = text.size();
  if (!is_ascii(cut - 1)) {
    const auto first = cut - std::min<std::size_t>(cut, 4);
    --cut;
    while (cut > first && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
  }
  const auto last = text.substr(0, cut).find_last_not_of(kBlanks);
  return last == std::string_view::npos ? 0 : last + 1;
}

class PlainText : public DocumentReader {
 public:
  PlainText(const std::filesystem::path& path, const DocumentOptions& options, std::int64_t position, bool inside)
      : name_(path.string()),
        window_(path, position),
        separator_(options.separator),
        chunks_(options.chunks),
        keep_invalid_utf8_(options.keep_invalid_utf8),
        inside_(inside) {
    if (position == 0) window_.skip_byte_order_mark();
  }

  bool next(TextChunk& chunk) override {
    if (separator_ == "blank-line" && !inside_) skip_blank_lines();
    for (auto limit = static_cast<std::size_t>(chunks_.bytes);; limit *= 2) {
      const bool at_end = window_.fill(limit + 1) <= limit;
      const auto text = window_.view().substr(0, limit);
      if (text.empty()) return false;
      if (const auto end = find_end(text, at_end)) {
        take(chunk, end->text, end->next, /*ends_document=*/true);
        return true;
      }
      const auto cut = find_cut(text);
      if (cut == 0) continue;
      take(chunk, cut, cut, /*ends_document=*/false);
      return true;
    }
  }

 private:
  std::optional<DocumentEnd> find_end(std::string_view text, bool at_end) const {
    if (separator_ == "line") return line_end(text, at_end);
    if (separator_ == "blank-line") return blank_line_end(text, at_end);
    if (at_end) return DocumentEnd{text.size(), text.size()};
    return std::nullopt;
  }

  // 0: more text is needed.
  std::size_t find_cut(std::string_view text) const {
    if (!chunks_.may_cut) {
      if (std::ssize(text) < chunks_.whole_bytes) return 0;
      throw DataError(
          fmt::format("{}: the document at byte {} is longer than {}, and the tokenizer makes words across line ends, "
                      "so that it cannot be cut",
                      name_, window_.offset(), format_bytes(chunks_.whole_bytes)),
          {.remedy =
               "make documents shorter: orthant data prepare-text --separator blank-line or line, or more files"});
    }
    const auto cut = last_safe_cut(text);
    return cut == 0 && std::ssize(text) >= chunks_.most_bytes ? character_cut(text) : cut;
  }

  void skip_blank_lines() {
    while (window_.fill(1) > 0) {
      const auto text = window_.view();
      const auto next = text.find_first_not_of(kBlanks);
      const auto blank = text.substr(0, next).rfind('\n');
      if (blank != std::string_view::npos) {
        window_.consume(blank + 1);
      } else if (next != std::string_view::npos) {
        return;
      } else if (window_.fill(text.size() + 1) == text.size()) {
        window_.consume(text.size());
      }
    }
  }

  void take(TextChunk& chunk, std::size_t text, std::size_t next, bool ends_document) {
    chunk.text.assign(window_.view().substr(0, text));
    if (const auto at = keep_invalid_utf8_ ? std::nullopt : find_invalid_utf8(chunk.text)) refuse_byte(chunk.text, *at);
    chunk.continues_document = inside_;
    chunk.ends_document = ends_document;
    inside_ = !ends_document;
    window_.consume(next);
    chunk.next = chunk.bytes = window_.offset();
  }

  // The lines before the window are counted here alone: a text is read once.
  [[noreturn]] void refuse_byte(std::string_view text, std::size_t at) const {
    const auto byte = window_.offset() + static_cast<std::int64_t>(at);
    TextPlace place;
    ByteWindow before(name_, 0);
    while (before.offset() < byte) {
      constexpr std::int64_t kPiece = std::int64_t{1} << 20;
      before.fill(static_cast<std::size_t>(std::min(kPiece, byte - before.offset())));
      const auto piece = before.view().substr(0, static_cast<std::size_t>(byte - before.offset()));
      place = place_in(piece, piece.size(), place);
      before.consume(piece.size());
    }
    throw DataError(fmt::format("{}:{}:{}: {}", name_, place.line, place.column, describe_invalid_utf8(text, at)),
                    {.remedy = fmt::format("{}; or keep such bytes as they are: data.keep_invalid_utf8=true "
                                           "(prepare-text: --keep-invalid-utf8)",
                                           utf8_remedy(name_, text, at))});
  }

  std::string name_;
  ByteWindow window_;
  std::string separator_;
  ChunkOptions chunks_;
  bool keep_invalid_utf8_;
  bool inside_;  // the next chunk continues a document
};

// A document a row: positions count rows, and beginning at one means reading those before it once more.
class TableDocuments : public DocumentReader {
 public:
  TableDocuments(const std::filesystem::path& path, const DocumentOptions& options, std::int64_t position)
      : reader_(
            open_table(path, {.columns = {options.text_column},
                              .invalid_utf8 = options.keep_invalid_utf8 ? InvalidUtf8::kKeep : InvalidUtf8::kStop})) {
    while (rows_ < position && reader_.next()) count_row();
  }

  bool next(TextChunk& chunk) override {
    if (!reader_.next()) return false;
    chunk.text.assign(reader_.fields()[0].text);
    chunk.continues_document = false;
    chunk.ends_document = true;
    count_row();
    chunk.next = rows_;
    chunk.bytes = bytes_;
    return true;
  }

 private:
  void count_row() {
    ++rows_;
    bytes_ += static_cast<std::int64_t>(reader_.fields()[0].text.size());
  }

  TableReader reader_;
  std::int64_t rows_ = 0;
  std::int64_t bytes_ = 0;  // of the texts: somewhat less than those of the file
};

}  // namespace

void check_separator(const std::string& separator) {
  if (std::ranges::find(kSeparators, separator) != kSeparators.end()) return;
  throw ConfigError(fmt::format("unknown separator \"{}\"", separator),
                    {.remedy = did_you_mean(separator, kSeparators)});
}

std::unique_ptr<DocumentReader> open_documents(const std::filesystem::path& path, const DocumentOptions& options,
                                               std::int64_t position, bool inside_document) {
  check_separator(options.separator);
  if (is_parquet(path)) return open_parquet(path, options.text_column, position);
  if (is_table(path)) return std::make_unique<TableDocuments>(path, options, position);
  return std::make_unique<PlainText>(path, options, position, inside_document);
}

}  // namespace orthant
