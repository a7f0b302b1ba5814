// Names of kinds of data (data.kind) that several files ask for.
#pragma once

namespace orthant {

inline constexpr const char* kTableKind = "trimodal";           // rows of a table of the user's, to be classified
inline constexpr const char* kTableDemoKind = "trimodal_demo";  // generated ones

}  // namespace orthant
