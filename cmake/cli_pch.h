// torch_pch.h for commands: CLI11 has code that every file with it compiles again, used or not.
#pragma once
#include "torch_pch.h"

#include <CLI/CLI.hpp>
