// Which tokens have a role: what tokenizer_config.json and special_tokens_map.json beside a vocabulary say, and the
// usual names where they say nothing.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/text/added_tokens.h"
#include "orthant/text/tokenizer.h"

namespace orthant {

struct TokenizerRoles {
  std::map<std::string, std::string, std::less<>> tokens;  // "bos_token" -> "<s>"
  std::string tokenizer_class;                             // "RobertaTokenizerFast"; empty when not said
  bool add_prefix_space = false;
  bool add_bos_token = false;  // read where there is no post-processor
  // What the files say of tokens besides their roles, in order, a token perhaps twice; ids are -1 where not said.
  std::vector<AddedToken> described;
};

// Files that are not there say nothing. DataError for files that are damaged.
TokenizerRoles read_roles(const std::filesystem::path& folder);

// Every text that special_tokens() may ask for.
std::vector<std::string> wanted_tokens(const TokenizerRoles& roles);

// The first token of each role that `find` knows: what the files say, else the usual names.
SpecialTokens special_tokens(const TokenizerRoles& roles,
                             const std::function<std::optional<std::int32_t>(std::string_view)>& find);

}  // namespace orthant
