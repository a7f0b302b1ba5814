// A family of models, as other layers see it: what it is called, how its configurations are read, what they mean, its
// graphs, presets and folders. A folder models/<family> defines one; families.inc lists them. No other layer looks into
// the configuration of a family: what one asks is a member of Family or of ModelFacts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/models/model_config.h"
#include "orthant/models/model_facts.h"

namespace orthant {

struct HuggingFaceFamily;

// What a model learns: the token that follows, tokens that are masked, or the label of a row of a table.
enum class Task { next_token, masked_token, classification };

struct Preset {
  std::string name;
  ModelConfig config;
};

// Why a family has no folders in the form of Hugging Face.
struct WithoutFolder {
  std::string path_message;  // of the key `path` in a model section
  std::string path_remedy;
  std::string export_remedy;
};

struct Family {
  std::string_view name;  // "llama": the kind of its models
  Task task = Task::next_token;

  // config.cpp. `read`: the keys of a model section, over what a folder says of the same family where there is one.
  // `shorten`: leaves at most so many layers in each run of alike ones.
  ModelConfig (*read)(JsonReader& section, const ModelConfig* folder) = nullptr;
  ModelFacts (*facts)(const ModelConfig& config) = nullptr;
  void (*shorten)(ModelConfig& config, std::int64_t layers) = nullptr;
  void (*set_class_weights)(ModelConfig& config, std::vector<double> weights) = nullptr;  // of a classifier

  // graph.cpp. Neither freezes. `forward`: null where there is no forward pass without a loss.
  GraphSpec (*spec)(const ModelConfig& config, const WorkSize& work) = nullptr;
  GraphSpec (*forward)(const ModelConfig& config, const WorkSize& work, const ForwardOptions& options) = nullptr;

  bool packs = false;  // attention and positions can be kept within the documents that share a row (data.pack)

  // Beginning of the names of parameters that lie in the unit of its head but belong to the body: a decoder's last
  // norm.
  std::string_view body_in_head = {};

  // presets.cpp
  std::vector<Preset> (*presets)() = nullptr;

  // hugging_face.cpp: folders in the form of Hugging Face, or why there are none. A classifier's own folder calls its
  // tensors by `tensor_name`.
  const HuggingFaceFamily* hugging_face = nullptr;
  WithoutFolder without_folder = {};
  std::string (*tensor_name)(const ModelConfig& config, const std::string& parameter) = nullptr;
};

const std::vector<const Family*>& families();      // in the order of families.inc
const Family* find_family(std::string_view name);  // null: there is none
const Family& first_family(Task task);             // that `orthant init` suggests
std::vector<std::string> family_names();

// Of a configuration with num_hidden_layers: what Family::shorten does.
template <typename Config>
void keep_layers(Config& config, std::int64_t layers) {
  config.num_hidden_layers = std::min(config.num_hidden_layers, layers);
}

// Whether a parameter of a head's unit belongs to the body.
bool is_of_body(const UnitSpec& unit, std::string_view parameter);

}  // namespace orthant
