// orthant tokenize: lines of text to lists of ids, and back.
#include <fmt/ranges.h>

#include <charconv>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/cli/command.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/serve/carried_files.h"
#include "orthant/serve/chat_template.h"
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

// The text that a model is given for a conversation: an object with messages, and what else a template prints.
std::string chat_text(const ChatTemplate& chat, const std::string& line, std::int64_t number) {
  using Json = nlohmann::ordered_json;
  auto given = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!given.is_object() || !given.contains("messages") || !given.at("messages").is_array()) {
    throw DataError(fmt::format("line {}: no JSON object with a list of messages", number),
                    {.remedy = R"(write {"messages": [{"role": "user", "content": "..."}]} on each line)"});
  }
  const auto take = [&](const char* key) {
    std::optional<Json> value;
    if (const auto found = given.find(key); found != given.end()) {
      if (!found->is_null()) value = *found;
      given.erase(key);
    }
    return value;
  };
  const auto messages = take("messages");
  const auto tools = take("tools");
  const auto documents = take("documents");
  const auto prompt = take("add_generation_prompt");
  try {
    return chat.render({.messages = &*messages,
                        .tools = tools ? &*tools : nullptr,
                        .documents = documents ? &*documents : nullptr,
                        .more = &given,
                        .add_generation_prompt = !prompt || *prompt == Json(true)});
  } catch (const DataError& error) {
    throw DataError(fmt::format("line {}: {}", number, error.message()), {.remedy = error.remedy()});
  }
}

ChatTemplate chat_template_of(const std::string& folder, const std::string& choice) {
  const auto chat = load_chat_template(folder, choice);
  if (chat) return *chat;
  throw DataError(
      fmt::format("{} has no chat template", folder),
      {.remedy = fmt::format("name one: --chat-template {}, or a Jinja file", fmt::join(chat_template_names(), ", "))});
}

struct TokenizeOptions {
  std::string path;
  std::string chat_template;
  bool decode = false;
  bool no_special = false;
  bool chat = false;
  bool text = false;
};

void check(const TokenizeOptions& given) {
  if (given.decode && given.chat) throw ConfigError("--decode and --chat together", {.remedy = "use one of them"});
  if (!given.chat && (given.text || !given.chat_template.empty())) {
    throw ConfigError(given.text ? "--text without --chat" : "--chat-template without --chat",
                      {.remedy = "add --chat"});
  }
}

}  // namespace

int run_tokenize(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Writes each line of stdin as one JSON list of ids. With --decode each line is such a list and becomes its text: "
      "the exact bytes, a newline inside of the text as it is. With --chat each line is a conversation.",
      "orthant tokenize");
  TokenizeOptions given;
  app.add_option("--tokenizer", given.path, "tokenizer.json, .model, vocab.txt, or a folder with a tokenizer")
      .required();
  app.add_flag("--decode", given.decode, "ids to text");
  app.add_flag("--no-special", given.no_special,
               "add no [CLS], <s> and the like; with --decode, leave special tokens out");
  app.add_flag("--chat", given.chat,
               "each line is a JSON object with messages, as the folder's chat template turns them into a prompt");
  app.add_option(
      "--chat-template", given.chat_template,
      fmt::format("{} or a Jinja file, instead of the folder's own", fmt::join(chat_template_names(), ", ")));
  app.add_flag("--text", given.text, "with --chat: the prompt as a JSON string, not its ids");
  if (!parse(app, arguments, context, example::kTokenize)) return 0;
  check(given);
  std::optional<ChatTemplate> chat;
  if (given.chat) chat = chat_template_of(given.path, given.chat_template);
  std::optional<Tokenizer> tokenizer;
  if (!given.text) tokenizer = Tokenizer::load(given.path);
  std::ios::sync_with_stdio(false);
  std::cin.tie(nullptr);
  constexpr std::size_t kFlushBytes = std::size_t{1} << 16;
  const EncodeOptions options{.special = !given.no_special && !given.chat};  // a chat template prints <s> itself
  std::string line;
  std::string out;
  std::vector<std::int32_t> ids;
  for (std::int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (given.decode) {
      out += decode_line(*tokenizer, line, number, given.no_special);
    } else {
      if (chat) line = chat_text(*chat, line, number);
      if (given.text) {
        out += json_text(nlohmann::json(line));
      } else {
        ids.clear();
        tokenizer->encode_into(line, options, ids);
        append_ids(ids, out);
      }
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
