// The headers that most files without torch need, compiled once. Files still include what they use, so that a build with
// ORTHANT_PCH=OFF compiles too.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>
#ifdef ORTHANT_PCH_GTEST
#include <gtest/gtest.h>
#endif

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>
