#include "common/rpc/etcd_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::HasSubstr;

TEST(EtcdVersionTest, VersionsThatLoseDataAreRefusedByName) {
  for (const char* version : {"3.4.0", "3.4.23", "3.5.6", "3.5.21", "3.6.0", "4.0.0"})
    EXPECT_TRUE(CheckEtcdVersion(version, false).ok()) << version;
  for (const char* version : {"3.5.0", "3.5.5", "3.5.0-rc.1"}) {
    EXPECT_THAT(CheckEtcdVersion(version, false).message(), HasSubstr("--allow-unsafe-etcd"));
    EXPECT_TRUE(CheckEtcdVersion(version, true).ok()) << version;
  }
  for (const char* version : {"3.3.25", "2.3.8", "", "x"})
    EXPECT_EQ(CheckEtcdVersion(version, true).code(), StatusCode::kFailedPrecondition) << version;
}

}  // namespace
}  // namespace muster
