#include "orthant/data/document_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/data/byte_window.h"
#include "orthant/text/table_reader.h"

namespace orthant {
namespace {

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
  const auto last = text.find_last_not_of(" \t\r\n");
  const auto line = last == std::string_view::npos ? 0 : text.find('\n', last);
  return DocumentEnd{line == std::string_view::npos ? text.size() : without_line_end(text, line + 1), text.size()};
}

bool joins_nothing(char letter) {
  const bool word =
      (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');
  return word || std::string_view(".,;:!?").find(letter) != std::string_view::npos;
}

// See Note [Pieces]; 0: there is none.
std::size_t last_safe_cut(std::string_view text) {
  for (auto place = text.rfind('\n'); place != std::string_view::npos && place > 0;
       place = text.rfind('\n', place - 1)) {
    if (place + 1 < text.size() && joins_nothing(text[place - 1]) && joins_nothing(text[place + 1])) return place + 1;
  }
  return 0;
}

// The end of text, moved back to where a UTF-8 character begins.
std::size_t character_cut(std::string_view text) {
  std::size_t cut = text.size();
  while (cut > text.size() - 4 && (static_cast<unsigned char>(text[cut - 1]) & 0xc0) == 0x80) --cut;
  return (static_cast<unsigned char>(text[cut - 1]) & 0x80) != 0 ? cut - 1 : cut;
}

class PlainText : public DocumentReader {
 public:
  PlainText(const std::filesystem::path& path, std::string separator, std::int64_t position)
      : window_(path, position), separator_(std::move(separator)) {
    if (position == 0) window_.skip_byte_order_mark();
  }

  bool next(TextPiece& piece) override {
    if (separator_ == "blank-line") skip_blank_lines();
    for (std::size_t limit = kPieceBytes;; limit *= 2) {
      const bool at_end = window_.fill(limit + 1) <= limit;
      const auto text = window_.view().substr(0, limit);
      if (text.empty()) return false;
      if (const auto end = find_end(text, at_end)) {
        take(piece, end->text, end->next, /*ends_document=*/true);
        return true;
      }
      auto cut = last_safe_cut(text);
      if (cut == 0 && limit >= kMaxPieceBytes) cut = character_cut(text);
      if (cut == 0) continue;
      take(piece, cut, cut, /*ends_document=*/false);
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

  void skip_blank_lines() {
    while (window_.fill(1) > 0) {
      const auto text = window_.view();
      const auto next = text.find_first_not_of(" \t\r\n");
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

  void take(TextPiece& piece, std::size_t text, std::size_t next, bool ends_document) {
    piece.text.assign(window_.view().substr(0, text));
    piece.ends_document = ends_document;
    window_.consume(next);
    piece.next = piece.bytes = window_.offset();
  }

  ByteWindow window_;
  std::string separator_;
};

// A document a row: positions count rows, and beginning at one means reading those before it once more.
class TableText : public DocumentReader {
 public:
  TableText(const std::filesystem::path& path, const std::string& column, std::int64_t position)
      : reader_(TableReader::open(path, {.columns = {column}})) {
    while (rows_ < position && reader_.next()) count_row();
  }

  bool next(TextPiece& piece) override {
    if (!reader_.next()) return false;
    piece.text.assign(reader_.fields()[0].text);
    piece.ends_document = true;
    count_row();
    piece.next = rows_;
    piece.bytes = bytes_;
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
                                               std::int64_t position) {
  check_separator(options.separator);
  static const std::vector<std::string> kTables = {".csv", ".tsv", ".jsonl", ".ndjson", ".json"};
  if (std::ranges::find(kTables, path.extension().string()) != kTables.end()) {
    return std::make_unique<TableText>(path, options.text_column, position);
  }
  return std::make_unique<PlainText>(path, options.separator, position);
}

}  // namespace orthant
