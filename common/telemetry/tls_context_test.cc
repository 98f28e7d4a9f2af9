#include "common/telemetry/tls_context.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/cluster_credentials.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST(TlsContext, TriesAgainWhatCouldNotBeReadAlthoughTheFilesHaveNotChanged) {
  ClusterCredentials ours;
  const std::string dir = ours.Make(Role::kNode, "n1");
  const auto context = TlsContext::Open(dir);
  ASSERT_TRUE(context.ok()) << context.status().ToString();
  const TimePoint begin = SystemClock().Now();
  const auto first = (*context)->Current(begin + 2s);
  ours.Write(dir, Role::kNode, "n1");
  const std::string key = dir + "/key.pem";
  ASSERT_EQ(::chmod(key.c_str(), 0644), 0);
  EXPECT_EQ((*context)->Current(begin + 4s), first);
  ASSERT_EQ(::chmod(key.c_str(), 0600), 0);
  EXPECT_EQ((*context)->Current(begin + 4500ms), first) << "it looks once a second at most";
  const auto second = (*context)->Current(begin + 6s);
  EXPECT_NE(second, first);
  EXPECT_EQ((*context)->Current(begin + 8s), second);
}

}  // namespace
}  // namespace muster
