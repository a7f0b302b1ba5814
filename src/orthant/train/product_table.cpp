#include "orthant/train/product_table.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/json_tree.h"

namespace orthant {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::array<const char*, 3> kElements = {"bfloat16", "float16", "float32"};  // in the order of cuda::Element

// Calls visit(name, member) for every number and every flag of a product.
template <class Of, class Visit>
void for_members(Of& product, const Visit& visit) {
  visit("rows", product.rows);
  visit("columns", product.columns);
  visit("depth", product.depth);
  visit("left_turned", product.left_turned);
  visit("right_turned", product.right_turned);
  visit("left_stride", product.left_stride);
  visit("right_stride", product.right_stride);
  visit("out_stride", product.out_stride);
  visit("in", product.in);
  visit("out", product.out);
  visit("tf32", product.tf32);
  visit("adds", product.adds);
  visit("bias", product.has_bias);
  visit("alignment", product.alignment);
}

ordered_json written(const cuda::Product& product) {
  ordered_json object;
  for_members(product, [&]<class Member>(const char* name, const Member& member) {
    if constexpr (std::is_same_v<Member, cuda::Element>) {
      object[name] = kElements.at(static_cast<std::size_t>(member));
    } else {
      object[name] = member;
    }
  });
  return object;
}

cuda::Product read_product(const json& object) {
  cuda::Product product;
  for_members(product, [&]<class Member>(const char* name, Member& member) {
    const auto& value = object.at(name);
    if constexpr (std::is_same_v<Member, cuda::Element>) {
      const auto found = std::ranges::find(kElements, value.get<std::string>());
      if (found == kElements.end()) throw std::out_of_range(value.dump());
      member = static_cast<cuda::Element>(found - kElements.begin());
    } else if constexpr (std::is_same_v<Member, bool>) {
      member = value.get<bool>();
    } else {
      const auto number = value.get<std::int64_t>();
      if (!value.is_number_integer() || number < 1 || number > std::numeric_limits<Member>::max()) {
        throw std::out_of_range(value.dump());
      }
      member = static_cast<Member>(number);
    }
  });
  return product;
}

std::uint64_t read_word(const std::string& text) {
  std::uint64_t word = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), word, 16);
  if (error != std::errc() || end != text.data() + text.size()) throw std::out_of_range(text);
  return word;
}

nn::ChosenPlan read_plan(const json& object) {
  nn::ChosenPlan chosen;
  const auto& words = object.at("plan");
  if (words.size() != chosen.plan.words.size()) throw std::out_of_range("plan");
  for (std::size_t i = 0; i < words.size(); ++i) chosen.plan.words[i] = read_word(words[i].get<std::string>());
  chosen.plan.workspace_bytes = object.at("workspace_bytes").get<std::size_t>();
  chosen.seconds = object.at("seconds").get<double>();
  chosen.first_seconds = object.at("first_seconds").get<double>();
  return chosen;
}

ProductTable read_table(const json& root) {
  if (root.at("version") != kVersion) throw std::out_of_range(fmt::format("version {}", root.at("version").dump()));
  ProductTable table{root.at("library").get<std::string>(),
                     root.at("card").get<std::string>(),
                     root.at("settings").get<std::string>(),
                     {}};
  for (const auto& object : root.at("products")) table.plans[read_product(object)] = read_plan(object);
  return table;
}

}  // namespace

std::string to_text(const ProductTable& table) {
  ordered_json root = {
      {"version", kVersion}, {"library", table.library}, {"card", table.card}, {"settings", table.settings}};
  auto& products = root["products"] = ordered_json::array();
  for (const auto& [product, chosen] : table.plans) {
    auto object = written(product);
    auto& words = object["plan"] = ordered_json::array();
    for (const auto word : chosen.plan.words) words.push_back(fmt::format("{:016x}", word));
    object["workspace_bytes"] = chosen.plan.workspace_bytes;
    object["seconds"] = chosen.seconds;
    object["first_seconds"] = chosen.first_seconds;
    products.push_back(std::move(object));
  }
  return root.dump(1) + "\n";
}

ProductTable product_table(const std::string& text, const std::string& source) {
  std::string problem;
  try {
    return read_table(*parse_json(text, {.source = source}).value);
  } catch (const ConfigError& error) {
    problem = error.message();
  } catch (const std::exception& error) {  // of nlohmann, and ours above
    problem = fmt::format("{}: {}", source, error.what());
  }
  throw DataError(fmt::format("product plans cannot be read: {}", problem),
                  {.remedy = "bring the run's own file back"});
}

std::string to_text(const std::set<cuda::Product>& products) {
  auto all = ordered_json::array();
  for (const auto& product : products) all.push_back(written(product));
  return all.dump();
}

std::set<cuda::Product> product_set(const std::string& text) {
  std::set<cuda::Product> products;
  for (const auto& object : json::parse(text)) products.insert(read_product(object));
  return products;
}

}  // namespace orthant
