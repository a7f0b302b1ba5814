// Where models and tokenizers that are only named lie on disk. Nothing is ever fetched from a network.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace orthant {

// `name` itself when it is a path that exists, else models/NAME; nothing when neither is there.
std::optional<std::string> find_model_folder(const std::string& name);

// Of a tokenizer: as above; DataError that says where to put it, and how to make a vocabulary from `columns` of `data`.
std::string require_tokenizer(const std::string& name, const std::string& key, const std::string& data = {},
                              const std::vector<std::string>& columns = {});

}  // namespace orthant
