#include "orthant/data/document_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "data/small_text.h"
#include "files/temporary_folder.h"
#include "mesh/thrown_error.h"
#include "orthant/base/random.h"

namespace orthant {
namespace document_reader_test {

using test::TemporaryFolder;
using test::thrown_text;
using test::write_text;

std::vector<TextChunk> chunks_from(const std::filesystem::path& path, const DocumentOptions& options,
                                   const TextChunk& after = {}) {
  const auto reader = open_documents(path, options, after.next, !after.ends_document);
  std::vector<TextChunk> chunks;
  for (TextChunk chunk; reader->next(chunk);) chunks.push_back(chunk);
  return chunks;
}

std::vector<TextChunk> chunks_from(const std::filesystem::path& path, const std::string& separator,
                                   const TextChunk& after = {}) {
  return chunks_from(path, DocumentOptions{.separator = separator}, after);
}

std::vector<std::string> documents_of(const std::vector<TextChunk>& chunks) {
  std::vector<std::string> documents(1);
  bool inside = false;
  for (const auto& chunk : chunks) {
    EXPECT_EQ(chunk.continues_document, inside);
    documents.back() += chunk.text;
    if (chunk.ends_document) documents.emplace_back();
    inside = !chunk.ends_document;
  }
  EXPECT_FALSE(inside) << "the last chunk does not end a document";
  documents.pop_back();
  return documents;
}

std::vector<std::string> documents_of(const std::filesystem::path& path, const std::string& separator) {
  return documents_of(chunks_from(path, separator));
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
}

TEST(DocumentReader, BytesThatAreNotUtf8AreNamedOrKept) {
  TemporaryFolder folder;
  const std::string bytes("a\nb \xff\x00\xc3\n", 8);
  const auto path = write_text(folder / "my bytes.txt", bytes);
  const auto remedy = [&](const std::string& from, const std::string& name) {
    return "save the file as UTF-8: iconv -f " + from + " -t UTF-8 '" + (folder / (name + ".txt")).string() + "' > '" +
           (folder / (name + "-utf8.txt")).string() +
           "'; or keep such bytes as they are: data.keep_invalid_utf8=true (prepare-text: --keep-invalid-utf8)";
  };
  for (const char* separator : {"file", "line", "blank-line"}) {
    EXPECT_EQ(thrown_text<DataError>([&] { documents_of(path, separator); }),
              path + ":2:3: byte 0xff is not UTF-8\n" + remedy("WINDOWS-1252", "my bytes"));
  }
  const auto kept = chunks_from(path, DocumentOptions{.keep_invalid_utf8 = true});
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].text, bytes);
  const auto marked = write_text(folder / "my mark.txt", std::string("\xff\xfe"
                                                                     "a\0",
                                                                     4));
  EXPECT_EQ(
      thrown_text<DataError>([&] { documents_of(marked, "line"); }),
      marked + ":1:1: the file begins with the mark of UTF-16, and UTF-8 is read\n" + remedy("UTF-16", "my mark"));
}

TEST(DocumentReader, TextsOfTablesThatAreNotUtf8AreNamedOrKept) {
  TemporaryFolder folder;
  const auto path = write_text(folder / "a.csv", "text,other\nplain,\xe9\ncaf\xe9,x\n");
  EXPECT_EQ(thrown_text<DataError>([&] { documents_of(path, "file"); }).substr(path.size(), 44),
            ":3:4: column \"text\": byte 0xe9 is not UTF-8\n");
  const auto kept = chunks_from(path, DocumentOptions{.keep_invalid_utf8 = true});
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[1].text, "caf\xe9");
}

TEST(DocumentReader, TablesGiveOneColumn) {
  TemporaryFolder folder;
  const auto csv = write_text(folder / "a.csv", "id,text\n1,\"one, \"\"1\"\"\n\"\n2,\n3,three\n");
  EXPECT_EQ(documents_of(csv, "file"), (Texts{"one, \"1\"\n", "", "three"}));
  const auto lines = write_text(folder / "a.jsonl", "{\"text\": \"a\\nb\"}\n\n{\"text\": \"c\", \"more\": [1]}\n");
  EXPECT_EQ(documents_of(lines, "file"), (Texts{"a\nb", "c"}));
  const auto after_first = chunks_from(csv, "file", chunks_from(csv, "file")[0]);
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

TEST(DocumentReader, LongDocumentsComeInChunksThatAnyPositionContinues) {
  TemporaryFolder folder;
  const auto text = long_text((std::int64_t{11} << 20) + 5, true);
  const auto path = write_text(folder / "long.txt", text);
  for (const std::string separator : {"file", "blank-line", "line"}) {
    SCOPED_TRACE(separator);
    const auto chunks = chunks_from(path, separator);
    ASSERT_GT(chunks.size(), 2U);
    if (separator == "file") {
      EXPECT_EQ(documents_of(path, separator), Texts{text});
      for (const auto& chunk : chunks) EXPECT_LE(std::ssize(chunk.text), ChunkOptions().bytes);
      EXPECT_TRUE(chunks[0].text.ends_with("\n"));
      EXPECT_FALSE(std::isspace(static_cast<unsigned char>(chunks[0].text[chunks[0].text.size() - 2])));
      EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(chunks[1].text[0])));
    }
    const auto step = std::max<std::size_t>(chunks.size() / 7, 1);
    for (std::size_t first = 0; first < chunks.size(); first += step) {
      const auto rest = chunks_from(path, separator, chunks[first]);
      ASSERT_EQ(rest.size(), chunks.size() - first - 1) << "from chunk " << first;
      for (std::size_t i = 0; i < rest.size(); ++i) {
        ASSERT_EQ(rest[i].text, chunks[first + 1 + i].text) << "chunk " << i << " after " << first;
        ASSERT_EQ(rest[i].ends_document, chunks[first + 1 + i].ends_document);
      }
    }
  }
}

TEST(DocumentReader, TextWithoutLinesIsCutBetweenCharacters) {
  TemporaryFolder folder;
  std::string text;
  while (std::ssize(text) < ChunkOptions().most_bytes) text += "\xe2\x82\xac";
  text += "\xe2\x82\xac tail";
  const auto path = write_text(folder / "one_line.txt", text);
  const auto chunks = chunks_from(path, "line");
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0].text.size() % 3, 0U);
  EXPECT_FALSE(chunks[0].ends_document);
  EXPECT_EQ(chunks[0].text + chunks[1].text, text);
}

TEST(DocumentReader, ABlankLineAfterACutStillEndsTheDocument) {
  TemporaryFolder folder;
  const auto path = write_text(folder / "a.txt", "abcdefgh\n\nsecond");
  for (const std::int64_t bytes : {4, 8, 9, 10, 11}) {
    const DocumentOptions options{.separator = "blank-line", .chunks = {.bytes = bytes, .most_bytes = bytes}};
    EXPECT_EQ(documents_of(chunks_from(path, options)), (Texts{"abcdefgh", "second"})) << bytes;
  }
}

TEST(DocumentReader, DocumentsDoNotDependOnChunksOrOnWhereReadingBegins) {
  TemporaryFolder folder;
  const std::vector<std::string> parts = {"a",  "b.",       "\n",           "\n",   "\r\n", " ",
                                          "\t", "\xc3\xa9", "\xe2\x82\xac", "\x80", "\nc"};
  const RandomStream stream(9, "document_reader_test");
  for (std::uint64_t round = 0; round < 200; ++round) {
    std::string text;
    for (std::uint64_t i = 0; i < 40; ++i) text += parts[stream.bits(round * 100 + i) % parts.size()];
    const auto path = write_text(folder / "a.txt", text);
    for (const std::string separator : {"file", "blank-line", "line"}) {
      const auto whole =
          documents_of(chunks_from(path, DocumentOptions{.separator = separator, .keep_invalid_utf8 = true}));
      for (const std::int64_t bytes : {1, 2, 3, 5, 9, 17}) {
        SCOPED_TRACE(fmt::format("round {}, {}, chunks of {} bytes", round, separator, bytes));
        const DocumentOptions options{
            .separator = separator, .keep_invalid_utf8 = true, .chunks = {.bytes = bytes, .most_bytes = 2 * bytes}};
        const auto chunks = chunks_from(path, options);
        ASSERT_EQ(documents_of(chunks), whole);
        for (std::size_t first = 0; first < chunks.size(); first += 3) {
          const auto rest = chunks_from(path, options, chunks[first]);
          ASSERT_EQ(rest.size(), chunks.size() - first - 1);
          for (std::size_t i = 0; i < rest.size(); ++i) ASSERT_EQ(rest[i].text, chunks[first + 1 + i].text);
        }
      }
    }
  }
}

TEST(DocumentReader, RefusesWhatItCannotRead) {
  TemporaryFolder folder;
  EXPECT_EQ(thrown_text([] { check_separator("lines"); }),
            "unknown separator \"lines\"\ndid you mean \"line\"? (one of file, blank-line, line)");
  EXPECT_EQ(thrown_text<DataError>([&] { open_documents(folder / "no.txt", {}); }),
            (folder / "no.txt").string() +
                ": open failed: No such file or directory\ncheck the path, and that its folder exists");
  EXPECT_EQ(thrown_text<DataError>([&] { open_documents("/dev/null", {}); }),
            "/dev/null: it is a device, not a regular file\nname a regular file");
  const auto path = write_text(folder / "short.txt", "ab");
  EXPECT_EQ(
      thrown_text<DataError>([&] { open_documents(path, {}, 3); }),
      path + ": ends at byte 2, but byte 3 was reached before\nbring the whole file back, or start anew with --force");
}

}  // namespace document_reader_test
}  // namespace orthant
