#include "orthant/train/kept_plans.h"

#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/comm/control_group.h"
#include "orthant/train/measured_plans.h"

namespace orthant {
namespace {

struct FoundPlans {
  std::string text;  // empty when there are none that can be used here
  std::string why;   // there are none
  bool other_settings = false;
};

FoundPlans usable_plans(MeasuredPlans* measured, const OutputFolder& folder) {
  FoundPlans found{.text = folder.product_plans(), .why = ""};
  if (found.text.empty()) return {.text = "", .why = "is missing"};
  try {
    const auto table = product_table(found.text, "product_plans.json");
    found.other_settings = measured != nullptr && table.settings != measured->settings();
    if (found.other_settings) {
      found.why = fmt::format("made for {}, and this is {}", table.settings, measured->settings());
    } else if (measured != nullptr) {
      found.why = measured->refusal(table);
    }
  } catch (const DataError& error) {
    found.why = error.message();
  }
  if (!found.why.empty()) found.text.clear();
  return found;
}

}  // namespace

void check_kept_plans(const OutputFolder& folder, const TrainerOptions& options, MeasuredPlans* measured,
                      std::int64_t step) {
  const bool needed = options.product_plans == ProductChoice::measured && options.deterministic.value_or(false);
  if (!needed || step == 0) return;
  const auto found = usable_plans(measured, folder);
  if (found.why.empty() || found.other_settings) return;  // other settings have other bits
  throw ConfigError(
      fmt::format(
          "{}/product_plans.json: {}; under train.deterministic the run goes on after step {} by the plans that "
          "it began with",
          folder.path(), found.why, step),
      {.remedy = "bring that file back and resume on the card it was made for, or set train.deterministic=false (plans "
                 "are measured anew) or train.product_plans=heuristic"});
}

void use_kept_plans(Trainer& trainer, const OutputFolder* folder, const std::function<void(const std::string&)>& note) {
  auto* const measured = trainer.measured_plans();
  if (measured == nullptr) return;
  const ControlGroup ranks = control_group(trainer.options());
  const auto step = trainer.steps_done();
  FoundPlans found;
  ranks.together([&] {
    if (folder == nullptr) return;
    found = usable_plans(measured, *folder);
    if (!found.text.empty()) folder->write_product_plans(found.text);  // they may be of another folder
  });
  const auto text = ranks.from_first(found.text);
  const auto why = ranks.from_first(found.why);
  if (!text.empty()) {
    ranks.together([&] { measured->use(product_table(text, "rank 0")); });
  } else if (step > 0) {
    note(fmt::format("product_plans.json: {}; plans are measured anew after the next step", why));
  }
  if (folder == nullptr) return;
  measured->on_measured([folder](const ProductTable& table) { folder->write_product_plans(to_text(table)); });
}

}  // namespace orthant
