#include "orthant/data/document_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "data/small_text.h"
#include "files/temporary_folder.h"
#include "mesh/thrown_error.h"
#include "orthant/base/random.h"

namespace orthant {
namespace {

using test::TemporaryFolder;
using test::thrown_text;
using test::write_text;

std::vector<TextPiece> pieces_from(const std::filesystem::path& path, const std::string& separator,
                                   std::int64_t position = 0) {
  const auto reader = open_documents(path, {.separator = separator}, position);
  std::vector<TextPiece> pieces;
  for (TextPiece piece; reader->next(piece);) pieces.push_back(piece);
  return pieces;
}

std::vector<std::string> documents_of(const std::filesystem::path& path, const std::string& separator) {
  std::vector<std::string> documents(1);
  for (const auto& piece : pieces_from(path, separator)) {
    documents.back() += piece.text;
    if (piece.ends_document) documents.emplace_back();
  }
  EXPECT_TRUE(documents.back().empty()) << "the last piece does not end a document";
  documents.pop_back();
  return documents;
}

using Texts = std::vector<std::string>;

TEST(DocumentReader, SeparatorsDecideWhatADocumentIs) {
  TemporaryFolder folder;
  const auto path = write_text(folder / "a.txt", "one\r\ntwo\n\n \t\r\nthree\nfour\n\n\n");
  EXPECT_EQ(documents_of(path, "file"), (Texts{"one\r\ntwo\n\n \t\r\nthree\nfour\n\n\n"}));
  EXPECT_EQ(documents_of(path, "line"), (Texts{"one", "two", "", " \t", "three", "four", "", ""}));
  EXPECT_EQ(documents_of(path, "blank-line"), (Texts{"one\r\ntwo", "three\nfour"}));
}

TEST(DocumentReader, EdgesOfFiles) {
  TemporaryFolder folder;
  EXPECT_EQ(documents_of(write_text(folder / "empty.txt", ""), "file"), Texts{});
  EXPECT_EQ(documents_of(write_text(folder / "blank.txt", "\n \n\t"), "blank-line"), Texts{});
  EXPECT_EQ(documents_of(write_text(folder / "lead.txt", "\n\n  a\nb"), "blank-line"), (Texts{"  a\nb"}));
  EXPECT_EQ(documents_of(write_text(folder / "tail.txt", "a\n \n\n  "), "blank-line"), (Texts{"a"}));
  EXPECT_EQ(documents_of(write_text(folder / "mark.txt", "\xef\xbb\xbfx\n"), "file"), (Texts{"x\n"}));
  EXPECT_EQ(documents_of(write_text(folder / "bytes.txt", std::string("\xff\x00\xc3\n", 4)), "file"),
            (Texts{std::string("\xff\x00\xc3\n", 4)}));
}

TEST(DocumentReader, TablesGiveOneColumn) {
  TemporaryFolder folder;
  const auto csv = write_text(folder / "a.csv", "id,text\n1,\"one, \"\"1\"\"\n\"\n2,\n3,three\n");
  EXPECT_EQ(documents_of(csv, "file"), (Texts{"one, \"1\"\n", "", "three"}));
  const auto lines = write_text(folder / "a.jsonl", "{\"text\": \"a\\nb\"}\n\n{\"text\": \"c\", \"more\": [1]}\n");
  EXPECT_EQ(documents_of(lines, "file"), (Texts{"a\nb", "c"}));
  const auto after_first = pieces_from(csv, "file", pieces_from(csv, "file")[0].next);
  ASSERT_EQ(after_first.size(), 2U);
  EXPECT_EQ(after_first[1].text, "three");
}

// A text of about 11 MiB: lines of words, some with blank lines between them, some without any line end.
std::string long_text(std::int64_t bytes, bool lines) {
  const RandomStream stream(7, "document_reader_test");
  std::string text;
  for (std::uint64_t i = 0; std::ssize(text) < bytes; ++i) {
    const auto bits = stream.bits(i);
    text += lines && bits % 11 == 0 ? "\n" : bits % 13 == 0 ? " \xc3\xa9" : fmt::format("w{} ", bits % 1000);
    if (lines && bits % 5000 == 1) text += ".\n \nN";
  }
  return text;
}

TEST(DocumentReader, LongDocumentsComeInPiecesThatAnyPositionContinues) {
  TemporaryFolder folder;
  const auto text = long_text((std::int64_t{11} << 20) + 5, true);
  const auto path = write_text(folder / "long.txt", text);
  for (const std::string separator : {"file", "blank-line", "line"}) {
    SCOPED_TRACE(separator);
    const auto pieces = pieces_from(path, separator);
    ASSERT_GT(pieces.size(), 2U);
    if (separator == "file") {
      EXPECT_EQ(documents_of(path, separator), Texts{text});
      for (const auto& piece : pieces) EXPECT_LE(std::ssize(piece.text), DocumentReader::kPieceBytes);
      EXPECT_TRUE(pieces[0].text.ends_with("\n"));
      EXPECT_FALSE(std::isspace(static_cast<unsigned char>(pieces[0].text[pieces[0].text.size() - 2])));
      EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(pieces[1].text[0])));
    }
    const auto step = std::max<std::size_t>(pieces.size() / 7, 1);
    for (std::size_t first = 0; first < pieces.size(); first += step) {
      const auto rest = pieces_from(path, separator, pieces[first].next);
      ASSERT_EQ(rest.size(), pieces.size() - first - 1) << "from piece " << first;
      for (std::size_t i = 0; i < rest.size(); ++i) {
        ASSERT_EQ(rest[i].text, pieces[first + 1 + i].text) << "piece " << i << " after " << first;
        ASSERT_EQ(rest[i].ends_document, pieces[first + 1 + i].ends_document);
      }
    }
  }
}

TEST(DocumentReader, TextWithoutLinesIsCutBetweenCharacters) {
  TemporaryFolder folder;
  std::string text;
  while (std::ssize(text) < DocumentReader::kMaxPieceBytes) text += "\xe2\x82\xac";
  text += "\xe2\x82\xac tail";
  const auto path = write_text(folder / "one_line.txt", text);
  const auto pieces = pieces_from(path, "line");
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].text.size() % 3, 0U);
  EXPECT_FALSE(pieces[0].ends_document);
  EXPECT_EQ(pieces[0].text + pieces[1].text, text);
}

TEST(DocumentReader, RefusesWhatItCannotRead) {
  TemporaryFolder folder;
  EXPECT_EQ(thrown_text([] { check_separator("lines"); }),
            "unknown separator \"lines\"\ndid you mean \"line\"? (one of file, blank-line, line)");
  EXPECT_EQ(thrown_text<DataError>([&] { open_documents(folder / "no.txt", {}); }),
            (folder / "no.txt").string() +
                ": open failed: No such file or directory\ncheck the path, and that its folder exists");
  EXPECT_EQ(thrown_text<DataError>([&] { open_documents("/dev/null", {}); }),
            "/dev/null is not a file that can be read again from any place\nwrite the text to a file first");
}

}  // namespace
}  // namespace orthant
