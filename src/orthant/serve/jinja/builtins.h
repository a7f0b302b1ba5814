// What chat templates may call: filters, tests and methods of Jinja and Python that public templates use, each with
// their meaning. None reads anything but its arguments, and none changes them. Local.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/serve/jinja/value.h"

namespace orthant::jinja {

// What a run may still spend: a template that asks for more has a Problem, so that every run ends.
class Budget {
 public:
  static constexpr std::size_t kMostSteps = 1'000'000;
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // of all texts that are made

  void step(std::size_t count = 1);
  void bytes(std::size_t count);
  // To walk once through all of a value, as comparing does.
  void walk(const Value& value) { step(value.extent().size / 1024); }
  // To look for a part in a text: at every place it may nearly be there.
  void search(const std::string& text, const std::string& part);

 private:
  std::size_t steps_ = kMostSteps;
  std::size_t bytes_ = kMostBytes;
};

std::vector<std::string> filter_names();
std::vector<std::string> test_names();

// The value is the first positional argument. Problem.
Value apply_filter(std::string_view name, const Arguments& arguments, Budget& budget);
bool apply_test(std::string_view name, const Arguments& arguments, Budget& budget);

// value.name and value[key]; undefined where there is nothing. Problem for what is undefined itself, for methods that
// change their value and for others that are not here.
Value attribute_of(const Value& value, const std::string& name, Budget& budget);
Value item_of(const Value& value, const Value& key, Budget& budget);

// The method of a text, list or dict.
Value method_of(const Value& value, const std::string& name, Budget& budget);

// As value.printed(), items_of(value), and sort keys of items without regard to case: paid for before they are made.
std::string printed(const Value& value, Budget& budget);
std::vector<Value> items_of(const Value& value, Budget& budget);
Value without_case(const Value& value, Budget& budget);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent = {};
  std::optional<std::pair<std::string, std::string>> separators = {};  // between items, after keys
};
// As json.dumps of Python. Problem for what JSON does not have.
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

// Of an argument; `name` is for the error.
const std::string& text_of(const Value& value, std::string_view name);
std::int64_t integer_of(const Value& value, std::string_view name);

}  // namespace orthant::jinja
