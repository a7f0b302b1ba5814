#include "orthant/plan/estimate/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_reader.h"
#include "orthant/base/json_text.h"
#include "orthant/base/nearest.h"
#include "orthant/plan/plan_data.h"

namespace orthant {
namespace {

// What a value may be.
enum class Rule {
  positive,
  not_negative,
  share,  // above 0, at most 1
  part,   // at least 0, below 1
  loss,   // at least 0, at most 1
};

// Calls visit(key, field, rule) for every number of a card.
template <typename Card, typename Visit>
void visit_card(Card& card, const Visit& visit) {
  visit("memory_bytes", card.memory_bytes, Rule::positive);
  visit("reserve_bytes", card.reserve_bytes, Rule::not_negative);
  visit("reserve_share", card.reserve_share, Rule::part);
  visit("peak_flops", card.peak_flops, Rule::positive);
  visit("float8_flops", card.float8_flops, Rule::not_negative);
  visit("attention_share", card.attention_share, Rule::share);
  visit("dropped_attention_share", card.dropped_attention_share, Rule::loss);
  visit("memory_bandwidth", card.memory_bandwidth, Rule::positive);
  visit("memory_efficiency", card.memory_efficiency, Rule::share);
  visit("kernel_seconds", card.kernel_seconds, Rule::not_negative);
  visit("update_rate", card.update_rate, Rule::not_negative);
  visit("draw_rate", card.draw_rate, Rule::not_negative);
  visit("interrupted", card.interrupted, Rule::part);
  visit("cards_per_node", card.cards_per_node, Rule::positive);
  visit("dollars_per_hour", card.dollars_per_hour, Rule::not_negative);
}

template <typename Way, typename Visit>
void visit_link(Way& link, const Visit& visit) {
  visit("bandwidth", link.bandwidth, Rule::positive);
  visit("efficiency", link.efficiency, Rule::share);
  visit("latency", link.latency, Rule::not_negative);
  visit("slows_compute", link.slows_compute, Rule::loss);
}

void check(const JsonReader& reader, std::string_view key, double value, Rule rule) {
  const auto fail = [&](std::string_view expected) {
    reader.fail(key, fmt::format("{} is not {}", value, expected), fmt::format("give a number {}", expected));
  };
  if (rule == Rule::positive && !(value > 0)) fail("above 0");
  if (rule == Rule::not_negative && !(value >= 0)) fail("at least 0");
  if (rule == Rule::share && !(value > 0 && value <= 1)) fail("above 0 and at most 1");
  if (rule == Rule::part && !(value >= 0 && value < 1)) fail("at least 0 and below 1");
  if (rule == Rule::loss && !(value >= 0 && value <= 1)) fail("at least 0 and at most 1");
}

// A number that must be positive and has no default must be there.
template <typename Number>
void read_number(JsonReader& reader, std::string_view key, Number& field, Rule rule) {
  const bool must = rule == Rule::positive && field == 0;
  field = must ? reader.require<Number>(key) : reader.get<Number>(key, field);
  check(reader, key, static_cast<double>(field), rule);
}

void read_link(JsonReader reader, Link& link) {
  link.name = reader.get<std::string>("name", link.name);
  visit_link(link, [&](std::string_view key, double& field, Rule rule) { read_number(reader, key, field, rule); });
}

void read_curve(JsonReader& parent, std::string_view key, Curve& curve) {
  if (!parent.has(key)) return;
  JsonReader reader = parent.object(key);
  const auto flops = reader.require<std::vector<double>>("flops");
  const auto shares = reader.require<std::vector<double>>("shares");
  if (flops.size() != shares.size()) {
    reader.fail("shares", fmt::format("{} shares for {} sizes", shares.size(), flops.size()),
                "give one share per size");
  }
  curve.points.clear();
  for (std::size_t i = 0; i < flops.size(); ++i) {
    check(reader, "shares", shares[i], Rule::share);
    check(reader, "flops", flops[i], Rule::positive);
    if (i > 0 && flops[i] <= flops[i - 1]) {
      reader.fail("flops", fmt::format("{:g} after {:g}", flops[i], flops[i - 1]), "sort the sizes, the least first");
    }
    curve.points.push_back({flops[i], shares[i]});
  }
}

void check_name(const JsonReader& reader, const std::string& preset) {
  const auto names = hardware_names();
  if (std::ranges::find(names, preset) != names.end()) return;
  reader.fail("preset", fmt::format("unknown hardware \"{}\"", preset), did_you_mean(preset, names));
}

Hardware read_hardware(const std::string& name, const JsonDocument& document) {
  JsonReader reader(document);
  Hardware hardware;
  if (const auto preset = reader.find<std::string>("preset")) {
    check_name(reader, *preset);
    hardware = find_hardware(*preset);
  }
  hardware.name = name;
  hardware.description = reader.get<std::string>("description", hardware.description);
  visit_card(hardware, [&](std::string_view key, auto& field, Rule rule) { read_number(reader, key, field, rule); });
  hardware.on_host = reader.get<bool>("on_host", hardware.on_host);
  hardware.widens_products = reader.get<bool>("widens_products", hardware.widens_products);
  read_curve(reader, "products", hardware.products);
  read_link(reader.object("local"), hardware.local);
  read_link(reader.object("network"), hardware.network);
  reader.finish();
  return hardware;
}

nlohmann::ordered_json link_json(const Link& link) {
  nlohmann::ordered_json json;
  json["name"] = link.name;
  visit_link(link, [&](std::string_view key, double field, Rule) { json[std::string(key)] = field; });
  return json;
}

}  // namespace

double Curve::at(double size) const {
  if (points.empty()) return 1;
  const auto above = std::ranges::find_if(points, [&](const Point& point) { return point.size > size; });
  if (above == points.begin()) return points.front().share;
  if (above == points.end()) return points.back().share;
  const Point& low = *std::prev(above);
  const double way = std::log(size / low.size) / std::log(above->size / low.size);
  return std::lerp(low.share, above->share, way);
}

std::vector<std::string> hardware_names() {
  return plan_data_names("hardware/", ".json");
}

Hardware find_hardware(const std::string& name_or_path) {
  const auto [name, document] = find_plan_document("hardware", "hardware/", name_or_path);
  return read_hardware(name, document);
}

std::string to_json(const Hardware& hardware) {
  nlohmann::ordered_json json;
  json["description"] = hardware.description;
  visit_card(hardware, [&](std::string_view key, const auto& field, Rule) { json[std::string(key)] = field; });
  json["on_host"] = hardware.on_host;
  json["widens_products"] = hardware.widens_products;
  nlohmann::ordered_json flops = nlohmann::ordered_json::array();
  nlohmann::ordered_json shares = nlohmann::ordered_json::array();
  for (const auto& [size, share] : hardware.products.points) {
    flops.push_back(size);
    shares.push_back(share);
  }
  json["products"] = {{"flops", flops}, {"shares", shares}};
  json["local"] = link_json(hardware.local);
  json["network"] = link_json(hardware.network);
  return json_text(json, 2) + "\n";
}

}  // namespace orthant
