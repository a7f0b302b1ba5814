// Reads the header from nlohmann's parser events with the format's grammar as the only grammar, so that a hostile
// header can neither nest deeply nor build anything that the format does not have.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/files/safetensors_header.h"

namespace orthant {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDims = 64;
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr const char* kDamaged = "the file is damaged or was written wrongly: copy or download it again";

struct RawTensor {
  TensorEntry entry;
  std::vector<std::int64_t> offsets;
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;
};

[[noreturn]] void throw_given_twice(const std::filesystem::path& path, std::string_view name) {
  throw DataError(fmt::format("{}: the header has {} twice", path.string(), shown_name(name)), {.remedy = kDamaged});
}

class HeaderReader : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(const std::filesystem::path& path) : path_(path) {}

  std::vector<RawTensor> tensors;
  SafetensorsMetadata metadata;

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool number_float(number_float_t, const string_t& text) override { unexpected("the number " + text.substr(0, 40)); }
  bool number_integer(number_integer_t value) override { unexpected(fmt::format("the number {}", value)); }

  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == nullptr) unexpected(fmt::format("the number {}", value));
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail(fmt::format("has the number {} at {}, which takes more than 63 bits", value, shown_name(key_)));
    }
    if (list_->size() == kMaxDims) fail(fmt::format("{} has more than {} elements", key_, kMaxDims));
    list_->push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      metadata[key_] = std::move(value);
    } else if (place_ == Place::kTensor && key_ == "dtype") {
      tensors.back().entry.dtype = std::move(value);
    } else {
      unexpected("the string " + shown_name(value));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kOutside) {
      place_ = Place::kFile;
    } else if (place_ == Place::kFile) {
      place_ = key_ == kMetadataKey ? Place::kMetadata : Place::kTensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kFile) {
      place_ = Place::kOutside;
      return true;
    }
    if (place_ == Place::kTensor) {
      const RawTensor& tensor = tensors.back();
      if (!tensor.has_dtype || !tensor.has_shape || !tensor.has_offsets) {
        fail(fmt::format("lacks {}", !tensor.has_dtype ? "dtype" : !tensor.has_shape ? "shape" : "data_offsets"));
      }
      if (tensor.offsets.size() != 2) {
        fail(fmt::format("data_offsets has {} elements instead of 2", tensor.offsets.size()));
      }
    }
    place_ = Place::kFile;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || list_ != nullptr || key_ == "dtype") unexpected("an array");
    list_ = key_ == "shape" ? &tensors.back().entry.shape : &tensors.back().offsets;
    return true;
  }

  bool end_array() override {
    list_ = nullptr;
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::kTensor) {
      RawTensor& tensor = tensors.back();
      bool* seen = name == "dtype"          ? &tensor.has_dtype
                   : name == "shape"        ? &tensor.has_shape
                   : name == "data_offsets" ? &tensor.has_offsets
                                            : nullptr;
      if (seen == nullptr) fail(fmt::format("has the unknown key {}", shown_name(name)));
      if (std::exchange(*seen, true)) fail(fmt::format("has {} twice", name));
    } else if (place_ == Place::kMetadata) {
      if (metadata.contains(name)) fail(fmt::format("has the key {} twice", shown_name(name)));
    } else {
      if (name != kMetadataKey) {
        tensors.emplace_back().entry.name = name;
      } else if (std::exchange(has_metadata_, true)) {
        throw_given_twice(path_, name);
      }
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    fail_at(position == 0 ? 0 : position - 1);
  }

  [[noreturn]] void fail_at(std::size_t byte) const {
    throw DataError(fmt::format("{}: the header is not JSON: mistake at its byte {}", path_.string(), byte),
                    {.remedy = "the file is damaged or of another format: copy or download it again"});
  }

 private:
  enum class Place { kOutside, kFile, kMetadata, kTensor };

  // What is being read, as an error begins.
  std::string subject() const {
    if (place_ == Place::kMetadata) return std::string(kMetadataKey);
    if (place_ == Place::kTensor) return "tensor " + shown_name(tensors.back().entry.name);
    return "the header";
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw DataError(fmt::format("{}: {} {}", path_.string(), subject(), message), {.remedy = kDamaged});
  }

  [[noreturn]] void unexpected(const std::string& found) const {
    const std::string at = place_ == Place::kOutside ? "" : fmt::format(" at {}", shown_name(key_));
    const char* expected = place_ == Place::kMetadata ? "a string"
                           : place_ != Place::kTensor ? "an object"
                           : key_ == "dtype"          ? "a string"
                           : list_ != nullptr         ? "a whole number of 0 or more"
                                                      : "an array of whole numbers";
    fail(fmt::format("has {}{}; expected {}", found, at, expected));
  }

  const std::filesystem::path& path_;
  bool has_metadata_ = false;
  Place place_ = Place::kOutside;
  std::string key_;                            // read last
  std::vector<std::int64_t>* list_ = nullptr;  // inside an array
};

// Sizes that the shapes give, offsets inside the data.
void check_tensor(const RawTensor& tensor, std::int64_t data_bytes, const std::filesystem::path& path) {
  const auto named = [&] { return fmt::format("{}: tensor {}", path.string(), shown_name(tensor.entry.name)); };
  const std::int64_t bytes = tensor_bytes_in(path, tensor.entry);
  const std::int64_t begin = tensor.offsets[0];
  const std::int64_t end = tensor.offsets[1];
  if (begin > end || end > data_bytes) {
    throw DataError(fmt::format("{}: data_offsets [{}, {}] do not lie within the file's {} bytes of data", named(),
                                begin, end, data_bytes),
                    {.remedy = "the file is damaged or was cut short: copy or download it again"});
  }
  if (end - begin != bytes) {
    throw DataError(
        fmt::format("{}: {} of shape [{}] takes {} bytes, but data_offsets [{}, {}] give it {}", named(),
                    tensor.entry.dtype, fmt::join(tensor.entry.shape, ", "), bytes, begin, end, end - begin),
        {.remedy = kDamaged});
  }
}

// The tensors in order of their place, which must be one after the other through all of the data. Sorting, because a
// hostile header may have a million names, chosen to collide in any table.
SafetensorsHeader ordered_header(HeaderReader& reader, std::int64_t data_bytes, const std::filesystem::path& path) {
  std::vector<RawTensor>& tensors = reader.tensors;
  std::sort(tensors.begin(), tensors.end(),
            [](const RawTensor& left, const RawTensor& right) { return left.entry.name < right.entry.name; });
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].entry.name == tensors[i - 1].entry.name) throw_given_twice(path, tensors[i].entry.name);
  }
  for (const RawTensor& tensor : tensors) check_tensor(tensor, data_bytes, path);
  std::vector<std::size_t> places(tensors.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::sort(places.begin(), places.end(),
            [&](std::size_t left, std::size_t right) { return tensors[left].offsets < tensors[right].offsets; });

  SafetensorsHeader header;
  header.metadata = std::move(reader.metadata);
  header.entries.reserve(tensors.size());
  header.offsets.reserve(tensors.size());
  header.by_name.resize(tensors.size());
  std::int64_t end = 0;
  for (const std::size_t place : places) {
    RawTensor& tensor = tensors[place];
    if (tensor.offsets[0] != end) {
      throw DataError(
          fmt::format("{}: tensor {} begins at byte {} of the data, but what lies before it ends at byte {}: {}",
                      path.string(), shown_name(tensor.entry.name), tensor.offsets[0], end,
                      tensor.offsets[0] < end ? "they overlap" : "there is a hole"),
          {.remedy = kDamaged});
    }
    end = tensor.offsets[1];
    header.by_name[place] = header.entries.size();
    header.offsets.push_back(tensor.offsets[0]);
    header.entries.push_back(std::move(tensor.entry));
  }
  if (end != data_bytes) {
    throw DataError(fmt::format("{}: the tensors end at byte {} of the data, but the file has {} bytes of data",
                                path.string(), end, data_bytes),
                    {.remedy = "the file has bytes that no tensor owns: copy or download it again"});
  }
  return header;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::int64_t data_bytes,
                                           const std::filesystem::path& path) {
  if (!text.starts_with('{')) {
    throw DataError(fmt::format("{}: the header does not begin with {{", path.string()),
                    {.remedy = "the file is damaged or of another format: give a .safetensors file"});
  }
  HeaderReader reader(path);
  // nlohmann takes a zero byte for the end of the text and would not look at what follows.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) reader.fail_at(zero);
  json::sax_parse(text.begin(), text.end(), &reader);
  return ordered_header(reader, data_bytes, path);
}

}  // namespace orthant
