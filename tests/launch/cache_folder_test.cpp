#include "orthant/launch/cache_folder.h"

#include <gtest/gtest.h>

#include "orthant/base/error.h"

namespace orthant::launch::cache_folder_test {

TEST(CacheFolder, TakesTheFirstVariableThatIsSet) {
  EXPECT_EQ(cache_folder({{"ORTHANT_CACHE", "/a"}, {"XDG_CACHE_HOME", "/b"}, {"HOME", "/c"}}), "/a");
  EXPECT_EQ(cache_folder({{"XDG_CACHE_HOME", "/b"}, {"HOME", "/c"}}), "/b/orthant");
  EXPECT_EQ(cache_folder({{"HOME", "/c"}}), "/c/.cache/orthant");
  EXPECT_EQ(cache_folder({{"XDG_CACHE_HOME", "relative"}}), "");
  EXPECT_EQ(cache_folder({}), "");
}

TEST(CacheFolder, RefusesARelativePathOfItsOwn) {
  try {
    cache_folder({{"ORTHANT_CACHE", "kernels"}, {"HOME", "/c"}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.message(), "ORTHANT_CACHE=kernels is no absolute path");
  }
}

}  // namespace orthant::launch::cache_folder_test
