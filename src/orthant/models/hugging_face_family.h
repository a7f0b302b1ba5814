// What a family says of its folders in the form of Hugging Face (models/<family>/hugging_face.cpp), and what the
// readers and writers of such configurations share. Internal to this layer; others see hugging_face.h and
// hugging_face_names.h.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/models/activation.h"
#include "orthant/models/hugging_face.h"
#include "orthant/models/hugging_face_names.h"

namespace orthant {

struct HuggingFaceFamily {
  std::vector<std::string> model_types;  // that config.json may name
  ModelConfig (*read)(JsonReader& reader, const std::string& model_type) = nullptr;
  std::string (*config_text)(const ModelConfig& config, HuggingFaceHead head, DType dtype) = nullptr;
  const NameTable& (*names)(const ModelConfig& config) = nullptr;
  // Keys that say the same in different generations, or that are read together: they change together.
  std::vector<std::vector<std::string>> one_meaning = {};
  // The class of a model type that has another type's model under a name of its own.
  std::string (*class_name)(const std::string& model_type, std::string name) = nullptr;
};

constexpr const char* kOtherModel = "this model cannot be computed here: use one without it";

// There, and not null.
bool is_given(JsonReader& reader, std::string_view key);

void refuse_true(JsonReader& reader, std::string_view key, std::string_view why);

// By Hugging Face's name. An unknown one is refused.
ActivationFunction read_activation_name(JsonReader& reader, std::string_view key, ActivationFunction standard);

// The first of the names that is given; the default otherwise.
template <typename T>
T first_of(JsonReader& reader, std::initializer_list<std::string_view> keys, T standard) {
  for (const auto key : keys) {
    if (const auto found = reader.find<T>(key)) return *found;
  }
  return standard;
}

}  // namespace orthant
