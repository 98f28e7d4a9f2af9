#include "cli/base/temporary_directory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "common/base/testing/temp_dir.h"
#include "tests/support/saved_environment.h"

namespace muster {
namespace {

TEST(TemporaryDirectory, LiesWhereTheUserSaysOrTheErrorSaysHow) {
  const TempDirForTest temp;
  const SavedEnvironment saved;
  ::setenv("TMPDIR", temp.path().c_str(), 1);
  const auto made = MakeTemporaryDirectory("x-");
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_TRUE(made->starts_with(temp.path() + "/x-")) << *made;
  EXPECT_NE(*made, *MakeTemporaryDirectory("x-"));
  const std::string missing = temp.path() + "/missing";
  ::setenv("TMPDIR", missing.c_str(), 1);
  EXPECT_EQ(MakeTemporaryDirectory("x-").status().message(),
            "create a directory in " + missing +
                ": No such file or directory\n  next: set TMPDIR to a directory that can be "
                "written, such as /var/tmp");
}

}  // namespace
}  // namespace muster
