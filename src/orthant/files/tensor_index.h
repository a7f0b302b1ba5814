// `model.safetensors.index.json`: which file of a Hugging Face folder holds each tensor. Used by tensor_folder.h only,
// with the names that such a folder's files have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

inline constexpr std::string_view kSingleTensorFile = "model.safetensors";
inline constexpr std::string_view kTensorIndexFile = "model.safetensors.index.json";
inline constexpr std::string_view kPickleRemedy =
    "pickle files are never read; turn them into safetensors with tools/state_dict_to_safetensors.py";

// Whether a file's name is one of those that PyTorch's pickles have: *.bin, *.pt, *.pth, *.ckpt, *.pkl.
bool is_pickle_name(std::string_view name);

struct TensorIndex {
  std::map<std::string, std::string> files_by_tensor;
  std::int64_t total_bytes = 0;  // of all tensors; written, not read: other writers count it in other ways

  // Each once, in order.
  std::vector<std::string> files() const;
};

// DataError on anything but JSON with a `weight_map` of tensors to files within the folder.
TensorIndex read_tensor_index(const std::filesystem::path& path);

std::string to_json(const TensorIndex& index);

}  // namespace orthant
