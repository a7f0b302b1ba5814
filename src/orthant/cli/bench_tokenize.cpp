// orthant bench tokenize: how fast a tokenizer is on a text, one line at a time on one thread. Seconds are the
// processor's, which on a busy machine tell more than the clock on the wall.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/base/quantile.h"
#include "orthant/cli/bench.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/files/whole_file.h"
#include "orthant/text/tokenizer.h"

namespace orthant::cli {
namespace {

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

int run_bench_tokenize(const Arguments& arguments, Context& context) {
  OptionParser app("Times the encoding of a text, line by line on one thread.", "orthant bench tokenize");
  std::string path;
  std::string file;
  int rounds = 5;
  bool json = false;
  app.add_option("--tokenizer", path, "tokenizer.json, .model, vocab.txt, or a folder with a tokenizer").required();
  app.add_option("--text", file, "the text").required();
  app.add_option("--rounds", rounds, "times over the text, after one to warm up (default 5)")
      .check(NumberRange(1, 1000));
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, example::kBenchTokenize)) return 0;
  const auto before_load = processor_seconds();
  const auto tokenizer = Tokenizer::load(path);
  const auto load_seconds = processor_seconds() - before_load;
  const auto text = read_file(file);
  const auto lines = lines_of(text);
  std::vector<double> seconds;
  std::size_t num_ids = 0;
  for (int round = 0; round <= rounds; ++round) {
    const auto begin = processor_seconds();
    num_ids = 0;
    for (const auto line : lines) num_ids += tokenizer.encode(line).size();
    if (round > 0) seconds.push_back(processor_seconds() - begin);
  }
  const auto median = quantile(seconds, 0.5);
  if (json) {
    std::cout << json_text(nlohmann::ordered_json{{"bytes", text.size()},
                                                  {"lines", lines.size()},
                                                  {"ids", num_ids},
                                                  {"load_seconds", load_seconds},
                                                  {"median_seconds", median},
                                                  {"p10_seconds", quantile(seconds, 0.1)},
                                                  {"p90_seconds", quantile(seconds, 0.9)}})
              << std::endl;
  } else {
    std::cout << fmt::format("{} bytes, {} ids: {:.1f} MB/s ({:.4f} s); loaded in {:.3f} s\n", text.size(), num_ids,
                             static_cast<double>(text.size()) / median / 1e6, median, load_seconds);
  }
  return 0;
}

}  // namespace orthant::cli
