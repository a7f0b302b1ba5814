// Names that other training programs have for settings of ours. Someone who brings a command line or a configuration
// from there is told what to set here, instead of a key that happens to be spelled alike.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace orthant {

struct ForeignName {
  std::string_view name;      // "learning_rate"; "zero_optimization.stage" is a key inside an object
  std::string_view owner;     // whose name it is
  std::string_view key;       // ours; empty where nothing is to be set
  std::string_view value;     // ours; empty: the same value
  std::string_view note;      // what else there is to know
  std::string_view off = {};  // of a switch: what to do where it is given as false; empty: no switch
};

std::span<const ForeignName> foreign_names();

// "Hugging Face's name: set optimizer.lr=0.001": what to set instead of an unknown key with that value; empty when the
// name is nobody's. Any section may hold it. What is null, false, or a switch with 0 is to be left out.
std::string hint_of_key(std::string_view name, const nlohmann::json& value);

// The same for an option of the command line, "--learning-rate"; dashes and underscores are alike. `value` is its word,
// empty where it has none.
std::string hint_of_option(std::string_view option, std::string_view value);

}  // namespace orthant
