// torch_pch.h for tests.
#pragma once
#include "torch_pch.h"

#include <gtest/gtest.h>
