#include "orthant/data/shared_tables.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/data/classifier_rows.h"

namespace orthant {
namespace {

using Json = nlohmann::json;
using Rows = ClassifierTable::Rows;

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// All arrays of a file, in one order.
template <class AnyRows, class Visit>
void for_each_array(AnyRows& rows, const Visit& visit) {
  visit(rows.primary.ids.ids);
  visit(rows.primary.ids.ends);
  visit(rows.secondary.ids.ids);
  visit(rows.secondary.ids.ends);
  visit(rows.numbers);
  visit(rows.labels);
  visit(rows.file_rows);
}

// The files behind the two parts; both may be of one.
std::vector<const Rows*> files_of(const ClassifierTables& tables) {
  std::vector<const Rows*> files = {&tables.train->content()};
  if (tables.eval && &tables.eval->content() != files[0]) files.push_back(&tables.eval->content());
  return files;
}

// Hands out pieces of the memory, one after the other.
class Writer {
 public:
  explicit Writer(std::span<std::byte> memory) : memory_(memory) {}

  template <class Element>
  Json add(std::span<const Element> elements) {
    const auto place = used_;
    if (!elements.empty())
      std::memcpy(memory_.subspan(place, elements.size_bytes()).data(), elements.data(), elements.size_bytes());
    used_ += aligned(elements.size_bytes());
    return {place, elements.size()};
  }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

template <class Element>
std::span<const Element> piece_at(const Json& place, std::span<const std::byte> memory) {
  const auto offset = place.at(0).get<std::size_t>();
  const auto count = place.at(1).get<std::size_t>();
  if (offset % kAlignment != 0 || offset > memory.size() || count > (memory.size() - offset) / sizeof(Element)) {
    throw InternalError("a shared table does not fit its memory");
  }
  return {reinterpret_cast<const Element*>(memory.data() + offset), count};
}

Json text_document(const TextRows& text) {
  return {{"length", text.length}, {"pad", text.pad}};
}

std::shared_ptr<const Rows> open_file(const Json& document, std::span<const std::byte> memory,
                                      const std::shared_ptr<const void>& owner) {
  auto rows = std::make_shared<Rows>();
  rows->memory = owner;
  rows->columns = document.at("columns").get<std::int64_t>();
  rows->classes = document.at("classes").get<std::int64_t>();
  for (auto [name, text] : {std::pair("primary", &rows->primary), std::pair("secondary", &rows->secondary)}) {
    text->length = document.at(name).at("length").get<std::int64_t>();
    text->pad = document.at(name).at("pad").get<std::int64_t>();
  }
  std::size_t next = 0;
  for_each_array(*rows, [&]<class Element>(RowArray<Element>& array) {
    array.shared = piece_at<Element>(document.at("arrays").at(next++), memory);
  });
  return rows;
}

}  // namespace

std::size_t shared_size(const ClassifierTables& tables) {
  std::size_t bytes = 0;
  for (const Rows* file : files_of(tables)) {
    for_each_array(*file, [&](const auto& array) { bytes += aligned(array.all().size_bytes()); });
  }
  bytes += aligned(tables.train->part().size_bytes());
  if (tables.eval) bytes += aligned(tables.eval->part().size_bytes());
  return std::max(bytes, kAlignment);
}

std::string share_tables(const ClassifierTables& tables, std::span<std::byte> memory) {
  Writer writer(memory);
  Json document{{"files", Json::array()},
                {"preprocessing", to_json(tables.preprocessing)},
                {"skipped", tables.skipped.count},
                {"reasons", tables.skipped.reasons}};
  for (const Rows* file : files_of(tables)) {
    Json& entry = document["files"].emplace_back(Json{{"columns", file->columns},
                                                      {"classes", file->classes},
                                                      {"primary", text_document(file->primary)},
                                                      {"secondary", text_document(file->secondary)},
                                                      {"arrays", Json::array()}});
    for_each_array(*file, [&](const auto& array) { entry["arrays"].push_back(writer.add(array.all())); });
  }
  document["train"] = writer.add(tables.train->part());
  if (tables.eval) document["eval"] = writer.add(tables.eval->part());
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ClassifierTables open_shared_tables(const std::string& text, std::span<const std::byte> memory,
                                    std::shared_ptr<const void> owner) {
  const auto document = Json::parse(text);
  ClassifierTables tables;
  tables.preprocessing = preprocessing_from_json(document.at("preprocessing").get<std::string>(), "a shared table");
  tables.skipped.count = document.at("skipped").get<std::int64_t>();
  tables.skipped.reasons = document.at("reasons").get<std::vector<std::string>>();
  const auto& weights = tables.preprocessing.class_weights;
  std::shared_ptr<const Rows> last;
  const auto open_part = [&](const char* name) {
    const auto part = piece_at<std::int64_t>(document.at(name), memory);
    return std::make_shared<ClassifierTable>(last, part, weights);
  };
  const auto& files = document.at("files");
  last = open_file(files.front(), memory, owner);
  tables.train = open_part("train");
  if (files.size() > 1) last = open_file(files.back(), memory, owner);
  if (document.contains("eval")) tables.eval = open_part("eval");
  return tables;
}

}  // namespace orthant
