// The decoder of a tokenizer.json of a model over characters as a list of steps.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orthant/base/nearest.h"
#include "orthant/text/json_section.h"
#include "orthant/text/tokenizer_json.h"

namespace orthant {
namespace {

constexpr std::size_t kMaxDecoders = 64;
constexpr std::size_t kMaxContent = 64;  // bytes that a match becomes: a space, in files that are in use

std::size_t read_count(const JsonSection& section, std::string_view key) {
  const auto count = section.integer(key);
  if (count < 0) section.fail(key, fmt::format("is {}", count), "counts are not negative");
  return static_cast<std::size_t>(count);
}

TokenDecoder::Step read_replacing(const JsonSection& section) {
  const auto content = section.text("content");
  if (content.size() > kMaxContent) {
    section.fail("content", fmt::format("has {} bytes", content.size()), fmt::format("use at most {}", kMaxContent));
  }
  auto description = fmt::format("Replace {} {}", section.object("pattern").value().dump(), content);
  const auto rule = make_replace(read_pattern(section), content, description);
  const auto apply = [rule](TokenDecoder::Tokens& tokens) {
    for (auto& token : tokens) token = rule->apply(token, token.size() * (kMaxContent + 1) + kMaxContent);
  };
  return {apply, std::move(description)};
}

TokenDecoder::Step read_metaspace_decoder(const JsonSection& section) {
  const bool prefixed = section.has("prepend_scheme") ? section.text("prepend_scheme") != "never"
                                                      : section.flag("add_prefix_space", true);
  return metaspace_decoder(read_character(section, "replacement"), prefixed);
}

TokenDecoder::Step read_decoder_step(const JsonSection& section) {
  static const std::vector<std::string> kKnown = {"Sequence", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"};
  const auto type = section.text("type");
  if (type == "Replace") return read_replacing(section);
  if (type == "ByteFallback") return byte_fallback_decoder();
  if (type == "Fuse") return fuse_decoder();
  if (type == "Strip") {
    return strip_decoder(read_character(section, "content"), read_count(section, "start"), read_count(section, "stop"));
  }
  if (type == "Metaspace") return read_metaspace_decoder(section);
  section.fail("type", fmt::format("is \"{}\"", type), did_you_mean(type, kKnown));
}

void read_decoder_steps(const JsonSection& section, std::vector<TokenDecoder::Step>& steps) {
  if (section.text("type") == "Sequence") {
    for (const auto& inner : section.objects("decoders")) read_decoder_steps(inner, steps);
    return;
  }
  if (steps.size() == kMaxDecoders)
    section.fail("type", fmt::format("is step {}", kMaxDecoders + 1), "use fewer steps");
  steps.push_back(read_decoder_step(section));
}

}  // namespace

TokenDecoder read_decoder(const JsonSection& root) {
  std::vector<TokenDecoder::Step> steps;
  if (root.has("decoder")) read_decoder_steps(root.object("decoder"), steps);
  return TokenDecoder(std::move(steps));
}

}  // namespace orthant
