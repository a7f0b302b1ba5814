// pure_pch.h for tests.
#pragma once
#include "pure_pch.h"

#include <gtest/gtest.h>
