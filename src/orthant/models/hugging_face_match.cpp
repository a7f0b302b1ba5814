#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"
#include "orthant/models/hugging_face_names.h"

namespace orthant {
namespace {

constexpr std::size_t kMostListed = 20;

// What the library computes from the configuration and older versions of it stored.
bool is_buffer(std::string_view name) {
  constexpr std::array<std::string_view, 5> kEndings = {".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq",
                                                        "embeddings.position_ids", "embeddings.token_type_ids"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
}

bool is_floating(std::string_view dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F64";
}

class Matcher {
 public:
  Matcher(const NameTable& names, std::span<const TensorEntry> stored) : table_(names) {
    for (const auto& entry : stored) stored_.emplace(entry.name, &entry);
    find_prefix();
  }

  TensorMatch match(std::span<const WantedParameter> wanted, const std::string& folder);

 private:
  void find_prefix();
  const TensorEntry* find(const std::string& name) const;
  const TensorEntry* find_any_name(const std::string& name) const;
  void place(const WantedParameter& wanted);
  void note_repeats();
  void sort_leftovers();

  const NameTable& table_;
  std::map<std::string, const TensorEntry*, std::less<>> stored_;
  std::string prefix_;  // of the base model in this folder
  std::set<std::string, std::less<>> used_;
  std::int64_t num_layers_ = 0;
  bool head_wanted_ = false;
  TensorMatch result_;
  std::vector<std::string> differences_;
};

// The prefix that stands before the word embedding: the library's, none, or another one that only one tensor has.
void Matcher::find_prefix() {
  const auto anchor = std::string(table_.body.front().theirs) + ".weight";
  prefix_ = table_.prefix;
  if (stored_.contains(prefix_ + anchor)) return;
  std::vector<std::string> others;
  for (const auto& [name, entry] : stored_) {
    if (name == anchor || name.ends_with("." + anchor)) others.push_back(name.substr(0, name.size() - anchor.size()));
  }
  if (others.size() == 1 || (!others.empty() && others.front().empty())) prefix_ = others.front();
}

const TensorEntry* Matcher::find(const std::string& name) const {
  const auto found = stored_.find(name);
  return found == stored_.end() ? nullptr : found->second;
}

// Norms were once called gamma and beta, and a tied tensor may stand under its second name alone.
const TensorEntry* Matcher::find_any_name(const std::string& name) const {
  if (const auto* entry = find(name)) return entry;
  const auto dot = name.rfind('.');
  if (name.substr(0, dot).ends_with("LayerNorm")) {
    return find(name.substr(0, dot) + (name.ends_with(".weight") ? ".gamma" : ".beta"));
  }
  for (const auto& repeat : table_.repeats) {
    if (!repeat.of_body && repeat.of == name) return find(std::string(repeat.tensor));
  }
  return nullptr;
}

void Matcher::place(const WantedParameter& wanted) {
  auto name = hugging_face_name(table_, wanted.name, /*bare=*/true);
  if (!name) return;
  const bool in_head = !name->body && !wanted.name.starts_with("pooler.");
  head_wanted_ |= in_head;
  if (!in_head) name->tensor = prefix_ + name->tensor;
  auto shape = wanted.shape;
  if (name->transposed) std::ranges::reverse(shape);
  const auto* entry = find_any_name(name->tensor);
  if (entry == nullptr) {
    if (!name->body) {
      result_.absent.push_back(wanted.name);
    } else {
      differences_.push_back(fmt::format("{}: missing, [{}] expected", name->tensor, fmt::join(shape, ", ")));
    }
    return;
  }
  used_.insert(entry->name);
  if (entry->shape != shape) {
    differences_.push_back(fmt::format("{}: [{}] in the folder, [{}] by config.json", printable(entry->name),
                                       fmt::join(entry->shape, ", "), fmt::join(shape, ", ")));
  } else if (!is_floating(entry->dtype)) {
    differences_.push_back(
        fmt::format("{}: dtype {}; F64, F32, BF16 and F16 can be read", printable(entry->name), entry->dtype));
  }
  result_.uses.push_back({wanted.name, entry->name, name->transposed});
}

// A second copy of what is tied counts as the head's, so it matters only where the head is wanted.
void Matcher::note_repeats() {
  for (const auto& repeat : table_.repeats) {
    const auto* copy = find(std::string(repeat.tensor));
    const auto* original = find((repeat.of_body ? prefix_ : "") + std::string(repeat.of));
    if (copy == nullptr || original == nullptr || used_.contains(copy->name) || !used_.contains(original->name))
      continue;
    if (!head_wanted_ && table_.always_tied) continue;
    used_.insert(copy->name);
    if (copy->shape != original->shape || copy->dtype != original->dtype) {
      differences_.push_back(fmt::format("{}: {} [{}]; it is tied to {}, {} [{}]", copy->name, copy->dtype,
                                         fmt::join(copy->shape, ", "), original->name, original->dtype,
                                         fmt::join(original->shape, ", ")));
      continue;
    }
    result_.tied.emplace_back(copy->name, original->name);
  }
}

void Matcher::sort_leftovers() {
  std::set<std::int64_t> extra_layers;
  for (const auto& [name, entry] : stored_) {
    if (used_.contains(name) || is_buffer(name)) continue;
    const auto in_body = [&](std::string_view root) { return name.starts_with(prefix_ + std::string(root)); };
    if (std::ranges::none_of(table_.roots, in_body)) {
      result_.unused.push_back(name);
      continue;
    }
    const auto layers = prefix_ + std::string(table_.layers);
    std::int64_t layer = -1;
    if (name.starts_with(layers)) std::from_chars(name.data() + layers.size(), name.data() + name.size(), layer);
    if (layer >= num_layers_) {
      extra_layers.insert(layer);
    } else {
      differences_.push_back(fmt::format("{}: a model of this config.json has no such tensor", printable(name)));
    }
  }
  if (!extra_layers.empty()) {
    differences_.push_back(fmt::format("{}{}{}: layers {} to {} are stored, config.json has {} layers", prefix_,
                                       table_.layers, "*", *extra_layers.begin(), *extra_layers.rbegin(), num_layers_));
  }
}

TensorMatch Matcher::match(std::span<const WantedParameter> wanted, const std::string& folder) {
  for (const auto& parameter : wanted) {
    place(parameter);
    std::int64_t layer = -1;
    constexpr std::string_view kLayers = "layers.";
    if (!parameter.name.starts_with(kLayers)) continue;
    std::from_chars(parameter.name.data() + kLayers.size(), parameter.name.data() + parameter.name.size(), layer);
    num_layers_ = std::max(num_layers_, layer + 1);
  }
  note_repeats();
  sort_leftovers();
  if (differences_.empty()) return std::move(result_);
  throw_differences(folder, "config.json", differences_, "use the config.json that was saved with these weights");
}

}  // namespace

void throw_differences(const std::string& folder, std::string_view what, const std::vector<std::string>& differences,
                       std::string remedy) {
  const auto count = differences.size();
  auto text =
      fmt::format("{}: the weights do not fit {} ({} difference{})", folder, what, count, count == 1 ? "" : "s");
  for (std::size_t i = 0; i < std::min(count, kMostListed); ++i) text += "\n  " + differences[i];
  if (count > kMostListed) text += fmt::format("\n  and {} more", count - kMostListed);
  throw DataError(text, {.remedy = std::move(remedy)});
}

TensorMatch match_tensors(const NameTable& names, std::span<const WantedParameter> wanted,
                          std::span<const TensorEntry> stored, const std::string& folder) {
  return Matcher(names, stored).match(wanted, folder);
}

}  // namespace orthant
