#include "common/telemetry/tls_context.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/cluster_credentials.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using namespace std::chrono_literals;

TEST(TlsContext, TriesAgainWhatCouldNotBeReadAlthoughTheFilesHaveNotChanged) {
  ClusterCredentials ours;
  const std::string dir = ours.Make(Role::kNode, "n1");
  const auto context = TlsContext::Open({dir}, TlsContext::Clients::kHaveCertificates, 1ms);
  ASSERT_TRUE(context.ok()) << context.status().ToString();
  const auto first = (*context)->Current();
  const std::string key = dir + "/key.pem";
  const std::string other = ours.Make(Role::kNode, "n2");
  ASSERT_EQ(::chmod((other + "/key.pem").c_str(), 0644), 0);
  for (const char* file : {"/cert.pem", "/key.pem"})
    ASSERT_EQ(::rename((other + file).c_str(), (dir + file).c_str()), 0);
  // Many looks later.
  EXPECT_FALSE(Eventually([&] { return (*context)->Current() != first; }, 100ms));
  ASSERT_EQ(::chmod(key.c_str(), 0600), 0);
  EXPECT_TRUE(Eventually([&] { return (*context)->Current() != first; }));
}

TEST(TlsContext, KeepsItsContextWhileTheFilesStay) {
  ClusterCredentials ours;
  const auto context =
      TlsContext::Open({ours.Make(Role::kNode, "n1")}, TlsContext::Clients::kHaveCertificates, 1ms);
  ASSERT_TRUE(context.ok()) << context.status().ToString();
  const auto first = (*context)->Current();
  EXPECT_FALSE(Eventually([&] { return (*context)->Current() != first; }, 100ms));
}

}  // namespace
}  // namespace muster
