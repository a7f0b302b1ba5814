// Runs a parsed chat template. A run ends: steps, text and depth are bounded (Budget).
#pragma once

#include <functional>
#include <string>

#include "orthant/serve/jinja/tree.h"

namespace orthant::jinja {

// strftime of a time that the caller chooses.
using Clock = std::function<std::string(const std::string& format)>;

// What the template prints with these variables. DataError "FILE:LINE: ..." for what goes wrong; what the template
// itself raises has no place, since it speaks to whoever wrote the messages.
std::string run_template(const Statements& statements, const std::string& source, const Dict& variables,
                         const Clock& clock);

}  // namespace orthant::jinja
