// orthant data inspect: what a table, or a folder of prepared tokens, holds.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/printable.h"
#include "orthant/cli/data.h"
#include "orthant/cli/option_parser.h"
#include "orthant/data/inspect_table.h"
#include "orthant/data/label_typos.h"
#include "orthant/data/token_store.h"
#include "orthant/files/path_facts.h"

namespace orthant::cli {
namespace {

using Json = nlohmann::ordered_json;

// On one line, cut between characters of UTF-8.
std::string short_text(std::string_view text, std::size_t bytes) {
  auto line = json_text(Json(text.substr(0, 4 * bytes)), -1);
  line = line.substr(1, line.size() - 2);
  if (line.size() <= bytes) return line;
  while (bytes > 0 && (static_cast<unsigned char>(line[bytes]) & 0xc0) == 0x80) --bytes;
  return line.substr(0, bytes) + "...";
}

double mean_tokens(const TokenFacts& tokens, std::int64_t rows) {
  return rows == 0 ? 0 : static_cast<double>(tokens.total) / static_cast<double>(rows);
}

Json column_json(const ColumnFacts& column, std::int64_t rows) {
  const bool numeric = column.is_numeric();
  Json json = {{"name", column.name},
               {"kind", numeric ? "number" : "text"},
               {"missing", column.missing},
               {"distinct", column.distinct},
               {"distinct_capped", column.distinct == static_cast<std::int64_t>(ColumnFacts::kMostDistinct)}};
  if (numeric) json.update({{"min", column.min}, {"mean", column.mean}, {"max", column.max}});
  if (holds_stray_words(column)) {
    json["not_numbers"] = {
        {"count", column.words}, {"line", column.first_word.line}, {"value", column.first_word.text}};
  }
  json["examples"] = column.examples;
  if (!column.values.empty()) {
    auto& values = json["values"] = Json::array();
    for (const auto& value : column.values) {
      values.push_back({{"value", value.text}, {"count", value.count}});
    }
    if (const auto typos = label_typos(column.values); !numeric && !typos.empty())
      json["misspelt"] = describe_typos(typos);
  }
  if (column.tokens) {
    json["tokens"] = {{"min", column.tokens->least},   {"mean", mean_tokens(*column.tokens, rows)},
                      {"p99", column.tokens->p99},     {"max", column.tokens->most},
                      {"total", column.tokens->total}, {"unknown", column.tokens->unknown}};
  }
  return json;
}

Json table_json(const std::string& path, const TableFacts& facts) {
  Json json = {{"path", path},
               {"rows", facts.rows},
               {"bad_rows", {{"count", facts.bad.count}, {"reasons", facts.bad.reasons}}},
               {"columns", Json::array()}};
  for (const auto& column : facts.columns) json["columns"].push_back(column_json(column, facts.rows));
  return json;
}

std::string column_text(const ColumnFacts& column, std::int64_t rows) {
  constexpr std::size_t kValues = 12;
  const bool numeric = column.is_numeric();
  const bool capped = column.distinct == static_cast<std::int64_t>(ColumnFacts::kMostDistinct);
  auto text = fmt::format("{}\n  {}, {} missing, {}{} different", short_text(column.name, 60),
                          numeric ? "numbers" : "text", column.missing, column.distinct, capped ? " or more" : "");
  if (numeric) text += fmt::format("; min {}, mean {:.6g}, max {}", column.min, column.mean, column.max);
  text += "\n";
  if (holds_stray_words(column)) text += fmt::format("  {}\n", printable(describe_stray_words(column)));
  if (!column.values.empty()) {
    text += "  values:";
    for (std::size_t i = 0; i < column.values.size() && i < kValues; ++i) {
      text +=
          fmt::format("{} {} ({})", i == 0 ? "" : ",", short_text(column.values[i].text, 40), column.values[i].count);
    }
    text += column.values.size() > kValues ? ", ...\n" : "\n";
    if (const auto typos = label_typos(column.values); !numeric && !typos.empty()) {
      text += fmt::format("  misspelt? {}\n", printable(describe_typos(typos)));
    }
  } else if (!column.examples.empty()) {
    text += "  such as:";
    for (const auto& example : column.examples) text += fmt::format(" \"{}\"", short_text(example, 40));
    text += "\n";
  }
  if (!column.tokens) return text;
  return text + fmt::format("  tokens of a text: {} to {}, mean {:.1f}, 99 of 100 have at most {}; {} of {} unknown\n",
                            column.tokens->least, column.tokens->most, mean_tokens(*column.tokens, rows),
                            column.tokens->p99, column.tokens->unknown, column.tokens->total);
}

std::string table_text(const std::string& path, const TableFacts& facts) {
  auto text = fmt::format("{}: {} row{}, {} column{}\n", printable(path), facts.rows, facts.rows == 1 ? "" : "s",
                          facts.columns.size(), facts.columns.size() == 1 ? "" : "s");
  for (const auto& column : facts.columns) text += column_text(column, facts.rows);
  if (facts.bad.count == 0) return text + "no bad rows\n";
  text += fmt::format("{} bad row{}{}\n", facts.bad.count, facts.bad.count == 1 ? "" : "s",
                      facts.bad.count > static_cast<std::int64_t>(facts.bad.reasons.size()) ? ", the first:" : ":");
  for (const auto& reason : facts.bad.reasons) text += "  " + printable(reason) + "\n";
  return text;
}

Json folder_json(const std::string& path, const TokenFolderFacts& facts) {
  const auto& index = facts.index;
  Json json = {{"path", path},
               {"complete", index.complete},
               {"tokens", index.tokens},
               {"documents", index.documents},
               {"empty_documents", index.empty_documents},
               {"max_id", index.max_id},
               {"token_bytes", index.token_bytes},
               {"total_bytes", facts.bytes},
               {"separator", index.separator},
               {"tokenizer",
                {{"path", index.tokenizer.path},
                 {"kind", index.tokenizer.kind},
                 {"fingerprint", fmt::format("{:016x}", index.tokenizer.fingerprint)},
                 {"vocab_size", index.tokenizer.vocab_size}}},
               {"document_tokens",
                {{"min", facts.lengths.shortest},
                 {"mean", facts.lengths.mean},
                 {"median", facts.lengths.median},
                 {"max", facts.lengths.longest}}},
               {"sources", Json::array()}};
  for (const auto& source : index.sources) json["sources"].push_back({{"path", source.path}, {"bytes", source.bytes}});
  return json;
}

std::string folder_text(const std::string& path, const TokenFolderFacts& facts) {
  const auto& index = facts.index;
  auto text = fmt::format("{}: {} tokens, {} document{} ({} empty ones left out), {}{}\n", printable(path),
                          index.tokens, index.documents, index.documents == 1 ? "" : "s", index.empty_documents,
                          format_bytes(facts.bytes), index.complete ? "" : "; not complete: run prepare-text again");
  text += fmt::format("tokenizer {} ({}, {} tokens); largest id {}\n", printable(index.tokenizer.path),
                      index.tokenizer.kind, index.tokenizer.vocab_size, index.max_id);
  if (index.complete) {
    text += fmt::format("tokens of a document: {} to {}, mean {:.1f}, median {}\n", facts.lengths.shortest,
                        facts.lengths.longest, facts.lengths.mean, facts.lengths.median);
  }
  for (const auto& source : index.sources) text += fmt::format("  {} ({})\n", source.path, format_bytes(source.bytes));
  return text;
}

}  // namespace

LiveRows::LiveRows() : terminal_(isatty(STDERR_FILENO) != 0), last_(std::chrono::steady_clock::now()) {}

LiveRows::~LiveRows() {
  if (shown_) std::cerr << "\r\x1b[K" << std::flush;
}

void LiveRows::show(std::int64_t rows) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  shown_ = true;
  std::cerr << fmt::format("\r{} rows", rows) << std::flush;
}

int run_data_inspect(const Arguments& arguments, Context& context) {
  OptionParser app("Says what a table (CSV, TSV, JSON lines, JSON) or a folder of prepared tokens holds.",
                   "orthant data inspect");
  InspectTableOptions options;
  std::string tokenizer;
  bool json = false;
  app.add_option("file", options.path, "the table, or a folder that prepare-text made").required();
  app.add_option("--columns", options.columns, "columns to look at, with commas between them (default: all)")
      .delimiter(',');
  app.add_option("--tokenizer", tokenizer, "file or folder: counts the tokens of texts");
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant data inspect movies.csv --tokenizer vocab.txt")) return 0;
  if (!is_there(options.path)) {
    throw DataError(fmt::format("{}: there is no such file or folder", options.path),
                    {.remedy = "name a table, or a folder that orthant data prepare-text made"});
  }
  if (is_folder(options.path)) {
    const auto facts = inspect_token_folder(options.path);
    std::cout << (json ? json_text(folder_json(options.path, facts), -1) + "\n" : folder_text(options.path, facts))
              << std::flush;
    return 0;
  }
  if (!tokenizer.empty()) options.tokenizer = Tokenizer::load(tokenizer);
  TableFacts facts;
  {
    LiveRows live;
    options.progress = [&](std::int64_t rows) { live.show(rows); };
    facts = inspect_table(options);
  }
  std::cout << (json ? json_text(table_json(options.path, facts), -1) + "\n" : table_text(options.path, facts))
            << std::flush;
  return 0;
}

}  // namespace orthant::cli
