// orthant data make-vocabulary: a WordPiece vocabulary from the texts of a table.
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/base/printable.h"
#include "orthant/cli/data.h"
#include "orthant/cli/option_parser.h"
#include "orthant/data/make_vocabulary.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"

namespace orthant::cli {
namespace {

// vocab.txt, and beside it whether it is cased, where tokenizers look for that.
void write_vocabulary(const std::filesystem::path& file, const MadeVocabulary& made, bool cased) {
  const auto folder = std::filesystem::absolute(file).parent_path();
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    throw DataError(fmt::format("cannot make folder {}: {}", folder.string(), failed.message()),
                    {.remedy = "name a file in a folder that can be made"});
  }
  // The vocabularies of a folder share this file.
  const auto settings = folder / "tokenizer_config.json";
  const auto config =
      json_text(nlohmann::ordered_json{{"tokenizer_class", kWordPieceClass}, {"do_lower_case", !cased}}, 1) + "\n";
  if (is_there(settings) && read_file(settings) != config) {
    throw DataError(fmt::format("{} says something else about another tokenizer in that folder", settings.string()),
                    {.remedy = "write the vocabulary into a folder of its own"});
  }
  std::string lines;
  for (const auto& token : made.tokens) lines += token + "\n";
  write_file_atomically(file, lines);
  write_file_atomically(settings, config);
}

}  // namespace

int run_make_vocabulary(const Arguments& arguments, Context& context) {
  OptionParser app("Makes a WordPiece vocabulary (vocab.txt) from the texts of a table, by counting words and endings.",
                   "orthant data make-vocabulary");
  MakeVocabularyOptions options;
  std::string out;
  bool json = false;
  app.add_option("--data", options.path, "the table: CSV, TSV, JSON lines or JSON").required();
  app.add_option("--columns", options.columns, "its text columns, with commas between them").delimiter(',').required();
  app.add_option("--size", options.size, "tokens at most (default 8000)").check(NumberRange(1, 1 << 24));
  app.add_option("--out", out, "file to write; tokenizer_config.json is put beside it").required();
  app.add_flag("--cased", options.cased, "keep case and accents (default: lower case)");
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context,
             "orthant data make-vocabulary --data movies.csv --columns title,plot --size 4000 --out vocab.txt")) {
    return 0;
  }
  MadeVocabulary made;
  {
    LiveRows live;
    options.progress = [&](std::int64_t rows) { live.show(rows); };
    made = make_vocabulary(options);
  }
  write_vocabulary(out, made, options.cased);
  if (json) {
    std::cout << json_text(nlohmann::ordered_json{{"vocabulary", out},
                                                  {"tokens", made.tokens.size()},
                                                  {"rows", made.rows},
                                                  {"words", made.words},
                                                  {"distinct_words", made.distinct},
                                                  {"whole_words", made.whole}})
              << std::endl;
    return 0;
  }
  const double whole = made.words == 0 ? 0 : 100.0 * static_cast<double>(made.whole) / static_cast<double>(made.words);
  std::cout << fmt::format(
                   "{}: {} tokens from {} rows with {} words ({} different); {:.1f}% of the words are one token\n",
                   printable(out), made.tokens.size(), made.rows, made.words, made.distinct, whole)
            << std::flush;
  return 0;
}

}  // namespace orthant::cli
