#include "orthant/data/make_trimodal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/data/trimodal_demo.h"
#include "orthant/text/csv.h"

namespace orthant {
namespace {

constexpr const char* kDialogueColumn = "dialogue";
constexpr const char* kTrackColumn = "shiptrack";
constexpr const char* kLabelColumn = "label";

void check_options(const MakeTrimodalOptions& options) {
  const std::vector<std::string> formats = {"csv", "jsonl"};
  if (options.format != formats[0] && options.format != formats[1]) {
    throw ConfigError(fmt::format("unknown format \"{}\" for trimodal data", options.format),
                      {.remedy = did_you_mean(options.format, formats)});
  }
  if (options.rows < 1) {
    throw ConfigError(fmt::format("{} rows of trimodal data were asked for", options.rows),
                      {.remedy = "set --rows to 1 or more"});
  }
  if (options.folder.empty()) {
    throw ConfigError("no folder was named for the trimodal data", {.remedy = "set --out FOLDER"});
  }
}

// A file that is written whole or reported.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path) : path_(std::move(path)), out_(path_, std::ios::binary) { check(); }

  void write(const std::string& text) { out_.write(text.data(), static_cast<std::streamsize>(text.size())); }

  std::string close() {
    out_.close();
    check();
    return path_.string();
  }

 private:
  void check() const {
    if (out_) return;
    throw DataError(fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)),
                    {.remedy = "name a folder that may be written to, with room for the data"});
  }

  std::filesystem::path path_;
  std::ofstream out_;
};

std::string csv_row(const TrimodalSample& sample) {
  std::vector<std::string> fields = {sample.dialogue, sample.track};
  for (const float number : sample.numbers) fields.push_back(fmt::format("{}", number));
  fields.push_back(fmt::format("{}", sample.label));
  return csv_line(fields);
}

std::string json_row(const TrimodalSample& sample, const std::vector<std::string>& names) {
  std::string line = fmt::format("{{\"{}\": {}, \"{}\": {}", kDialogueColumn, nlohmann::json(sample.dialogue).dump(),
                                 kTrackColumn, nlohmann::json(sample.track).dump());
  for (std::size_t i = 0; i < names.size(); ++i) line += fmt::format(", \"{}\": {}", names[i], sample.numbers[i]);
  return line + fmt::format(", \"{}\": {}}}\n", kLabelColumn, sample.label);
}

std::string facts_text(const TrimodalDemo& demo, const MakeTrimodalOptions& options, const std::string& file) {
  const std::vector<std::string> names = TrimodalDemo::number_names();
  const std::vector<std::string> meanings = TrimodalDemo::number_meanings();
  nlohmann::ordered_json facts = {{"file", file},
                                  {"format", options.format},
                                  {"rows", options.rows},
                                  {"seed", options.seed},
                                  {"split", to_string(options.split)},
                                  {"primary_text", kDialogueColumn},
                                  {"secondary_text", kTrackColumn},
                                  {"tabular", names},
                                  {"label", kLabelColumn},
                                  {"num_labels", TrimodalDemo::kNumLabels},
                                  {"vocab_size", demo.vocab_size()},
                                  {"label_noise", demo.options().label_noise},
                                  {"best_accuracy", demo.best_accuracy()},
                                  {"best_accuracy_of_some_parts", demo.best_accuracy_of_some_parts()}};
  for (std::size_t i = 0; i < names.size(); ++i) facts["meanings"][names[i]] = meanings[i];
  return facts.dump(2) + "\n";
}

}  // namespace

MadeTrimodal make_trimodal(const MakeTrimodalOptions& options) {
  check_options(options);
  const TrimodalDemo demo({.size = options.rows, .seed = options.seed, .split = options.split});
  const std::filesystem::path folder = options.folder;
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    throw DataError(fmt::format("cannot make folder {}: {}", options.folder, failed.message()),
                    {.remedy = "name a folder that can be made"});
  }

  const bool csv = options.format == "csv";
  const std::vector<std::string> names = TrimodalDemo::number_names();
  const std::string suffix = options.split == DataSplit::eval ? "_eval" : "";
  const std::string file = fmt::format("trimodal{}.{}", suffix, options.format);
  OutputFile data(folder / file);
  if (csv) {
    std::vector<std::string> header = {kDialogueColumn, kTrackColumn};
    header.insert(header.end(), names.begin(), names.end());
    header.emplace_back(kLabelColumn);
    data.write(csv_line(header));
  }
  for (std::int64_t i = 0; i < options.rows; ++i) {
    const TrimodalSample sample = demo.sample(i);
    data.write(csv ? csv_row(sample) : json_row(sample, names));
  }

  OutputFile vocabulary(folder / "vocab.txt");
  vocabulary.write(fmt::format("{}\n", fmt::join(demo.vocabulary().words(), "\n")));
  OutputFile facts(folder / fmt::format("facts{}.json", suffix));
  facts.write(facts_text(demo, options, file));
  return {.data = data.close(), .vocabulary = vocabulary.close(), .facts = facts.close()};
}

}  // namespace orthant
