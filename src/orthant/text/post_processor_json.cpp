// The post-processor of a tokenizer.json as a list of parts.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orthant/base/nearest.h"
#include "orthant/text/json_section.h"
#include "orthant/text/tokenizer_json.h"

namespace orthant {
namespace {

using Part = PostProcessor::Part;
using Source = PostProcessor::Source;

std::int32_t checked_id(const JsonSection& section, std::string_view key, const nlohmann::json& value) {
  const bool valid = value.is_number_integer() && value >= 0 && value <= Vocabulary::kLargestId;
  if (!valid) section.fail(key, fmt::format("has the id {}", value.dump()), "ids are integers that are not negative");
  return value.get<std::int32_t>();
}

// ["[SEP]", 102]
std::int32_t id_of_pair(const JsonSection& section, std::string_view key) {
  const auto& value = section.value(key);
  if (!value.is_array() || value.size() != 2) section.wrong_type(key, "a token and its id");
  return checked_id(section, key, value[1]);
}

std::int32_t type_of(const JsonSection& part) {
  const auto type = part.has("type_id") ? part.integer("type_id") : 0;
  if (type < 0 || type > 255) part.fail("type_id", fmt::format("is {}", type), "segments are between 0 and 255");
  return static_cast<std::int32_t>(type);
}

std::vector<Part> read_template(const JsonSection& section, std::string_view key) {
  std::vector<Part> parts;
  for (const auto& element : section.objects(key)) {
    if (element.has("Sequence")) {
      const auto sequence = element.object("Sequence");
      const auto name = sequence.text("id");
      if (name != "A" && name != "B") sequence.fail("id", fmt::format("is \"{}\"", name), "sequences are A and B");
      parts.push_back({name == "A" ? Source::first : Source::second, 0, type_of(sequence)});
      continue;
    }
    const auto token = element.object("SpecialToken");
    const auto tokens = section.object("special_tokens");
    const auto entry = tokens.object(token.text("id"));
    const auto& ids = entry.value("ids");
    if (!ids.is_array()) entry.wrong_type("ids", "a list of ids");
    for (const auto& id : ids) parts.push_back({Source::token, checked_id(entry, "ids", id), type_of(token)});
  }
  return parts;
}

PostProcessor from_section(const JsonSection& section) {
  static const std::vector<std::string> kKnown = {"TemplateProcessing", "BertProcessing", "RobertaProcessing",
                                                  "ByteLevel", "Sequence"};
  const auto type = section.text("type");
  if (type == "ByteLevel") return {};  // it moves offsets, not ids
  if (type == "BertProcessing") return PostProcessor::bert(id_of_pair(section, "cls"), id_of_pair(section, "sep"));
  if (type == "RobertaProcessing") {
    return PostProcessor::roberta(id_of_pair(section, "cls"), id_of_pair(section, "sep"));
  }
  if (type == "TemplateProcessing") return {read_template(section, "single"), read_template(section, "pair")};
  if (type == "Sequence") {
    PostProcessor result;
    bool found = false;
    for (const auto& step : section.objects("processors")) {
      if (step.text("type") == "ByteLevel") continue;
      if (found) step.fail("type", "is the second one that adds tokens", "keep one of them");
      found = true;
      result = from_section(step);
    }
    return result;
  }
  section.fail("type", fmt::format("is \"{}\"", type), did_you_mean(type, kKnown));
}

}  // namespace

PostProcessor read_post_processor(const JsonSection& root) {
  return root.has("post_processor") ? from_section(root.object("post_processor")) : PostProcessor();
}

}  // namespace orthant
