#include "orthant/data/prepare_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "data/small_text.h"
#include "files/temporary_folder.h"
#include "mesh/thrown_error.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace prepare_text_test {

using test::byte_encoder;
using test::TemporaryFolder;
using test::text_of;
using test::thrown_text;
using test::write_text;

TextInput lines_of(std::vector<std::string> files) {
  return {.files = std::move(files), .documents = {.separator = "line"}};
}

struct FolderBytes {
  std::string index, tokens, documents;
  friend bool operator==(const FolderBytes&, const FolderBytes&) = default;
};

FolderBytes bytes_of(const std::filesystem::path& folder) {
  return {read_file(folder / kTokenIndexFile), read_file(folder / kTokensFile), read_file(folder / kDocumentsFile)};
}

TEST(PrepareText, WritesIdsDocumentEndsAndAnIndex) {
  TemporaryFolder folder;
  const auto a = write_text(folder / "a.txt", "ab\n\ncde\n");
  const auto b = write_text(folder / "b.txt", "f");
  const auto out = folder / "out";
  const auto prepared = prepare_text(byte_encoder(), lines_of({a, b}), {.folder = out});
  EXPECT_EQ(prepared.index.tokens, 9);
  EXPECT_EQ(prepared.index.documents, 3);
  EXPECT_EQ(prepared.index.empty_documents, 1);
  EXPECT_EQ(prepared.index.max_id, 256);

  const auto store = TokenStore::open(out);
  EXPECT_EQ(text_of(*store), "ab|cde|f|");
  EXPECT_EQ(store->document_begin(1), 3);
  EXPECT_EQ(store->document_begin(3), 9);
  EXPECT_EQ(read_file(out / kTokensFile).size(), 18U);
  EXPECT_EQ(read_file(out / kDocumentsFile).size(), 24U);
  const auto index = nlohmann::json::parse(read_file(out / kTokenIndexFile));
  EXPECT_EQ(index["dtype"], "uint16");
  EXPECT_EQ(index["sources"][0]["bytes"], 8);
  EXPECT_EQ(index["tokenizer"]["special"]["end"], 256);
  EXPECT_EQ(text_of(*tokenize_text(byte_encoder(), lines_of({a, b}))), "ab|cde|f|") << "the same ids in memory";

  const auto facts = inspect_token_folder(out);
  EXPECT_EQ(facts.lengths.shortest, 2);
  EXPECT_EQ(facts.lengths.median, 3);
  EXPECT_EQ(facts.lengths.longest, 4);
  EXPECT_EQ(facts.lengths.mean, 3);
  EXPECT_EQ(facts.bytes, 42);
}

TEST(PrepareText, DocumentsBeginWithTheTokenizersBeginToken) {
  TemporaryFolder folder;
  const auto a = write_text(folder / "a.txt", "ab\n\ncde\n");
  auto encoder = byte_encoder();
  encoder.begin = {'^'};
  encoder.facts.begin = '^';
  const auto out = (folder / "out").string();
  EXPECT_EQ(prepare_text(encoder, lines_of({a}), {.folder = out}).index.empty_documents, 1);
  EXPECT_EQ(text_of(*TokenStore::open(out)), "^ab|^cde|");
  EXPECT_EQ(read_token_index(out).begin_tokens, std::vector<std::int32_t>{'^'});
  auto without = lines_of({a});
  without.begin_token = false;
  EXPECT_EQ(text_of(*tokenize_text(encoder, without)), "ab|cde|");
  EXPECT_EQ(thrown_text([&] { prepare_text(encoder, without, {.folder = out}); }),
            out +
                " was made with other settings: documents that begin with [94], now [] (--no-begin leaves it out)\n"
                "use another --out, or --force to throw away what is there and start anew");
  // A role alone puts nothing before a document unless it is asked for.
  encoder.begin = {};
  EXPECT_EQ(text_of(*tokenize_text(encoder, lines_of({a}))), "ab|cde|");
  auto asked = lines_of({a});
  asked.begin_token = true;
  EXPECT_EQ(text_of(*tokenize_text(encoder, asked)), "^ab|^cde|");
  EXPECT_EQ(thrown_text([&] { tokenize_text(byte_encoder(), asked); }),
            "tokenizer bytes has no token that begins a document\n"
            "leave data.begin_token out, or use another tokenizer");
}

TEST(PrepareText, AnIndexWithoutBeginTokensIsRead) {
  TemporaryFolder folder;
  const auto a = write_text(folder / "a.txt", "ab\n");
  const auto out = folder / "out";
  prepare_text(byte_encoder(), lines_of({a}), {.folder = out.string()});
  auto index = nlohmann::json::parse(read_file(out / kTokenIndexFile));
  EXPECT_EQ(index.erase("begin_tokens"), 1U);
  write_text(out / kTokenIndexFile, index.dump());
  EXPECT_TRUE(prepare_text(byte_encoder(), lines_of({a}), {.folder = out.string()}).was_complete);
}

TEST(PrepareText, LargeVocabulariesTakeFourBytes) {
  TemporaryFolder folder;
  const auto input = lines_of({write_text(folder / "a.txt", "ab\n")});
  EXPECT_EQ(prepare_text(byte_encoder(65536), input, {.folder = folder / "two"}).index.token_bytes, 2);
  EXPECT_EQ(prepare_text(byte_encoder(65537), input, {.folder = folder / "four"}).index.token_bytes, 4);
  EXPECT_EQ(text_of(*TokenStore::open(folder / "two")), "ab|");
  EXPECT_EQ(text_of(*TokenStore::open(folder / "four")), "ab|");
}

TEST(PrepareText, DocumentsCanFollowEachOtherWithoutAnEnd) {
  TemporaryFolder folder;
  auto input = lines_of({write_text(folder / "a.txt", "ab\nc\n")});
  input.end_token = false;
  auto encoder = byte_encoder();
  encoder.facts.end.reset();
  prepare_text(encoder, input, {.folder = folder / "out"});
  const auto store = TokenStore::open(folder / "out");
  EXPECT_EQ(text_of(*store), "abc");
  EXPECT_EQ(store->documents(), 2);
}

// Runs the preparation in a process that kills itself after `pieces` pieces; false when it finished before.
bool killed_after(int pieces, const TextInput& input, PrepareOptions options) {
  const pid_t child = fork();
  if (child == 0) {
    options.progress = [&](const TextProgress&) {
      if (--pieces == 0) raise(SIGKILL);
    };
    try {
      prepare_text(byte_encoder(), input, options);
      _exit(0);
    } catch (...) {
      _exit(1);
    }
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

std::string numbered_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("line {} of some text\n{}", i, i % 5 == 0 ? "\n" : "");
  return text;
}

TEST(PrepareText, AKilledPreparationGoesOnAndEndsWithTheSameBytes) {
  TemporaryFolder folder;
  const auto a = write_text(folder / "a.txt", numbered_lines(300));
  const auto b = write_text(folder / "b.csv", "text\nx1\nx2\nx3\n");
  const auto c = write_text(folder / "c.txt", numbered_lines(100));
  for (const std::string separator : {"line", "blank-line", "file"}) {
    SCOPED_TRACE(separator);
    TextInput input{.files = {a, b, c}, .documents = {.separator = separator}};
    prepare_text(byte_encoder(), input, {.folder = folder / "whole"});
    const auto whole = bytes_of(folder / "whole");
    for (const int pieces : {1, 2, 60, 361, 365}) {
      SCOPED_TRACE(pieces);
      const PrepareOptions options{.folder = folder / "killed", .flush_bytes = 1500};
      std::int64_t resumed = 0;
      // Killed again and again: each attempt must come further as soon as it passes a flush.
      for (int attempt = 0; attempt < 20 && killed_after(pieces, input, options); ++attempt) {
        EXPECT_THROW(TokenStore::open(options.folder), DataError);
        const auto index = inspect_token_folder(options.folder).index;
        EXPECT_FALSE(index.complete);
        EXPECT_GE(index.next.bytes, resumed);
        if (index.next.bytes == resumed && attempt > 0) break;  // less than a flush apart: no progress possible
        resumed = index.next.bytes;
      }
      const auto prepared = prepare_text(byte_encoder(), input, options);
      EXPECT_TRUE(prepared.was_complete || prepared.resumed_bytes == resumed) << prepared.resumed_bytes;
      EXPECT_EQ(bytes_of(options.folder), whole);
      std::filesystem::remove_all(options.folder);
    }
    std::filesystem::remove_all(folder / "whole");
  }
}

TEST(PrepareText, APreparationKilledInsideADocumentKnowsThatItGoesOn) {
  TemporaryFolder folder;
  TextInput input{.files = {write_text(folder / "a.txt", "abcdefgh\n\nsecond\n\nthird")},
                  .documents = {.separator = "blank-line", .chunks = {.bytes = 4, .most_bytes = 4}}};
  prepare_text(byte_encoder(), input, {.folder = folder / "whole"});
  EXPECT_EQ(text_of(*TokenStore::open(folder / "whole")), "abcdefgh|second|third|");
  int killed = 0;
  for (int chunks = 1; chunks < 8; ++chunks) {
    const PrepareOptions options{.folder = folder / "killed", .flush_bytes = 1};
    // The attempt is killed before the flush that would follow its last chunk.
    if (killed_after(chunks, input, options)) ++killed;
    prepare_text(byte_encoder(), input, options);
    EXPECT_EQ(bytes_of(options.folder), bytes_of(folder / "whole")) << "killed after " << chunks << " chunks";
    std::filesystem::remove_all(options.folder);
  }
  EXPECT_GT(killed, 4);
}

TEST(PrepareText, WhatWasWrittenAfterTheLastFlushIsDropped) {
  TemporaryFolder folder;
  const auto input = lines_of({write_text(folder / "a.txt", numbered_lines(100))});
  prepare_text(byte_encoder(), input, {.folder = folder / "whole"});
  const PrepareOptions options{.folder = folder / "killed", .flush_bytes = 500};
  ASSERT_TRUE(killed_after(60, input, options));
  for (const char* file : {kTokensFile, kDocumentsFile}) {
    std::ofstream(folder / "killed" / file, std::ios::app) << "torn";
  }
  write_text(folder / "killed" / "index.json.partial-999999999", "torn");
  EXPECT_GT(prepare_text(byte_encoder(), input, options).resumed_bytes, 0);
  EXPECT_EQ(bytes_of(folder / "killed"), bytes_of(folder / "whole"));
  EXPECT_FALSE(std::filesystem::exists(folder / "killed" / "index.json.partial-999999999"));
}

TEST(PrepareText, ACompleteFolderIsLeftAsItIs) {
  TemporaryFolder folder;
  const auto input = lines_of({write_text(folder / "a.txt", "ab\n")});
  prepare_text(byte_encoder(), input, {.folder = folder / "out"});
  const auto time = std::filesystem::last_write_time(folder / "out" / kTokensFile);
  EXPECT_TRUE(prepare_text(byte_encoder(), input, {.folder = folder / "out"}).was_complete);
  EXPECT_EQ(std::filesystem::last_write_time(folder / "out" / kTokensFile), time);
}

TEST(PrepareText, RefusesToMixSettingsAndNamesWhatDiffers) {
  TemporaryFolder folder;
  const auto a = write_text(folder / "a.txt", "ab\n");
  const auto out = (folder / "out").string();
  prepare_text(byte_encoder(), lines_of({a}), {.folder = out});
  auto other = byte_encoder(300);
  other.facts.fingerprint = 1;
  other.facts.path = "others";
  TextInput input{.files = {a}, .end_token = false};
  EXPECT_EQ(
      thrown_text([&] { prepare_text(other, input, {.folder = out}); }),
      out +
          " was made with other settings: tokenizer bytes of 257 tokens, 000000000000b7e5 (bytes), now bytes of 300 "
          "tokens, 0000000000000001 (others); --separator line, now file; an end token after every document, now "
          "--no-end\nuse another --out, or --force to throw away what is there and start anew");
  write_text(a, "abc\n");
  const auto changed = thrown_text([&] { prepare_text(byte_encoder(), lines_of({a}), {.folder = out}); });
  EXPECT_NE(changed.find("input " + a + " of 3 bytes"), std::string::npos) << changed;
  EXPECT_NE(changed.find(" bytes ("), std::string::npos) << changed;
  EXPECT_NE(thrown_text([&] {
              prepare_text(byte_encoder(), lines_of({a, a}), {.folder = out});
            }).find("1 input files, now 2"),
            std::string::npos);
  EXPECT_EQ(text_of(*TokenStore::open(out)), "ab|");
  prepare_text(byte_encoder(), lines_of({a}), {.folder = out, .force = true});
  EXPECT_EQ(text_of(*TokenStore::open(out)), "abc|");
}

TEST(PrepareText, RefusesInputWithoutText) {
  TemporaryFolder folder;
  const auto empty = write_text(folder / "empty.txt", "\n\n");
  const auto out = (folder / "out").string();
  EXPECT_EQ(thrown_text([&] { prepare_text(byte_encoder(), {}, {.folder = out}); }),
            "there are no text files to tokenize\nname some with --input");
  EXPECT_EQ(thrown_text<DataError>([&] { prepare_text(byte_encoder(), lines_of({empty}), {.folder = out}); }),
            "there is no text in " + empty +
                " (2 bytes, 2 empty documents)\nname files that hold text, and the column of tables (data.text_column, "
                "--text-column)");
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_EQ(thrown_text<DataError>([&] { tokenize_text(byte_encoder(), lines_of({empty, empty})); }),
            "there is no text in 2 files (4 bytes, 4 empty documents)\nname files that hold text, and the column of "
            "tables (data.text_column, --text-column)");
  auto endless = byte_encoder();
  endless.facts.end.reset();
  EXPECT_EQ(thrown_text([&] { prepare_text(endless, lines_of({empty}), {.folder = out}); }),
            "tokenizer bytes has no token that ends a document\nuse --no-end to join documents without one, or another "
            "tokenizer");
  // Nothing was made yet, so other input is welcome.
  const auto full = write_text(folder / "full.txt", "x");
  EXPECT_EQ(prepare_text(byte_encoder(), lines_of({full}), {.folder = out}).index.tokens, 2);
}

TEST(PrepareText, DamagedFoldersAreRefusedWithTheNumbers) {
  TemporaryFolder folder;
  const auto input = lines_of({write_text(folder / "a.txt", "ab\ncd\n")});
  const auto out = folder / "out";
  prepare_text(byte_encoder(), input, {.folder = out});
  const auto good = bytes_of(out);
  const auto again = "copy the file again, or prepare the folder again with orthant data prepare-text --force";
  const auto tokens = (out / kTokensFile).string();

  write_text(tokens, good.tokens.substr(1));
  const auto short_text = tokens + " has 11 bytes, but index.json says 12\n" + again;
  EXPECT_EQ(thrown_text<DataError>([&] { TokenStore::open(out); }), short_text);
  EXPECT_EQ(thrown_text<DataError>([&] { inspect_token_folder(out); }), short_text);

  auto flipped = good.tokens;
  flipped[1] = '\x02';  // id 0x0261
  write_text(tokens, flipped);
  EXPECT_NE(thrown_text<DataError>([&] { inspect_token_folder(out); }).find("is damaged: its hash is"),
            std::string::npos);
  EXPECT_NE(thrown_text<DataError>([&] {
              text_of(*TokenStore::open(out));
            }).find("token id 609 between tokens 0 and 6, but index.json says that none is above 256"),
            std::string::npos);
  write_text(tokens, good.tokens);

  auto ends = good.documents;
  ends[0] = '\x09';
  write_text(out / kDocumentsFile, ends);
  const auto bad_ends = out.string() + ": document 0 of 2 has tokens 0 to 9 of 6\ncopy documents.bin again, or " +
                        "prepare the folder again with orthant data prepare-text --force";
  EXPECT_EQ(thrown_text<DataError>([&] { inspect_token_folder(out); }), bad_ends);
  EXPECT_EQ(thrown_text<DataError>([&] { TokenStore::open(out); }), bad_ends) << "before anything is split or packed";
  ends = good.documents;
  ends[7] = '\x80';  // beyond what is a number of tokens
  write_text(out / kDocumentsFile, ends);
  EXPECT_THROW(TokenStore::open(out), DataError);
  write_text(out / kDocumentsFile, good.documents);

  auto index = nlohmann::ordered_json::parse(good.index);
  index["documents"] = 0;
  write_text(out / kTokenIndexFile, index.dump());
  write_text(out / kDocumentsFile, "");
  EXPECT_EQ(
      thrown_text<DataError>([&] { TokenStore::open(out); }),
      out.string() + ": 6 tokens, but no documents\nprepare the folder again with orthant data prepare-text --force");
  index["tokens"] = -1;
  write_text(out / kTokenIndexFile, index.dump());
  EXPECT_NE(thrown_text<DataError>([&] { TokenStore::open(out); }).find("tokens: -1 is not in [0,"), std::string::npos);
  index["version"] = 2;
  write_text(out / kTokenIndexFile, index.dump());
  EXPECT_NE(thrown_text<DataError>([&] { TokenStore::open(out); }).find("version 2 is not 1\nprepare the folder again"),
            std::string::npos);
  std::filesystem::remove(out / kTokenIndexFile);
  EXPECT_EQ(thrown_text<DataError>([&] { TokenStore::open(out); }),
            out.string() +
                " is not a folder of prepared tokens: it has no index.json\nmake one with orthant data prepare-text "
                "--input FILE --tokenizer T --out FOLDER");
  EXPECT_EQ(thrown_text([&] { prepare_text(byte_encoder(), input, {.folder = out}); }),
            out.string() + " holds tokens without an index.json\nuse another --out, or --force to throw them away");
}

TEST(OpenText, RefusesWhatDoesNotGoTogether) {
  TemporaryFolder folder;
  const auto a = write_text(folder / "a.txt", "ab\n");
  EXPECT_EQ(thrown_text([&] { open_text({a}, ""); }),
            "data.path names text files, but there is no data.tokenizer\nset data.tokenizer to a tokenizer.json or its "
            "folder, or data.path to a folder made by orthant data prepare-text");
  prepare_text(byte_encoder(), lines_of({a}), {.folder = folder / "out"});
  EXPECT_EQ(text_of(*open_text({(folder / "out").string()}, "").tokens), "ab|");
  EXPECT_EQ(thrown_text([&] { open_text({a, (folder / "out").string()}, ""); }),
            "data.path names 2 places, among them the folder " + (folder / "out").string() +
                "\nname one prepared folder, or text files only");
}

}  // namespace prepare_text_test
}  // namespace orthant
