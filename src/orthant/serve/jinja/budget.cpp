// What a run of a template pays for: steps, and bytes of texts before they are made.
#include <fmt/format.h>

#include "orthant/serve/jinja/builtins.h"
#include "orthant/serve/jinja/python_text.h"

namespace orthant::jinja {

void Budget::step(std::size_t count) {
  if (count > steps_) throw Problem{fmt::format("the template takes more than {} steps", kMostSteps)};
  steps_ -= count;
}

void Budget::bytes(std::size_t count) {
  if (count > bytes_) throw Problem{fmt::format("the template makes more than {} bytes of text", kMostBytes)};
  bytes_ -= count;
}

void Budget::search(const std::string& text, const std::string& part) {
  if (part.size() <= text.size()) step((text.size() - part.size() + 1) * (part.size() + 16) / 16384);
}

std::string printed(const Value& value, Budget& budget) {
  if (!value.is_text()) budget.bytes(value.extent().size);
  return value.printed();
}

std::vector<Value> items_of(const Value& value, Budget& budget) {
  const auto* text = value.as_text();
  const auto* list = value.as_list();
  const auto* dict = value.as_dict();
  budget.step(text ? text->size() / 4 : list ? list->items.size() / 8 : dict ? dict->entries.size() / 4 : 0);
  return items_of(value);
}

Value without_case(const Value& value, Budget& budget) {
  if (!value.is_text()) return value;
  budget.bytes(value.as_text()->size());
  return Value::text(lower(*value.as_text()));
}

}  // namespace orthant::jinja
