// orthant tokenize: lines of text to lists of ids, and back.
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <iostream>
#include <iterator>

#include "orthant/base/error.h"
#include "orthant/cli/command.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/text/tokenizer.h"

namespace orthant::cli {
namespace {

// "[1, 2, 3]" as ids. The line is named in errors.
std::vector<std::int32_t> parse_ids(std::string_view line, std::int64_t number) {
  const auto refuse = [&](std::size_t at) {
    throw DataError(fmt::format("line {}, column {}: not a list of ids", number, at + 1),
                    {.remedy = "give one list a line, such as [15496, 995]"});
  };
  std::size_t at = 0;
  const auto skip_blanks = [&] {
    while (at < line.size() && std::string_view(" \t\r").find(line[at]) != std::string_view::npos) ++at;
  };
  const auto take = [&](char letter) {
    skip_blanks();
    if (at >= line.size() || line[at] != letter) return false;
    ++at;
    return true;
  };
  std::vector<std::int32_t> ids;
  if (!take('[')) refuse(at);
  if (!take(']')) {
    do {
      skip_blanks();
      std::int32_t id = 0;
      const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), id);
      if (error != std::errc()) refuse(at);
      at = static_cast<std::size_t>(end - line.data());
      ids.push_back(id);
    } while (take(','));
    if (!take(']')) refuse(at);
  }
  skip_blanks();
  if (at != line.size()) refuse(at);
  return ids;
}

void append_ids(const std::vector<std::int32_t>& ids, std::string& out) {
  out += '[';
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const fmt::format_int number(ids[i]);
    if (i > 0) out += ", ";
    out.append(number.data(), number.size());
  }
  out += ']';
}

std::string decode_line(const Tokenizer& tokenizer, const std::string& line, std::int64_t number, bool skip_special) {
  const auto ids = parse_ids(line, number);
  try {
    return tokenizer.decode(ids, skip_special);
  } catch (const DataError& error) {
    throw DataError(fmt::format("line {}: {}", number, error.message()), {.remedy = error.remedy()});
  }
}

}  // namespace

int run_tokenize(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Writes each line of stdin as one JSON list of ids. With --decode each line is such a list and becomes its text: "
      "the exact bytes, a newline inside of the text as it is.",
      "orthant tokenize");
  std::string path;
  bool decode = false;
  bool no_special = false;
  app.add_option("--tokenizer", path, "tokenizer.json, .model, vocab.txt, or a folder with a tokenizer").required();
  app.add_flag("--decode", decode, "ids to text");
  app.add_flag("--no-special", no_special, "add no [CLS], <s> and the like; with --decode, leave special tokens out");
  if (!parse(app, arguments, context, example::kTokenize)) return 0;
  const auto tokenizer = Tokenizer::load(path);
  std::ios::sync_with_stdio(false);
  std::cin.tie(nullptr);
  constexpr std::size_t kFlushBytes = std::size_t{1} << 16;
  const EncodeOptions options{.special = !no_special};
  std::string line;
  std::string out;
  std::vector<std::int32_t> ids;
  for (std::int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (decode) {
      out += decode_line(tokenizer, line, number, no_special);
    } else {
      ids.clear();
      tokenizer.encode_into(line, options, ids);
      append_ids(ids, out);
    }
    out += '\n';
    // A person or a program that waits for an answer to a line gets it.
    if (out.size() >= kFlushBytes || std::cin.rdbuf()->in_avail() <= 0) {
      std::cout << out << std::flush;
      out.clear();
    }
  }
  std::cout << out << std::flush;
  if (!std::cout) throw DataError("stdout cannot be written", {.remedy = "is the disk full, or the reader gone?"});
  return 0;
}

}  // namespace orthant::cli
