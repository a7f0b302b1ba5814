#include "orthant/text/tokenizer_roles.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "orthant/base/json_document.h"
#include "orthant/files/path_facts.h"
#include "orthant/text/json_section.h"
#include "orthant/text/vocabulary.h"

namespace orthant {
namespace {

constexpr std::array<std::string_view, 7> kKeys = {"bos_token", "eos_token", "cls_token", "sep_token",
                                                   "pad_token", "unk_token", "mask_token"};

// Keys of the files for a role, the first that is there wins, then the usual names.
struct Role {
  std::optional<std::int32_t> SpecialTokens::* id;
  std::vector<std::string_view> keys;
  std::vector<std::string_view> names;
};

const std::array<Role, 5>& roles_by_name() {
  static const std::array<Role, 5> kRoles = {{
      {&SpecialTokens::pad, {"pad_token"}, {"[PAD]", "<pad>"}},
      {&SpecialTokens::unknown, {"unk_token"}, {"[UNK]", "<unk>"}},
      {&SpecialTokens::begin, {"cls_token", "bos_token"}, {"[CLS]", "<s>", "<|begin_of_text|>", "<|endoftext|>"}},
      {&SpecialTokens::end, {"sep_token", "eos_token"}, {"[SEP]", "</s>", "<|end_of_text|>", "<|endoftext|>"}},
      {&SpecialTokens::mask, {"mask_token"}, {"[MASK]", "<mask>"}},
  }};
  return kRoles;
}

// {"content": "<mask>", "lstrip": true, ...}
AddedToken read_description(const JsonSection& section, std::int32_t id, bool special) {
  AddedToken token;
  token.content = section.text("content");
  token.id = id;
  token.special = section.flag("special", special);
  token.single_word = section.flag("single_word", false);
  token.lstrip = section.flag("lstrip", false);
  token.rstrip = section.flag("rstrip", false);
  token.normalized = section.flag("normalized", !token.special);
  return token;
}

void read_tokens(const JsonSection& file, TokenizerRoles& roles) {
  for (const auto key : kKeys) {
    if (!file.has(key)) continue;
    auto& role = roles.tokens[std::string(key)];
    if (file.value(key).is_object()) {
      roles.described.push_back(read_description(file.object(key), -1, true));
      role = roles.described.back().content;
    } else {
      role = file.text(key);
    }
  }
}

// {"50256": {"content": "<|endoftext|>", ...}, ...}
void read_decoder(const JsonSection& decoder, TokenizerRoles& roles) {
  for (const auto& key : decoder.keys()) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > Vocabulary::kLargestId) {
      decoder.fail(key, "is not an id", fmt::format("ids are between 0 and {}", Vocabulary::kLargestId));
    }
    roles.described.push_back(read_description(decoder.object(key), id, false));
  }
}

// Those of one role in order of preference.
std::vector<std::string> candidates(const TokenizerRoles& roles, const Role& role) {
  std::vector<std::string> texts;
  for (const auto key : role.keys) {
    if (const auto place = roles.tokens.find(key); place != roles.tokens.end()) texts.push_back(place->second);
  }
  texts.insert(texts.end(), role.names.begin(), role.names.end());
  return texts;
}

}  // namespace

TokenizerRoles read_roles(const std::filesystem::path& folder) {
  TokenizerRoles roles;
  for (const auto* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const auto path = (folder / name).string();
    if (!is_there(path)) continue;
    const auto document = JsonDocument::load(path, {.errors = JsonErrorKind::kData});
    const JsonSection file(document.value(), path);
    read_tokens(file, roles);
    if (file.has("added_tokens_decoder")) read_decoder(file.object("added_tokens_decoder"), roles);
    if (const auto found = file.find_text("tokenizer_class")) roles.tokenizer_class = *found;
    roles.add_prefix_space = file.flag("add_prefix_space", roles.add_prefix_space);
    roles.add_bos_token = file.flag("add_bos_token", roles.add_bos_token);
  }
  return roles;
}

std::vector<std::string> wanted_tokens(const TokenizerRoles& roles) {
  std::vector<std::string> texts;
  for (const auto& role : roles_by_name()) {
    for (auto& text : candidates(roles, role)) texts.push_back(std::move(text));
  }
  return texts;
}

SpecialTokens special_tokens(const TokenizerRoles& roles,
                             const std::function<std::optional<std::int32_t>(std::string_view)>& find) {
  SpecialTokens special;
  for (const auto& role : roles_by_name()) {
    for (const auto& text : candidates(roles, role)) {
      if ((special.*role.id = find(text))) break;
    }
  }
  return special;
}

}  // namespace orthant
