// The modules of each family of Hugging Face models beside ours. Internal to the hugging_face files.
#pragma once

#include <span>
#include <string_view>

#include "orthant/models/hugging_face_names.h"

namespace orthant {

struct ModuleRow {
  std::string_view ours;    // '*' stands for the layer's number
  std::string_view theirs;  // likewise
  bool transposed = false;
};

// A tensor that repeats another one: a tied head, a second name of a bias.
struct RepeatRow {
  std::string_view tensor;
  std::string_view of;
  bool of_body = false;  // `of` lies in the base model and has its prefix
};

struct NameTable {
  std::string_view prefix;            // of the base model inside a model with a head
  std::span<const ModuleRow> body;    // without the prefix; the word embedding first
  std::span<const ModuleRow> pooler;  // likewise; a folder may lack it
  std::span<const ModuleRow> head;    // whole names; likewise
  std::span<const RepeatRow> repeats;
  std::span<const std::string_view> roots;  // what names of the body begin with, after the prefix
  std::string_view layers;                  // what stands before a layer's number
};

const NameTable& name_table(TensorFamily family);

}  // namespace orthant
